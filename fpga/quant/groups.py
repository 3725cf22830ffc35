"""int4 in groups of 32 columns, each group's scale searched for the least squared error."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.program.layout import GROUP_COLUMNS, Int4Matrix
from fpga.quant.rows import row_units

SCALE_MAX: Final = 127
FACTORS: Final = (0.66, 0.71, 0.76, 0.81, 0.86, 0.91, 0.96, 1.0, 1.05, 1.1)
"""Scales tried, of either sign, relative to the one that maps the largest magnitude to 7."""
F32 = NDArray[np.float32]

_BLOCK_VALUES: Final = 1 << 17  # stays in a core's cache


def quantise_int4(weight_oi: F32) -> tuple[Int4Matrix, int]:
    """Returns the matrix and its row_shift. Columns must be a multiple of 32."""
    rows, width = weight_oi.shape
    grouped = weight_oi.reshape(rows, width // GROUP_COLUMNS, GROUP_COLUMNS)
    peak_og = np.abs(grouped).max(axis=2)
    largest_scale_o = peak_og.max(axis=1).astype(np.float64) / 7 * max(FACTORS)
    units = row_units(largest_scale_o / SCALE_MAX)
    unit_o = units.unit_o.astype(np.float32)
    quant = np.empty(grouped.shape, dtype=np.int8)
    scale_og = np.empty(peak_og.shape, dtype=np.int8)
    step = max(1, _BLOCK_VALUES // width)
    for i in range(0, rows, step):
        part = slice(i, i + step)
        quant[part], scale_og[part] = _search(grouped[part] / unit_o[part, None, None])
    return Int4Matrix(quant.reshape(rows, width), scale_og, units.mantissa_o), units.shift


def _search(
    scaled: F32,
) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Best codes [o, g, 32] and signed scales [o, g] for weights in units of their row.

    Every candidate is rounded to the 8 bits it will have before it is judged. The best of the
    list is then refined once to the least-squares scale of its own codes.
    """
    peak_og = np.abs(scaled).max(axis=2)
    best = np.clip(np.round(peak_og / 7), 1, SCALE_MAX)
    error_og = _squared_error(scaled, best)
    for factor in FACTORS:
        size = np.clip(np.round(peak_og * np.float32(factor / 7)), 1, SCALE_MAX)
        for scale in (size, -size):
            best, error_og = _better(scaled, scale, best, error_og)
    best, _ = _better(scaled, _least_squares(scaled, best), best, error_og)
    return _codes(scaled, best).astype(np.int8), best.astype(np.int8)


def _better(scaled: F32, scale_og: F32, best_og: F32, error_og: F32) -> tuple[F32, F32]:
    """Per group, the better of two scales and its error."""
    new_error_og = _squared_error(scaled, scale_og)
    better_og = new_error_og < error_og
    best_og = np.where(better_og, scale_og, best_og)
    return best_og, np.where(better_og, new_error_og, error_og)


def _least_squares(scaled: F32, scale_og: F32) -> F32:
    codes = _codes(scaled, scale_og)
    energy_og = np.maximum(np.einsum("ogi,ogi->og", codes, codes), 1)
    scale = np.clip(np.rint(np.einsum("ogi,ogi->og", codes, scaled) / energy_og), -127, 127)
    return np.where(scale == 0, scale_og, scale)


def _codes(scaled: F32, scale_og: F32) -> F32:
    return np.clip(np.rint(scaled / scale_og[..., None]), -8, 7)


def _squared_error(scaled: F32, scale_og: F32) -> F32:
    rest = scaled - _codes(scaled, scale_og) * scale_og[..., None]
    error: F32 = np.einsum("ogi,ogi->og", rest, rest)
    return error
