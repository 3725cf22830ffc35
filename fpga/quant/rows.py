"""Row mantissas, int8 rows and norm gammas."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpga.program.layout import Int8Matrix


class RowUnits(NamedTuple):
    """unit[o] ~ mantissa[o] * 2^-shift, as float64 in ``unit_o`` exactly that product."""

    mantissa_o: NDArray[np.uint16]
    shift: int
    unit_o: NDArray[np.float64]


def row_units(wanted_o: NDArray[np.float64]) -> RowUnits:
    """16-bit mantissas with one exponent for the matrix; the largest uses all 16 bits."""
    largest = float(wanted_o.max())
    shift = 16 - int(np.frexp(largest)[1]) if largest > 0 else 0
    mantissa_o = np.clip(np.round(np.ldexp(wanted_o, shift)), 1, 65535).astype(np.uint16)
    return RowUnits(mantissa_o, shift, np.ldexp(mantissa_o.astype(np.float64), -shift))


def quantise_int8(weight_oi: NDArray[np.float32]) -> tuple[Int8Matrix, int]:
    """Each row scaled to its largest magnitude. Returns the matrix and its row_shift."""
    units = row_units(np.abs(weight_oi).max(axis=1).astype(np.float64) / 127)
    quant_oi = np.round(weight_oi / units.unit_o[:, None].astype(np.float32))
    quant = np.clip(quant_oi, -127, 127).astype(np.int8)
    return Int8Matrix(quant, units.mantissa_o), units.shift


def quantise_gamma(gamma_d: NDArray[np.float32]) -> tuple[NDArray[np.int16], int]:
    """gamma * sqrt(width) as int16 and its shift: the card divides by the root of the sum."""
    wanted_d = gamma_d.astype(np.float64) * np.sqrt(gamma_d.size)
    largest = float(np.abs(wanted_d).max())
    shift = 15 - int(np.frexp(largest)[1]) if largest > 0 else 0
    mantissa_d = np.clip(np.round(np.ldexp(wanted_d, shift)), -32767, 32767)
    return mantissa_d.astype(np.int16), shift
