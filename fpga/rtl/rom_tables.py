"""The fixed tables as SystemVerilog macros.

As ROM:       logic [`TABLE_EXP2_BITS-1:0] rom [0:`TABLE_EXP2_ENTRIES-1];
              initial begin `TABLE_EXP2_INIT(rom) end
As a vector,  localparam [`TABLE_EXP2_ENTRIES*`TABLE_EXP2_BITS-1:0] EXP2 = `TABLE_EXP2;
entry 0 lowest

Macros and not parameters, so that including the file costs nothing and warns of nothing. Verilator
5.006 refuses macros of more than 40,000 tokens, so a long table is a file of statements instead:

              logic signed [`TABLE_GUMBEL_LOWER_BITS-1:0] gumbel_lower
                [0:`TABLE_GUMBEL_LOWER_ENTRIES-1];
              initial begin
                `include "gumbel_lower.svh"
              end
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.program import tables
from hetero.core import noise

MAX_MACRO_BITS: Final = 32_768


@dataclass(frozen=True, slots=True)
class RomTable:
    """``bits``: width of an entry; ``entries_n`` int64, two's complement where any is negative."""

    name: str
    bits: int
    entries_n: NDArray[np.int64]
    description: str

    def __post_init__(self) -> None:
        low = -(1 << (self.bits - 1)) if self.signed else 0
        high = 1 << (self.bits - int(self.signed))
        if self.entries_n.min() < low or self.entries_n.max() >= high:
            raise ValueError(f"table {self.name}: an entry needs more than {self.bits} bits.")

    @property
    def is_long(self) -> bool:
        """Whether it is too long for a macro."""
        return self.bits * self.entries_n.size > MAX_MACRO_BITS

    @property
    def signed(self) -> bool:
        """Whether entries are two's complement."""
        return bool(self.entries_n.min() < 0)

    def hex_entries(self) -> list[str]:
        """Sized numbers, entry 0 first."""
        mask = (1 << self.bits) - 1
        digits = -(-self.bits // 4)
        return [f"{self.bits}'h{int(x) & mask:0{digits}x}" for x in self.entries_n]


def rom_tables() -> list[RomTable]:
    """Every table of the arithmetic (docs/arithmetic.md, docs/noise.md).

    ``_STEP``: from an entry to the next one, so that one read serves an interpolation.
    """
    sigmoid, exp2, gumbel = tables.SIGMOID, tables.EXP2, noise.GUMBEL_TABLE.astype(np.int64)
    return [
        RomTable("RECIPROCAL", 16, tables.RECIPROCAL, "fpga.program.tables.RECIPROCAL"),
        RomTable("RSQRT", 16, tables.RSQRT, "fpga.program.tables.RSQRT"),
        RomTable("EXP2", 24, exp2, "fpga.program.tables.EXP2"),
        RomTable("EXP2_STEP", 16, np.diff(exp2), "EXP2[i+1] - EXP2[i], signed"),
        # Its last entry repeats the one before, so the hardware does without: 1,024 fill a memory.
        RomTable("SIGMOID", 17, sigmoid[:-1], "fpga.program.tables.SIGMOID without the last"),
        RomTable("SIGMOID_STEP", 9, np.diff(sigmoid), "SIGMOID[i+1] - SIGMOID[i]"),
        RomTable("GUMBEL_LOWER", 26, gumbel[0], "hetero.core.noise.GUMBEL_TABLE[0], signed"),
        RomTable("GUMBEL_UPPER", 26, gumbel[1], "hetero.core.noise.GUMBEL_TABLE[1], signed"),
    ]


def verilog(table: RomTable) -> Iterator[str]:
    """Macros of one table."""
    entries = table.hex_entries()
    name = f"TABLE_{table.name}"
    yield f"// {table.description}"
    yield f"`define {name}_BITS {table.bits}"
    yield f"`define {name}_ENTRIES {len(entries)}"
    if not table.is_long:
        yield f"`define {name} {{ {_continued(entries[::-1], ', ')} }}"
        yield f"`define {name}_INIT(rom) \\"
        yield _continued([f"rom[{i}] = {entry};" for i, entry in enumerate(entries)], " ")


def statements(table: RomTable) -> Iterator[str]:
    """The same for a table too long for a macro: the body of an initial block."""
    for i, entry in enumerate(table.hex_entries()):
        yield f"{table.name.lower()}[{i}] = {entry};"


def _continued(items: list[str], separator: str) -> str:
    """Eight items a line, the lines joined as a macro needs it."""
    rows = [separator.join(items[i : i + 8]) for i in range(0, len(items), 8)]
    return f"{separator.strip()} \\\n".join(rows)
