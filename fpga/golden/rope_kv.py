"""ROPE_KV: rotate queries and keys, quantise every head."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.golden.fixed import I64, round_shift, saturate32

ROPE_FRAC: Final = 14


def rotate(heads_nhd: I64, table_nj2: NDArray[np.int16]) -> I64:
    """Rotate neighbours of each head, 2i and 2i + 1, by pair i of the table.

    ``table_nj2``: cosine and sine for each token's position, int16 [n, head_dim / 2, 2].
    """
    cos_nj, sin_nj = (table_nj2[..., i].astype(np.int64)[:, None, :] for i in (0, 1))
    low, high = heads_nhd[..., 0::2], heads_nhd[..., 1::2]
    turned = np.stack([low * cos_nj - high * sin_nj, high * cos_nj + low * sin_nj], axis=-1)
    return saturate32(round_shift(turned.reshape(heads_nhd.shape), ROPE_FRAC))
