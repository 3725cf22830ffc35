"""Rounding, saturation and scale mantissas: the blocks that all operations are made of.

Everything works on int64 arrays of any shape; docs/arithmetic.md states the widths that the
hardware needs.
"""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

I64 = NDArray[np.int64]

INT32_MAX: Final = (1 << 31) - 1
MIN_SHIFT: Final = -7
MAX_SHIFT: Final = 62


def round_shift(value: ArrayLike, shift: ArrayLike) -> I64:
    """``rnd``: value * 2^-shift, half rounded up; shift clamped to -7..62."""
    x = np.asarray(value, dtype=np.int64)
    s = np.clip(np.asarray(shift, dtype=np.int64), MIN_SHIFT, MAX_SHIFT)
    right = np.maximum(s, 0)
    half = (np.int64(1) << right) >> 1
    rounded: I64 = ((x + half) >> right) << np.maximum(-s, 0)
    return rounded


def saturate32(value: ArrayLike) -> I64:
    """``sat32``: clip to +-(2^31 - 1), so that a magnitude always has 31 bits."""
    return np.clip(np.asarray(value, dtype=np.int64), -INT32_MAX, INT32_MAX)


def saturate8(value: ArrayLike) -> I64:
    """``sat8``: clip to +-127."""
    return np.clip(np.asarray(value, dtype=np.int64), -127, 127)


def bit_length(value: ArrayLike) -> I64:
    """``L``, for 0 <= value < 2^53: frexp is exact there."""
    return np.asarray(np.frexp(np.asarray(value, dtype=np.float64))[1], dtype=np.int64)


def shift_to(value: ArrayLike, shift: ArrayLike) -> I64:
    """Plain shift without rounding: right for a positive shift, left for a negative one."""
    x, s = np.asarray(value, dtype=np.int64), np.asarray(shift, dtype=np.int64)
    shifted: I64 = (x >> np.maximum(s, 0)) << np.maximum(-s, 0)
    return shifted


def normalise16(value: ArrayLike) -> tuple[I64, I64]:
    """``norm16``: (mantissa in [2^15, 2^16), exponent) with value ~ mantissa * 2^exponent.

    Truncates. ``value`` must be positive and below 2^53.
    """
    exponent = bit_length(value) - 16
    return shift_to(value, exponent), exponent
