"""Bit-exact NumPy model of the card, one file an operation; small, and slow where it must be."""
