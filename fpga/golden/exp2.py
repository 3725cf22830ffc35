"""``exp2n``: two to a negative power, by table and linear interpolation."""

import numpy as np
from numpy.typing import ArrayLike

from fpga.golden.fixed import I64, round_shift
from fpga.program.tables import EXP2


def exp2_negative(distance: ArrayLike) -> I64:
    """2^-distance in units of 2^-23; ``distance`` >= 0 in units of 2^-16."""
    d = np.asarray(distance, dtype=np.int64)
    whole, segment, fraction = d >> 16, (d >> 8) & 255, d & 255
    low = EXP2[segment]
    value = low + (((EXP2[segment + 1] - low) * fraction) >> 8)
    return np.where(whole > 24, 0, round_shift(value, np.minimum(whole, 24)))
