"""int4 in groups of 32 columns, each group's scale searched for the least squared error."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.program.layout import GROUP_COLUMNS, Int4Matrix
from fpga.quant.rows import row_units

SCALE_MAX: Final = 127
FACTORS: Final = (0.72, 0.78, 0.84, 0.9, 0.96, 1.02, 1.08)
"""Scales tried, of either sign, relative to the one that maps the largest magnitude to 7."""
_BLOCK_VALUES: Final = 1 << 17  # stays in a core's cache


def quantise_int4(weight_oi: NDArray[np.float32]) -> tuple[Int4Matrix, int]:
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
    scaled: NDArray[np.float32],
) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Best codes [o, g, 32] and signed scales [o, g] for weights in units of their row."""
    peak_og = np.abs(scaled).max(axis=2)
    best_error = np.full(peak_og.shape, np.inf, dtype=np.float32)
    best_scale = np.zeros(peak_og.shape, dtype=np.float32)
    for factor in FACTORS:
        size = np.clip(np.round(peak_og * np.float32(factor / 7)), 1, SCALE_MAX)
        for scale in (size, -size):
            error = _squared_error(scaled, scale)
            better = error < best_error
            best_error = np.where(better, error, best_error)
            best_scale = np.where(better, scale, best_scale)
    return _codes(scaled, best_scale).astype(np.int8), best_scale.astype(np.int8)


def _codes(scaled: NDArray[np.float32], scale_og: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.clip(np.rint(scaled / scale_og[..., None]), -8, 7)


def _squared_error(
    scaled: NDArray[np.float32], scale_og: NDArray[np.float32]
) -> NDArray[np.float32]:
    rest = scaled - _codes(scaled, scale_og) * scale_og[..., None]
    error: NDArray[np.float32] = np.einsum("ogi,ogi->og", rest, rest)
    return error
