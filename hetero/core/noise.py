"""The sampling noise, specified to the bit: docs/noise.md. NumPy, the reference for all others.

Philox4x32-10 (Salmon et al., SC'11) as a counter-based generator, so that the noise of any
(output index, token) can be had alone: the card evaluates 64 of them, the verifier a vocabulary.

    key     = (seed low 32 bits, seed high 32 bits)
    counter = (output index, token >> 2, choice index, domain)
    word    = output word number (token & 3)
    G       = gumbel(word), a signed integer in units of 2^-20
"""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetero.core import gumbel_table

DOMAIN_TARGET: Final = 0
"""The coupled target draw, shared by verifier and card."""

GUMBEL_FRACTION_BITS: Final = gumbel_table.FRACTION_BITS
GUMBEL_ONE: Final = 1 << GUMBEL_FRACTION_BITS

PHILOX_M0: Final = 0xD2511F53
PHILOX_M1: Final = 0xCD9E8D57
PHILOX_W0: Final = 0x9E3779B9
PHILOX_W1: Final = 0xBB67AE85
PHILOX_ROUNDS: Final = 10

GUMBEL_TABLE: Final = gumbel_table.load()
GUMBEL_MAX: Final = int(GUMBEL_TABLE.max())
"""Largest noise value, in units of 2^-20: no token can gain more than this."""

_LOW32 = np.uint64(0xFFFFFFFF)
_SHIFT32 = np.uint64(32)


def philox4x32(counter_n4: ArrayLike, key: tuple[int, int]) -> NDArray[np.uint32]:
    """Ten rounds of Philox4x32. ``counter_n4``: 32-bit words [n, 4]; returns uint32 [n, 4]."""
    counter = np.asarray(counter_n4, dtype=np.uint64)
    c0, c1, c2, c3 = (counter[:, i].copy() for i in range(4))
    k0, k1 = key
    for _ in range(PHILOX_ROUNDS):
        product0 = c0 * np.uint64(PHILOX_M0)
        product1 = c2 * np.uint64(PHILOX_M1)
        c0 = (product1 >> _SHIFT32) ^ c1 ^ np.uint64(k0)
        c1 = product1 & _LOW32
        c2 = (product0 >> _SHIFT32) ^ c3 ^ np.uint64(k1)
        c3 = product0 & _LOW32
        k0 = (k0 + PHILOX_W0) & 0xFFFFFFFF
        k1 = (k1 + PHILOX_W1) & 0xFFFFFFFF
    words: NDArray[np.uint32] = np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)
    return words


def gumbel_from_words(word_n: ArrayLike) -> NDArray[np.int32]:
    """Gumbel values, int32 in units of 2^-20, of 32-bit words of any shape.

    The distance v from the tail is normalised so that its leading one is bit 31; the next 7 bits
    pick the knot, the 16 after them interpolate, and the rest (below the table's own rounding)
    is dropped.
    """
    word = np.asarray(word_n, dtype=np.uint32).astype(np.int64)
    half = word >> 31
    v = np.where(half == 1, 0xFFFFFFFF - word, word)
    bits = _bit_length(v)
    normal = v << (32 - bits)
    knot = np.where(v == 0, 0, 1 + (bits - 1) * 128 + ((normal >> 24) & 127))
    fraction = np.where(v == 0, 0, (normal >> 8) & 0xFFFF)
    low = GUMBEL_TABLE[half, knot].astype(np.int64)
    high = GUMBEL_TABLE[half, knot + 1].astype(np.int64)
    value: NDArray[np.int32] = (low + (((high - low) * fraction) >> 16)).astype(np.int32)
    return value


def _bit_length(v: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bit length of 0 <= v < 2^31. frexp is exact here: a float64 holds 53 bits."""
    return np.asarray(np.frexp(v.astype(np.float64))[1], dtype=np.int64)


def gumbel_noise(
    seed: int, output_index: int, token_ids: ArrayLike, *, choice_index: int = 0
) -> NDArray[np.int32]:
    """Noise of some tokens at one output position.

    ``seed``: 64 bits. ``output_index``: 0 for the first generated token. ``token_ids``: [n].
    Returns int32 [n] in units of 2^-20.
    """
    tokens = np.asarray(token_ids, dtype=np.int64)
    counter = np.zeros((tokens.size, 4), dtype=np.uint64)
    counter[:, 0] = output_index
    counter[:, 1] = tokens >> 2
    counter[:, 2] = choice_index
    counter[:, 3] = DOMAIN_TARGET
    words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return gumbel_from_words(words[np.arange(tokens.size), tokens & 3])
