"""The numbers that SystemVerilog shares with software: never stale, and read back as they were."""

import re

import numpy as np
import pytest

from fpga.program import isa, tables
from fpga.rtl.generate import main, outputs
from fpga.rtl.rom_tables import RomTable, rom_tables
from hetero.core import noise

CONTENT = {path.name: text for path, text in outputs().items()}


def _signed(value: int, bits: int, signed: bool) -> int:
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def test_committed_files_are_what_the_generator_writes():
    assert main(["--check"]) == 0


@pytest.mark.parametrize("table", rom_tables(), ids=lambda t: t.name)
def test_a_table_reads_back_from_its_file(table: RomTable):
    if table.is_long:
        text, array = CONTENT[f"{table.name.lower()}.svh"], table.name.lower()
    else:
        macro = f"`define TABLE_{table.name}_INIT(rom) "
        text, array = CONTENT["tables.svh"].split(macro)[1].split("`define")[0], "rom"
    found = re.findall(rf"{array}\[(\d+)\] = (\d+)'h([0-9a-f]+);", text)
    assert [int(i) for i, _, _ in found] == list(range(table.entries_n.size))
    assert {int(bits) for _, bits, _ in found} == {table.bits}
    values = [_signed(int(value, 16), table.bits, table.signed) for _, _, value in found]
    np.testing.assert_array_equal(values, table.entries_n)


@pytest.mark.parametrize("table", [t for t in rom_tables() if not t.is_long], ids=lambda t: t.name)
def test_the_vector_form_has_entry_0_lowest(table: RomTable):
    body = re.search(rf"`define TABLE_{table.name} {{(.*?)}}", CONTENT["tables.svh"], re.DOTALL)
    entries = [int(x, 16) for x in re.findall(r"'h([0-9a-f]+)", body.group(1))][::-1]
    np.testing.assert_array_equal(
        [_signed(x, table.bits, table.signed) for x in entries], table.entries_n
    )


def test_tables_are_the_arithmetics_own():
    by_name = {table.name: table.entries_n for table in rom_tables()}
    for name in ("RECIPROCAL", "RSQRT", "EXP2", "SIGMOID"):
        assert by_name[name] is getattr(tables, name)
    np.testing.assert_array_equal(by_name["GUMBEL_LOWER"], noise.GUMBEL_TABLE[0])
    np.testing.assert_array_equal(by_name["GUMBEL_UPPER"], noise.GUMBEL_TABLE[1])


def test_a_step_leads_to_the_next_entry():
    by_name = {table.name: table.entries_n for table in rom_tables()}
    for name in ("EXP2", "SIGMOID"):
        np.testing.assert_array_equal(
            by_name[name][:-1] + by_name[f"{name}_STEP"], by_name[name][1:]
        )


def test_an_entry_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="table X: an entry needs more than 4 bits"):
        RomTable("X", 4, np.array([16]), "")


def test_every_opcode_has_its_macro():
    for kind in isa.INSTRUCTION_TYPES:
        assert f"`define OP_{kind.__name__.upper()} 8'd{kind.opcode}\n" in CONTENT["isa.svh"]
