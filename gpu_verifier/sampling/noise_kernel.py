"""The coupled draw, compiled: argmax over x of z(x)/T + G(x), without evaluating every G.

Bit-equal to ``coupled_draw_reference``, the law in NumPy on ``hetero.core.noise``; tests hold the
two together. Philox words are made a chunk at a time (the loop vectorises); the table is read only
for tokens that could still win. Three facts make the pruning exact: G never exceeds GUMBEL_MAX; G
grows with its word, so nearly all words have a small bound; and rounding keeps order (a <= b
implies fl(a + c) <= fl(b + c)), so a bound computed as the value is can't be below it.

``python -m gpu_verifier.sampling.measure_noise`` times it: 40 rows of 49,152 logits take 5.5 to
8.4 ms on one thread of an AMD EPYC (Zen 3).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetero.core import noise
from hetero.core.compiled import compile_cached

_M0, _M1 = np.uint64(noise.PHILOX_M0), np.uint64(noise.PHILOX_M1)
_W0, _W1 = np.uint64(noise.PHILOX_W0), np.uint64(noise.PHILOX_W1)
_ROUNDS = noise.PHILOX_ROUNDS
_LOW32, _SHIFT32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_DOMAIN = np.uint64(noise.DOMAIN_TARGET)
_UNIT = 1.0 / noise.GUMBEL_ONE  # a power of two: G * _UNIT is exact
_MAX_NOISE = noise.GUMBEL_MAX * _UNIT
_CHUNK_BLOCKS = 256  # Philox calls at a time: 4 KiB of words, which stay in the first cache
# One word in 4096 is at or above this; all others have at most its noise.
_RARE_WORD = np.uint32(0xFFF00000)
_RARE_NOISE = int(noise.gumbel_from_words(_RARE_WORD)) * _UNIT


def _jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at first use, keep the code on disk if possible, run without the interpreter lock.

    A typed stand-in for the decorator, which ships no types.
    """
    return compile_cached(function, nogil=True, fastmath=False, error_model="numpy")


@_jit
def _fill_words(out_4n, first_block, output_index, choice_index, key0, key1):  # type: ignore[no-untyped-def]
    """Philox words of consecutive counters; no branch inside, so that it vectorises."""
    for i in range(out_4n.shape[1]):
        c0, c1, c2, c3 = output_index, np.uint64(first_block + i), choice_index, _DOMAIN
        k0, k1 = key0, key1
        for _ in range(_ROUNDS):
            product0, product1 = c0 * _M0, c2 * _M1
            c0, c1, c2, c3 = (
                (product1 >> _SHIFT32) ^ c1 ^ k0,
                product1 & _LOW32,
                (product0 >> _SHIFT32) ^ c3 ^ k1,
                product0 & _LOW32,
            )
            k0 = (k0 + _W0) & _LOW32
            k1 = (k1 + _W1) & _LOW32
        out_4n[0, i], out_4n[1, i], out_4n[2, i], out_4n[3, i] = c0, c1, c2, c3


@_jit
def _gumbel(word, table):  # type: ignore[no-untyped-def]
    """``hetero.core.noise.gumbel_from_words`` of one 32-bit word."""
    w = np.int64(word)
    half = w >> 31
    v = np.int64(0xFFFFFFFF) - w if half == 1 else w
    if v == 0:
        return np.int64(table[half, 0])
    bits = 31  # half of all v have 31 bits, a quarter 30, ...
    while (v >> (bits - 1)) == 0:
        bits -= 1
    normal = v << (32 - bits)
    knot = 1 + (bits - 1) * 128 + ((normal >> 24) & 127)
    fraction = (normal >> 8) & 0xFFFF
    low = np.int64(table[half, knot])
    high = np.int64(table[half, knot + 1])
    return low + (((high - low) * fraction) >> 16)


@_jit
def _draw(z_v, temperature, key0, key1, output_index, choice_index, table):  # type: ignore[no-untyped-def]
    vocab = z_v.shape[0]
    top = 0
    for token in range(vocab):
        if z_v[token] > z_v[top]:
            top = token
    words = np.empty((4, _CHUNK_BLOCKS), dtype=np.uint32)
    _fill_words(words[:, :1], top >> 2, output_index, choice_index, key0, key1)
    # Start from the likeliest token, so that the bounds prune from the first chunk on.
    best_token = top
    best = np.float64(z_v[top]) / temperature + _gumbel(words[top & 3, 0], table) * _UNIT
    for first in range(0, vocab, 4 * _CHUNK_BLOCKS):
        _fill_words(words, first >> 2, output_index, choice_index, key0, key1)
        for token in range(first, min(first + 4 * _CHUNK_BLOCKS, vocab)):
            scaled = np.float64(z_v[token]) / temperature
            word = words[token & 3, (token - first) >> 2]
            if scaled + (_RARE_NOISE if word < _RARE_WORD else _MAX_NOISE) < best:
                continue
            value = scaled + _gumbel(word, table) * _UNIT
            if value > best or (value == best and token < best_token):
                best, best_token = value, token
    return best_token


def coupled_draw(
    z_v: NDArray[np.float32],
    temperature: float,
    seed: int,
    output_index: int,
    choice_index: int = 0,
) -> int:
    """The token that maximises ``z(x) / temperature + G * 2^-20`` in float64; ties: lowest id.

    ``z_v``: float32 [vocabulary], -inf where a token is excluded, at least one finite; no NaN.
    ``temperature`` > 0. ``seed``: 64 bits.
    """
    return int(
        _draw(
            z_v,
            temperature,
            np.uint64(seed & 0xFFFFFFFF),
            np.uint64(seed >> 32),
            np.uint64(output_index),
            np.uint64(choice_index),
            noise.GUMBEL_TABLE,
        )
    )


def coupled_draw_reference(
    z_v: NDArray[np.float32],
    temperature: float,
    seed: int,
    output_index: int,
    choice_index: int = 0,
) -> int:
    """The law itself, in NumPy, noise evaluated everywhere. Slow; defines ``coupled_draw``."""
    gumbel_v = noise.gumbel_noise(
        seed, output_index, np.arange(z_v.size), choice_index=choice_index
    )
    value_v = z_v.astype(np.float64) / temperature + gumbel_v * (1.0 / noise.GUMBEL_ONE)
    return int(np.argmax(value_v))
