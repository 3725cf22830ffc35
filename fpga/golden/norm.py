"""NORM_QUANT: RMSNorm with a block-floating sum of squares, straight into int8."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.golden.fixed import I64, bit_length, normalise16, round_shift
from fpga.golden.quantise import Quantised, quantise
from fpga.golden.rsqrt import rsqrt

BLOCK_BITS: Final = 17
"""Magnitude bits of the block-floating residual: with its sign a DSP's 18-bit operand."""


def norm_quant(
    values_nd: I64, gamma_d: NDArray[np.int16], *, gamma_shift: int, eps_q: int
) -> Quantised:
    """RMSNorm along the last axis, quantised. ``values_nd``: int32 range, any fraction bits."""
    limit = (1 << BLOCK_BITS) - 1
    block_n = np.maximum(bit_length(np.abs(values_nd).max(axis=-1)) - BLOCK_BITS, 0)
    block_nd = np.clip(round_shift(values_nd, block_n[..., None]), -limit, limit)
    squares_n = (block_nd * block_nd).sum(axis=-1) + (np.int64(eps_q) >> (2 * block_n))
    root_n, root_exponent_n = rsqrt(np.maximum(squares_n, 1))
    out = quantise(block_nd * gamma_d.astype(np.int64), 0)
    mantissa_n, carry_n = normalise16(out.mantissa * root_n)
    exponent_n = out.exponent + root_exponent_n - carry_n + gamma_shift
    return Quantised(out.quant, mantissa_n, exponent_n)
