"""The fixed tables of the arithmetic, made from exact or 40-digit arithmetic (docs/arithmetic.md).

They are part of the specification: on a card they are ROMs. No float library has a say in them,
so every machine makes the same bits; their hash goes into each artefact.
"""

import hashlib
from decimal import Decimal, localcontext
from math import isqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

ARITHMETIC_VERSION: Final = 1

RECIPROCAL_ENTRIES: Final = 128
RSQRT_ENTRIES: Final = 192
EXP2_SEGMENTS: Final = 256
EXP2_FRAC: Final = 23
SIGMOID_LIMIT: Final = 16
"""sigmoid(x) is taken as 1 from here on."""
SIGMOID_SEGMENTS: Final = 1024
SIGMOID_FRAC: Final = 16


def _nearest(value: Decimal) -> int:
    return int(value.to_integral_value(rounding="ROUND_HALF_EVEN"))


def _reciprocal() -> NDArray[np.int64]:
    """2^31 / x at the middle of [2^15 + 256 i, 2^15 + 256 (i + 1))."""
    middles = [(1 << 15) + 256 * i + 128 for i in range(RECIPROCAL_ENTRIES)]
    return np.array([((1 << 32) // m + 1) >> 1 for m in middles], dtype=np.int64)


def _rsqrt() -> NDArray[np.int64]:
    """2^31 / sqrt(x) at the middle of [2^30 + 2^24 i, 2^30 + 2^24 (i + 1))."""
    middles = [(1 << 30) + (i << 24) + (1 << 23) for i in range(RSQRT_ENTRIES)]
    return np.array([(isqrt((1 << 64) // m) + 1) >> 1 for m in middles], dtype=np.int64)


def _exp2() -> NDArray[np.int64]:
    """2^(-i / 256) in units of 2^-23, i = 0..256."""
    with localcontext() as context:
        context.prec = 40
        ln2 = Decimal(2).ln()
        steps = range(EXP2_SEGMENTS + 1)
        values = [(-ln2 * i / EXP2_SEGMENTS).exp() * 2**EXP2_FRAC for i in steps]
    return np.array([_nearest(v) for v in values], dtype=np.int64)


def _sigmoid() -> NDArray[np.int64]:
    """1 / (1 + exp(-i / 64)) in units of 2^-16, i = 0..1024."""
    with localcontext() as context:
        context.prec = 40
        steps = [Decimal(i * SIGMOID_LIMIT) / SIGMOID_SEGMENTS for i in range(SIGMOID_SEGMENTS + 1)]
        values = [2**SIGMOID_FRAC / (1 + (-x).exp()) for x in steps]
    return np.array([_nearest(v) for v in values], dtype=np.int64)


def _frozen(table: NDArray[np.int64]) -> NDArray[np.int64]:
    table.setflags(write=False)
    return table


RECIPROCAL: Final = _frozen(_reciprocal())
RSQRT: Final = _frozen(_rsqrt())
EXP2: Final = _frozen(_exp2())
SIGMOID: Final = _frozen(_sigmoid())


def _sha256() -> str:
    digest = hashlib.sha256()
    for table in (RECIPROCAL, RSQRT, EXP2, SIGMOID):
        digest.update(table.astype("<i8").tobytes())
    return digest.hexdigest()


TABLES_SHA256: Final = _sha256()
