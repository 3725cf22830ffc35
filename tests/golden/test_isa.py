"""The instruction encoding round-trips and refuses what it never writes."""

import dataclasses
import struct

import pytest

from fpga.program import isa
from hetero.core.errors import ArtefactError


def _example(kind):
    names = isa.operand_names(kind)
    values = {name: 1000 * i + kind.opcode for i, name in enumerate(names, start=1)}
    return kind(sampled_only=kind.opcode % 2 == 1, **values)


@pytest.mark.parametrize("kind", isa.INSTRUCTION_TYPES, ids=lambda kind: kind.__name__)
def test_every_instruction_round_trips(kind):
    example = _example(kind)
    encoded = isa.encode(example)
    assert len(encoded) == isa.INSTRUCTION_BYTES
    assert isa.decode(encoded) == example


def test_encoding_is_as_documented():
    quant = isa.Quant(in_vec=5, width=64, in_frac=16, sampled_only=True)
    assert isa.encode(quant) == bytes.fromhex("03010000050000004000000010000000") + bytes(48)


def test_opcodes_are_their_place_in_the_table():
    assert [kind.opcode for kind in isa.INSTRUCTION_TYPES] == list(range(11))


def test_program_round_trips():
    program = [_example(kind) for kind in isa.INSTRUCTION_TYPES[1:]] + [isa.End()]
    assert isa.decode_program(isa.encode_program(program)) == program


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda data: data[:-1], "whole number"),
        (lambda data: b"", "whole number"),
        (lambda data: data[:-64], "END"),
        (lambda data: b"\x63" + data[1:], "opcode 99"),
        (lambda data: data[:1] + b"\x02" + data[2:], "unknown flag"),
        (lambda data: data[:63] + b"\x01" + data[64:], "stray operand"),
    ],
)
def test_a_damaged_program_is_refused(damage, message):
    data = isa.encode_program([isa.Quant(in_vec=0, width=32, in_frac=16), isa.End()])
    with pytest.raises(ArtefactError, match=message):
        isa.decode_program(damage(data))


def test_an_operand_out_of_range_is_our_bug():
    quant = isa.Quant(in_vec=0, width=32, in_frac=16)
    with pytest.raises(struct.error, match=r"argument out of range|format requires"):
        isa.encode(dataclasses.replace(quant, width=1 << 32))
