"""The building blocks of docs/arithmetic.md section 1 on single integers, compiled by numba.

Written from the specification, not from the golden model, so that the two check each other.
Values are int64; nothing here can overflow for the widths that the specification states.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from fpga.program import tables
from hetero.core.compiled import compile_cached

RECIPROCAL = tables.RECIPROCAL.astype(np.int64)
RSQRT = tables.RSQRT.astype(np.int64)
EXP2 = tables.EXP2.astype(np.int64)
SIGMOID = tables.SIGMOID.astype(np.int64)
ONE = np.int64(1)
INT32_MAX = np.int64((1 << 31) - 1)

Int: TypeAlias = Any
"""An integer of compiled code: numba infers its width from what is passed and stored."""

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile for the types it is called with, cached on disk between processes if possible.

    Without the interpreter lock, so that heartbeats go on meanwhile.
    """
    return cast("F", compile_cached(function, nogil=True))


@compiled
def rounded(x: Int, shift: Int) -> Int:
    """``rnd``: x * 2^-shift, half up; the shift is clamped to -7..62."""
    if shift <= 0:
        return x << min(-shift, 7)
    s = min(shift, 62)
    return (x + (ONE << (s - 1))) >> s


@compiled
def clip32(x: Int) -> Int:
    """``sat32``: symmetric."""
    return max(min(x, INT32_MAX), -INT32_MAX)


@compiled
def length(x: Int) -> Int:
    """``L``: bits of x >= 0, by halving."""
    bits = 0
    step = 32
    while step > 0:
        if x >> step != 0:
            x >>= step
            bits += step
        step >>= 1
    return bits + (1 if x != 0 else 0)


@compiled
def shifted(x: Int, shift: Int) -> Int:
    """Plain shift: to the right for a positive one, to the left for a negative one."""
    return x >> shift if shift >= 0 else x << -shift


@compiled
def norm16(x: Int) -> tuple[Int, Int]:
    """Mantissa in [2^15, 2^16) and exponent; truncates."""
    exponent = length(x) - 16
    return shifted(x, exponent), exponent


@compiled
def recip(mantissa: Int) -> Int:
    """About 2^31 / mantissa for mantissas in [2^15, 2^16)."""
    first = RECIPROCAL[(mantissa >> 8) - 128]
    return (first * ((ONE << 32) - mantissa * first)) >> 31


@compiled
def rsqrt(x: Int) -> tuple[Int, Int]:
    """(y, e): 1 / sqrt(x) is about y * 2^-e, for x >= 1."""
    k = length(x) - 31
    k -= k & 1
    v = shifted(x, k)
    first = RSQRT[(v >> 24) - 64]
    t = ((v >> 16) * first * first) >> 16
    return (first * (3 * (ONE << 30) - t)) >> 31, 31 + (k >> 1)


@compiled
def exp2n(d: Int) -> Int:
    """2^-d in units of 2^-23; d >= 0 in units of 2^-16."""
    n = d >> 16
    if n > 24:
        return 0
    i = (d >> 8) & 255
    low = EXP2[i]
    return rounded(low + (((EXP2[i + 1] - low) * (d & 255)) >> 8), n)


@compiled
def sigmoid(gate: Int) -> Int:
    """In units of 2^-16; ``gate`` with 16 fraction bits."""
    x = min(abs(gate), np.int64(16 << 16))
    i = x >> 10
    low = SIGMOID[i]
    p = low
    if i < 1024:
        p = low + (((SIGMOID[i + 1] - low) * (x & 1023)) >> 10)
    return p if gate >= 0 else 65536 - p
