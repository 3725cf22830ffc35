"""``recip``: one over a 16-bit mantissa, by table and one Newton step."""

import numpy as np
from numpy.typing import ArrayLike

from fpga.golden.fixed import I64
from fpga.program.tables import RECIPROCAL


def reciprocal(mantissa: ArrayLike) -> I64:
    """About 2^31 / mantissa, in [2^15, 2^16], for mantissas in [2^15, 2^16)."""
    m = np.asarray(mantissa, dtype=np.int64)
    guess = RECIPROCAL[(m >> 8) - 128]
    result: I64 = (guess * ((1 << 32) - m * guess)) >> 31
    return result
