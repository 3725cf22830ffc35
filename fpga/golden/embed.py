"""EMBED: one int8 row of a matrix to an int32 vector."""

import numpy as np
from numpy.typing import NDArray

from fpga.golden.fixed import I64, round_shift, saturate32


def embed(quant_nd: NDArray[np.int8], mantissa_n: NDArray[np.uint16], *, shift: int) -> I64:
    """Rows times their mantissas. ``shift``: row_shift minus the output's fraction bits."""
    product_nd = quant_nd.astype(np.int64) * mantissa_n.astype(np.int64)[:, None]
    return saturate32(round_shift(product_nd, shift))
