"""QUANT: a vector to int8 with one scale."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpga.golden.fixed import (
    I64,
    bit_length,
    normalise16,
    round_shift,
    saturate8,
    shift_to,
)
from fpga.golden.reciprocal import reciprocal

RECIPROCAL_OF_127: Final = 33026
"""2^22 / 127, rounded."""


class Quantised(NamedTuple):
    """value[..., i] ~ quant[..., i] * mantissa[...] * 2^-exponent[...]."""

    quant: NDArray[np.int8]
    mantissa: I64
    exponent: I64

    def at(self, *index: slice) -> "Quantised":
        """A part along the leading axes, which all three arrays share."""
        return Quantised(self.quant[index], self.mantissa[index], self.exponent[index])


def quantise(values: I64, in_frac: int) -> Quantised:
    """Quantise along the last axis. ``values``: int64 [..., n], magnitudes below 2^40."""
    largest = np.maximum(np.abs(values).max(axis=-1), 1)
    length = bit_length(largest)
    mantissa, _ = normalise16(largest)
    shift = length[..., None] - 16
    # Below 16 bits the shift is to the left and exact; round_shift does not go that far left.
    normal = np.where(shift > 0, round_shift(values, shift), shift_to(values, shift))
    quant = saturate8(round_shift(normal * reciprocal(mantissa)[..., None] * 127, 31))
    scale, exponent = normalise16(mantissa * RECIPROCAL_OF_127)
    return Quantised(quant.astype(np.int8), scale, 38 - length - exponent + in_frac)
