"""Attention over the paged cache, with a reduction order that no batch can move."""
