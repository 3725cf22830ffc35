"""From cells of a Xilinx netlist to the resources that a device has."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from hetero.core.errors import ConfigError

# LUTs that a memory or shift register in a SLICEM takes (UG574, UltraScale CLB User Guide).
LUT_MEMORIES: Final[Mapping[str, int]] = {
    "SRL16E": 1, "SRLC32E": 1, "RAM32X1S": 1, "RAM32X1D": 2, "RAM64X1S": 1, "RAM64X1D": 2,
    "RAM128X1S": 2, "RAM128X1D": 4, "RAM256X1S": 4, "RAM256X1D": 8, "RAM512X1S": 8,
    "RAM32M": 4, "RAM64M": 4, "RAM32M16": 8, "RAM64M8": 8, "RAM64X8SW": 8,
}  # fmt: skip
LUTS: Final = frozenset(f"LUT{inputs}" for inputs in range(1, 7))
FLIP_FLOPS: Final = frozenset({"FDRE", "FDSE", "FDCE", "FDPE"})
# Wide multiplexers come with the LUTs of a slice; INV goes into its load's LUT.
FREE: Final = frozenset({"MUXF7", "MUXF8", "MUXF9", "INV", "BUFG"})


@dataclass(frozen=True, slots=True)
class Resources:
    """Counts. ``lut_memory`` is part of ``lut``; ``carry``: carry chains, in pieces of four bits,
    which come with a slice's LUTs; ``bram18``: halves of a 36 kbit block.
    """

    lut: int = 0
    lut_memory: int = 0
    carry: int = 0
    ff: int = 0
    dsp: int = 0
    bram18: int = 0
    uram: int = 0

    def __add__(self, other: "Resources") -> "Resources":
        mine, its = asdict(self), asdict(other)
        return Resources(**{name: mine[name] + its[name] for name in mine})

    def __mul__(self, times: int) -> "Resources":
        return Resources(**{name: times * count for name, count in asdict(self).items()})

    @property
    def bram36(self) -> float:
        """36 kbit blocks, when every two halves share one."""
        return self.bram18 / 2


def count_cells(cells: Mapping[str, int]) -> Resources:
    """Resources of a netlist's cells. ConfigError for a cell that isn't in a list above."""
    total = Resources()
    for cell, count in cells.items():
        total += _resources_of(cell) * count
    return total


def _resources_of(cell: str) -> Resources:
    if cell in LUTS:
        return Resources(lut=1)
    if cell in LUT_MEMORIES:
        return Resources(lut=LUT_MEMORIES[cell], lut_memory=LUT_MEMORIES[cell])
    if cell in FLIP_FLOPS:
        return Resources(ff=1)
    known = {
        "CARRY4": Resources(carry=1),
        "CARRY8": Resources(carry=2),
        "DSP48E2": Resources(dsp=1),
        "RAMB18E2": Resources(bram18=1),
        "RAMB36E2": Resources(bram18=2),
        "URAM288": Resources(uram=1),
    }
    if cell in known:
        return known[cell]
    if cell in FREE:
        return Resources()
    raise ConfigError(
        f"yosys: cell {cell} is in no list: add what it takes to fpga/synth/cells.py."
    )
