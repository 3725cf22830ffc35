"""Proof, from the packed weights, that no accumulator of a matrix product can overflow."""

from typing import Final

import numpy as np

from fpga.program.layout import GROUP_COLUMNS, Int4Matrix, Int8Matrix
from fpga.program.manifest import Bound
from hetero.core.errors import ModelError

ACTIVATION_MAX: Final = 127
ACCUMULATOR_LIMIT: Final = 1 << 31


def matmul_bound(name: str, matrix: Int4Matrix | Int8Matrix) -> Bound:
    """Largest magnitudes over all activations in -127..127.

    Raises ModelError when a row's accumulator could leave 32 bits.
    """
    magnitude_oi = np.abs(matrix.quant_oi.astype(np.int64))
    rows = magnitude_oi.shape[0]
    group_og = magnitude_oi.reshape(rows, -1, GROUP_COLUMNS).sum(axis=2)
    weight_og = np.abs(matrix.scale_og.astype(np.int64)) if isinstance(matrix, Int4Matrix) else 1
    bound = Bound(
        group_sum=ACTIVATION_MAX * int(group_og.max()),
        row_sum=ACTIVATION_MAX * int((group_og * weight_og).sum(axis=1).max()),
    )
    if bound.row_sum >= ACCUMULATOR_LIMIT:
        raise ModelError(
            f"{name}: a row of {magnitude_oi.shape[1]} columns may sum to {bound.row_sum}, the "
            f"card's accumulator holds less than {ACCUMULATOR_LIMIT}. Use a narrower draft."
        )
    return bound
