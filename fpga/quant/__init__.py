"""Checkpoint to integers: int4 groups for the layers, int8 rows for the head."""
