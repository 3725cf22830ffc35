"""The numbers that SystemVerilog shares with software: never stale, and read back as they were."""

import re

import numpy as np
import pytest

from fpga.driver import buffers
from fpga.program import isa, tables
from fpga.program.link import LINKED_OPERANDS
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
    for name in ("RECIPROCAL", "RSQRT", "EXP2"):
        assert by_name[name] is getattr(tables, name)
    np.testing.assert_array_equal(by_name["SIGMOID"], tables.SIGMOID[:-1])
    np.testing.assert_array_equal(by_name["GUMBEL_LOWER"], noise.GUMBEL_TABLE[0])
    np.testing.assert_array_equal(by_name["GUMBEL_UPPER"], noise.GUMBEL_TABLE[1])


@pytest.mark.parametrize("name", ["EXP2", "SIGMOID"])
def test_a_step_leads_to_the_next_entry(name):
    by_name = {table.name: table.entries_n for table in rom_tables()}
    table = getattr(tables, name)
    np.testing.assert_array_equal(table[:-1] + by_name[f"{name}_STEP"], table[1:])


def test_the_sigmoid_entry_that_hardware_lacks_repeats_the_one_before():
    assert tables.SIGMOID[-1] == tables.SIGMOID[-2]


def test_an_entry_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="table X: an entry needs more than 4 bits"):
        RomTable("X", 4, np.array([16]), "")


def test_every_opcode_has_its_macro():
    for kind in isa.INSTRUCTION_TYPES:
        assert f"`define OP_{kind.__name__.upper()} 8'd{kind.opcode}\n" in CONTENT["isa.svh"]


def test_operands_are_at_their_bits():
    for kind in isa.INSTRUCTION_TYPES:
        for word, operand in enumerate(LINKED_OPERANDS[kind.opcode], start=1):
            macro = f"`define {kind.__name__.upper()}_{operand.upper()} {32 * word}\n"
            assert macro in CONTENT["isa.svh"]


def _macros(name):
    found = re.findall(rf"`define {name}_(\w+) (\d+)\n", CONTENT["buffers.svh"])
    return {word.lower(): int(bit) for word, bit in found}


def test_buffer_words_are_where_the_driver_writes_them():
    limits = buffers.CardLimits(num_ports=1, max_lanes=1, max_read_tokens=1, max_draft_tokens=1)
    kv = buffers.KvGeometry(
        num_slots=3, context_tokens=4, slot_beats=5, layer_beats=6, k_beats=7, v_beats=8,
        record_bytes=9,
    )  # fmt: skip
    lane = buffers.LaneCommand(
        slot=1, tail_slot=2, prefix_len=3, start=4, token_ids=(5,), num_draft_tokens=6,
        output_index=7, seed=8 | 9 << 32, choice_index=10, inv_temperature=11, ancestor_mask=12,
    )  # fmt: skip
    command = buffers.Command(sequence=1, program_id=2, kv=kv, lanes=(lane,), window=10)
    packed = int.from_bytes(buffers.encode_command(command, limits), "little")

    def word(bit):
        return packed >> bit & 0xFFFFFFFF

    header, lanes = _macros("COMMAND"), _macros("LANE")
    assert f"`define COMMAND_MAGIC_VALUE 32'h{word(0):08X}\n" in CONTENT["buffers.svh"]
    assert [word(header[name]) for name in ("sequence", "program_id", "k_beats")] == [1, 2, 7]
    assert [word(header[name]) for name in ("window", "record_bytes")] == [10, 9]
    names = ("slot", "tail_slot", "start", "num_draft", "seed_hi", "ancestor_mask")
    assert [word(512 + lanes[name]) for name in names] == [1, 2, 4, 6, 9, 12]


def test_result_words_are_where_the_driver_reads_them():
    limits = buffers.CardLimits(num_ports=1, max_lanes=1, max_read_tokens=1, max_draft_tokens=1)
    top = (buffers.TopCandidate(5, 6, -7), buffers.TopCandidate(8, 9, -10))
    lane = buffers.LaneOutcome(slot=4, tokens=(buffers.DraftedToken(top),))
    header = buffers.ResultHeader(sequence=1, num_lanes=1, cycles=2, passes=3, tokens_read=11)
    packed = buffers.encode_result(buffers.Result(header=header, lanes=(lane,)), limits)
    number = int.from_bytes(packed, "little")
    result, token = _macros("RESULT"), _macros("TOKEN")

    def word(bit):
        return number >> bit & 0xFFFFFFFF

    names = ("sequence", "cycles_lo", "passes_lo", "tokens_read_lo")
    assert [word(result[name]) for name in names] == [1, 2, 3, 11]
    at = 3 * 512
    names = ("token_id", "confidence", "num_top", "top_id_1", "top_confidence_1")
    assert [word(at + token[name]) for name in names] == [5, 6, 2, 8, 9]
    assert word(at + token["top_logit_1"]) == 2**32 - 10
