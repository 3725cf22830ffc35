"""``rsqrt``: one over a square root, by table and one Newton step."""

import numpy as np
from numpy.typing import ArrayLike

from fpga.golden.fixed import I64, bit_length, shift_to
from fpga.program.tables import RSQRT


def rsqrt(value: ArrayLike) -> tuple[I64, I64]:
    """(mantissa, exponent) with 1 / sqrt(value) ~ mantissa * 2^-exponent, 1 <= value < 2^53."""
    x = np.asarray(value, dtype=np.int64)
    excess = bit_length(x) - 31
    even = excess - (excess & 1)
    normal = shift_to(x, even)
    guess = RSQRT[(normal >> 24) - 64]
    product = ((normal >> 16) * guess * guess) >> 16
    mantissa = (guess * ((3 << 30) - product)) >> 31
    return mantissa, 31 + (even >> 1)
