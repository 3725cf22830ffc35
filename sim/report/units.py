"""Which unit is busy when: what the bits of the RTL's trace mean (fpga/rtl/counters.sv)."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.program import isa

UNITS: Final[Mapping[str, int]] = {
    "a beat arrives on every port": 1,
    "a beat arrives on some port": 0,
    "an array takes a beat": 2,
    "MATMUL or HEAD in execution": 3,
    "of it: waits for memory": 12,
    "vector unit": 4,
    "ROPE_KV": 5,
    "ATTENTION": 6,
    "EMBED": 7,
    "DRAW": 8,
    "between instructions": 9,
    "reader waits for KV writes": 10,
}
"""Name -> bit of the trace's first word."""

OPCODE_NAMES: Final[Mapping[int, str]] = {
    kind.opcode: kind.__name__ for kind in isa.INSTRUCTION_TYPES
}


def busy_share(trace: NDArray[np.uint32]) -> dict[str, float]:
    """Share of the trace's cycles in which each unit is busy."""
    return {name: float(np.mean(_bit(trace, bit))) for name, bit in UNITS.items()}


def binned(trace: NDArray[np.uint32], bins: int) -> dict[str, NDArray[np.float64]]:
    """The same over equal parts of the trace: at most ``bins`` of them."""
    edges = np.linspace(0, len(trace), min(bins, len(trace)) + 1).astype(np.int64)
    sizes = np.diff(edges)
    return {
        name: np.add.reduceat(_bit(trace, bit).astype(np.int64), edges[:-1]) / sizes
        for name, bit in UNITS.items()
    }


def cycles_by_instruction(trace: NDArray[np.uint32]) -> dict[str, int]:
    """Cycles in which each kind of instruction was the one in execution."""
    opcode, count = np.unique(trace[:, 1] >> 24, return_counts=True)
    return {
        OPCODE_NAMES.get(int(code), f"opcode {code}"): int(n)
        for code, n in zip(opcode, count, strict=True)
    }


def _bit(trace: NDArray[np.uint32], bit: int) -> NDArray[np.uint32]:
    return trace[:, 0] >> np.uint32(bit) & np.uint32(1)
