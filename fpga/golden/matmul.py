"""MATMUL: int4 groups or int8 rows times the activation register, and the drain.

The products are taken in float64 BLAS, which is exact here: all factors are integers and every
partial sum, in whatever order, stays below 2^53 (asserted from the sizes).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.golden.fixed import I64, round_shift, saturate32
from fpga.golden.quantise import Quantised
from fpga.program.layout import GROUP_COLUMNS, Int4Matrix, Int8Matrix

MANTISSA_SHIFT: Final = 8
_BLOCK_ROWS: Final = 2048


def folded(matrix: Int4Matrix | Int8Matrix) -> NDArray[np.int16]:
    """Weights with their group scales multiplied in: int16 [rows, width]."""
    if isinstance(matrix, Int8Matrix):
        return matrix.quant_oi.astype(np.int16)
    scale_oi = np.repeat(matrix.scale_og.astype(np.int16), GROUP_COLUMNS, axis=1)
    product: NDArray[np.int16] = matrix.quant_oi.astype(np.int16) * scale_oi
    return product


def accumulate(weight_oi: NDArray[np.int16], quant_ni: NDArray[np.int8]) -> I64:
    """acc[n, o], exactly. ``weight_oi``: from ``folded``."""
    width = weight_oi.shape[1]
    assert 8 * 127 * 127 * width < 1 << 53, "float64 would round"
    activation_in = quant_ni.astype(np.float64).T
    acc_on = np.empty((weight_oi.shape[0], quant_ni.shape[0]), dtype=np.int64)
    for start in range(0, weight_oi.shape[0], _BLOCK_ROWS):
        block = weight_oi[start : start + _BLOCK_ROWS].astype(np.float64)
        acc_on[start : start + _BLOCK_ROWS] = block @ activation_in
    return acc_on.T


def drain(acc_no: I64, mantissa_o: NDArray[np.uint16], scale: Quantised, *, shift: int) -> I64:
    """Accumulators to int32 vectors. ``shift``: row_shift minus the output's fraction bits."""
    assert int(np.abs(acc_no).max(initial=0)) < 1 << 31, "the compiler's bound does not hold"
    scaled_no = round_shift(acc_no * mantissa_o.astype(np.int64), MANTISSA_SHIFT)
    token_shift_n = shift + scale.exponent - MANTISSA_SHIFT
    return saturate32(round_shift(scaled_no * scale.mantissa[:, None], token_shift_n[:, None]))
