"""SILU_GATE: silu(gate) * up, the sigmoid by table and linear interpolation."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from fpga.golden.fixed import I64, round_shift, saturate32
from fpga.program.tables import SIGMOID, SIGMOID_FRAC, SIGMOID_LIMIT, SIGMOID_SEGMENTS

IN_FRAC: Final = 16
"""The table is addressed by gate values of this many fraction bits."""
_SEGMENT_BITS: Final = 10


def sigmoid(gate: ArrayLike) -> I64:
    """In units of 2^-16, 0..65536; ``gate`` has 16 fraction bits."""
    g = np.asarray(gate, dtype=np.int64)
    magnitude = np.minimum(np.abs(g), SIGMOID_LIMIT << IN_FRAC)
    segment, fraction = magnitude >> _SEGMENT_BITS, magnitude & ((1 << _SEGMENT_BITS) - 1)
    low, high = SIGMOID[segment], SIGMOID[np.minimum(segment + 1, SIGMOID_SEGMENTS)]
    positive = low + (((high - low) * fraction) >> _SEGMENT_BITS)
    return np.where(g < 0, (1 << SIGMOID_FRAC) - positive, positive)


def silu_gate(gate: I64, up: I64, *, out_frac: int) -> I64:
    """Both inputs with 16 fraction bits, any shape."""
    activated = saturate32(round_shift(gate * sigmoid(gate), SIGMOID_FRAC))
    return saturate32(round_shift(activated * up, 2 * IN_FRAC - out_frac))
