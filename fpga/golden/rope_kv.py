"""ROPE_KV: rotate queries and keys, quantise every head."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.golden.fixed import I64, round_shift, saturate32

ROPE_FRAC: Final = 14


def rotate(heads_nhd: I64, table_nj2: NDArray[np.int16]) -> I64:
    """Rotate each head's halves against each other (the Hugging Face Llama convention).

    ``table_nj2``: cosine and sine for each token's position, int16 [n, head_dim / 2, 2].
    """
    cos_nj, sin_nj = (table_nj2[..., i].astype(np.int64)[:, None, :] for i in (0, 1))
    half = heads_nhd.shape[-1] // 2
    low, high = heads_nhd[..., :half], heads_nhd[..., half:]
    turned = [low * cos_nj - high * sin_nj, high * cos_nj + low * sin_nj]
    return saturate32(round_shift(np.concatenate(turned, axis=-1), ROPE_FRAC))
