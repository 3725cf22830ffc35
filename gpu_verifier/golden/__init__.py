"""Slow references that the fast paths are tested against."""
