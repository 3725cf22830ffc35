"""min_p, top_k and top_p over one row of logits. NumPy; the order of use is fixed by the caller.

A filter takes logits float32 [v] with -inf where a token is out already, and returns the same
array or a copy with more of them out. The likeliest token always stays. Ties go to the lowest id:
of equal logits at the edge of top_k or top_p, lower ids are kept. Cut-offs are computed in
float64 from ``logit / temperature``.
"""

import math

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]

_FIRST_LOOK = 256
"""How many of the likeliest tokens top_p sorts at first; grows eightfold until it has enough."""


def keep_min_p(z_v: Logits, temperature: float, min_p: float) -> Logits:
    """Drop tokens less likely than ``min_p`` times the likeliest one. 0 is off."""
    if min_p <= 0.0:
        return z_v
    scaled_v = z_v.astype(np.float64) / temperature
    return _only(z_v, scaled_v - scaled_v.max() >= math.log(min_p))


def keep_top_k(z_v: Logits, top_k: int) -> Logits:
    """Keep exactly the ``top_k`` likeliest tokens. 0 is off."""
    if not 0 < top_k < z_v.size:
        return z_v
    edge = np.partition(z_v, z_v.size - top_k)[z_v.size - top_k]
    keep_v = z_v > edge
    ties = np.flatnonzero(z_v == edge)
    keep_v[ties[: top_k - int(keep_v.sum())]] = True
    return _only(z_v, keep_v)


def keep_top_p(z_v: Logits, temperature: float, top_p: float) -> Logits:
    """Keep the fewest likeliest tokens that hold at least ``top_p`` of what is left. 1 is off."""
    if top_p >= 1.0:
        return z_v
    token_ids = np.flatnonzero(z_v > -np.inf)
    scaled_n = z_v[token_ids].astype(np.float64) / temperature
    weight_n = np.exp(scaled_n - scaled_n.max())
    wanted = top_p * float(weight_n.sum())
    keep_v = np.zeros(z_v.size, dtype=np.bool_)
    keep_v[token_ids[_smallest_head(z_v[token_ids], weight_n, wanted)]] = True
    return _only(z_v, keep_v)


def _smallest_head(z_n: Logits, weight_n: NDArray[np.float64], wanted: float) -> NDArray[np.int64]:
    """Indices of the shortest run, from the likeliest down, whose weights reach ``wanted``."""
    look = min(_FIRST_LOOK, z_n.size)
    while True:
        order = _likeliest(z_n, look)
        reached = np.cumsum(weight_n[order])
        if reached[-1] >= wanted or order.size == z_n.size:
            # side="left": the first position at which the sum is >= wanted.
            return order[: int(np.searchsorted(reached, wanted)) + 1]
        look = min(look * 8, z_n.size)


def _likeliest(z_n: Logits, count: int) -> NDArray[np.int64]:
    """At least ``count`` indices by falling logit, then rising id: a prefix of the full order."""
    edge = np.partition(z_n, z_n.size - count)[z_n.size - count]
    candidates = np.flatnonzero(z_n >= edge)
    order: NDArray[np.int64] = candidates[np.argsort(-z_n[candidates], kind="stable")]
    return order


def _only(z_v: Logits, keep_v: NDArray[np.bool_]) -> Logits:
    return np.where(keep_v, z_v, np.float32(-np.inf))
