"""ATTENTION: int8 queries against the int8 cache, softmax by table, maximum first."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.golden.exp2 import exp2_negative
from fpga.golden.fixed import I64, normalise16, round_shift, saturate32
from fpga.golden.quantise import Quantised
from fpga.golden.reciprocal import reciprocal

SCORE_SHIFT: Final = 12
VALUE_SHIFT: Final = 12
_MASKED: Final = np.iinfo(np.int64).min
_MAX_TOKENS: Final = 64
"""Query tokens taken at once: bounds the memory of the score matrix, changes no result."""


def attend(
    query: Quantised,
    kv: tuple[Quantised, Quantised],
    *,
    start: int,
    out_frac: int,
    window: int = 0,
) -> I64:
    """Outputs [n, head, head_dim] of tokens at positions start, start + 1, ...

    ``query``: [n, head, head_dim]. ``kv``: keys and values [kv_head, start + n, head_dim].
    ``window``: how many positions a token sees, its own included; 0: all.
    """
    parts = []
    for i in range(0, query.quant.shape[0], _MAX_TOKENS):
        part = query.at(slice(i, i + _MAX_TOKENS))
        length = start + i + part.quant.shape[0]
        keys, values = (x.at(slice(None), slice(length)) for x in kv)
        age_nc = start + i + np.arange(part.quant.shape[0])[:, None] - np.arange(length)
        seen_nc = (age_nc >= 0) & (age_nc < (window or length))
        weights = _weights(part, keys, seen_nc)
        parts.append(_mix(weights, values, seen_nc, out_frac))
    return np.concatenate(parts)


def _weights(query: Quantised, keys: Quantised, seen_nc: NDArray[np.bool_]) -> I64:
    """Softmax numerators [kv_head, head in group, n, position], units of 2^-23; 0 if unseen."""
    tokens, heads, dim = query.quant.shape
    kv_heads = keys.quant.shape[0]
    grouped = (tokens, kv_heads, heads // kv_heads)
    query_kgnd = query.quant.reshape(*grouped, dim).transpose(1, 2, 0, 3).astype(np.float64)
    mantissa, exponent = (
        x.reshape(grouped).transpose(1, 2, 0)[..., None] for x in (query.mantissa, query.exponent)
    )
    # float64 BLAS is exact: |dot| <= head_dim * 127^2.
    keys_kdc = keys.quant.transpose(0, 2, 1).astype(np.float64)
    dot = (query_kgnd @ keys_kdc[:, None]).astype(np.int64)
    scaled = round_shift(dot * keys.mantissa[:, None, None, :], SCORE_SHIFT) * mantissa
    shift = exponent + keys.exponent[:, None, None, :] - 16 - SCORE_SHIFT
    score = np.where(seen_nc, saturate32(round_shift(scaled, shift)), _MASKED)
    distance = np.where(seen_nc, score.max(axis=-1, keepdims=True) - np.where(seen_nc, score, 0), 0)
    return np.where(seen_nc, exp2_negative(distance), 0)


def _mix(
    weights: I64,
    values: Quantised,
    seen_nc: NDArray[np.bool_],
    out_frac: int,
) -> I64:
    """Weighted mean of the values: [n, head, head_dim]."""
    exponent = values.exponent[:, None, None, :]
    # The largest scale seen, that is the smallest exponent, is the common unit.
    unit = np.where(seen_nc, exponent, np.iinfo(np.int64).max).min(axis=-1, keepdims=True)
    shift = np.where(seen_nc, 16 + exponent - unit, 16)
    scaled = round_shift(weights * values.mantissa[:, None, None, :], shift)
    assert weights.shape[-1] <= 1 << 16, "the accumulator would overflow"
    acc = scaled.astype(np.float64) @ values.quant[:, None].astype(np.float64)
    mantissa, doubled = normalise16(weights.sum(axis=-1, keepdims=True))
    product = round_shift(acc.astype(np.int64), VALUE_SHIFT) * reciprocal(mantissa)
    out_kgnd = saturate32(round_shift(product, 3 + doubled + unit - out_frac))
    kv_heads, group, tokens, dim = out_kgnd.shape
    return out_kgnd.transpose(2, 0, 1, 3).reshape(tokens, kv_heads * group, dim)
