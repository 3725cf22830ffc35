"""What host and card write to each other comes back as it was; damage is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga.driver import buffers
from fpga.driver.buffers import (
    CardLimits,
    Command,
    DraftedToken,
    KvGeometry,
    LaneCommand,
    TopCandidate,
)
from fpga.program.layout import BEAT_BYTES, KvLayout
from fpga.program.port_kv import PortKvLayout
from hetero.core.errors import CardError

LIMITS = CardLimits(num_ports=3, max_lanes=4, max_read_tokens=5, max_draft_tokens=7)
KV = KvGeometry(
    num_slots=6, context_tokens=64, slot_beats=19, layer_beats=9, k_beats=1, v_beats=5,
    record_bytes=96,
)  # fmt: skip
WORD = st.integers(0, 2**32 - 1)
LANE = st.builds(
    LaneCommand,
    slot=WORD,
    start=WORD,
    token_ids=st.lists(WORD, max_size=LIMITS.max_read_tokens).map(tuple),
    num_draft_tokens=WORD,
    output_index=WORD,
    seed=st.integers(0, 2**64 - 1),
    choice_index=WORD,
    inv_temperature=WORD,
    prefix_len=WORD,
    ancestor_mask=WORD,
)


@given(WORD, WORD, WORD, st.lists(st.tuples(LANE, WORD), max_size=LIMITS.max_lanes))
def test_commands_survive_the_way(sequence, program_id, window, lanes):
    """A tail in the lane's own slot is none."""
    lanes = tuple(
        replace(lane, tail_slot=None if tail == lane.slot else tail) for lane, tail in lanes
    )
    command = Command(sequence=sequence, program_id=program_id, kv=KV, lanes=lanes, window=window)
    packed = buffers.encode_command(command, LIMITS)
    assert len(packed) <= LIMITS.command_bytes
    assert buffers.decode_command(packed.ljust(LIMITS.command_bytes, b"\0"), LIMITS) == command


def test_words_of_a_command_lie_where_their_names_say():
    """The tables that SystemVerilog is generated from, against distinct values."""
    lane = LaneCommand(
        slot=101, start=102, token_ids=(7, 8, 9), num_draft_tokens=103, output_index=104,
        seed=105 << 32 | 106, choice_index=107, inv_temperature=108, tail_slot=109,
        prefix_len=110, ancestor_mask=111,
    )  # fmt: skip
    command = Command(sequence=112, program_id=113, kv=KV, lanes=(lane,), window=114)
    words = np.frombuffer(buffers.encode_command(command, LIMITS), dtype="<u4")
    header = dict(zip(buffers.COMMAND_WORDS, words[:16].tolist(), strict=False))
    assert header == {
        "magic": buffers.COMMAND_MAGIC, "interface_version": 2, "sequence": 112, "num_lanes": 1,
        "program_id": 113, "num_slots": 6, "context_tokens": 64, "slot_beats": 19,
        "layer_beats": 9, "k_beats": 1, "v_beats": 5, "window": 114, "record_bytes": 96,
    }  # fmt: skip
    assert dict(zip(buffers.LANE_WORDS, words[16:32].tolist(), strict=False)) == {
        "slot": 101, "tail_slot": 109, "prefix_len": 110, "start": 102, "num_read": 3,
        "num_draft": 103, "output_index": 104, "seed_lo": 106, "seed_hi": 105,
        "choice_index": 107, "inv_temperature": 108, "token_word": 16 * 5, "ancestor_mask": 111,
    }  # fmt: skip
    assert words[16 * 5 :].tolist() == [7, 8, 9]


CANDIDATE = st.builds(TopCandidate, WORD, st.integers(0, 255), st.integers(-(2**31), 2**31 - 1))
TOKEN = st.builds(
    DraftedToken, st.lists(CANDIDATE, min_size=1, max_size=buffers.NUM_TOP).map(tuple)
)
TOKENS = st.lists(TOKEN, max_size=LIMITS.max_draft_tokens)


@given(WORD, st.lists(TOKENS, max_size=LIMITS.max_lanes), st.integers(0, 2**64 - 1))
def test_results_survive_the_way(sequence, drafts, cycles):
    lanes = tuple(buffers.LaneOutcome(slot=i, tokens=tuple(t)) for i, t in enumerate(drafts))
    header = buffers.ResultHeader(
        sequence=sequence, num_lanes=len(lanes), cycles=cycles, beats_read=2**40, passes=3,
        build_hash=bytes(range(16)), artefact_sha256=bytes(range(32)),
    )  # fmt: skip
    result = buffers.Result(header=header, lanes=lanes)
    packed = buffers.encode_result(result, LIMITS)
    data = np.frombuffer(packed.ljust(LIMITS.result_bytes, b"\0"), dtype=np.uint8)
    assert buffers.decode_result(data, LIMITS) == result


def one_token(*candidates):
    token = DraftedToken(tuple(TopCandidate(*c) for c in candidates))
    result = buffers.Result(
        header=buffers.ResultHeader(sequence=1, num_lanes=1),
        lanes=(buffers.LaneOutcome(slot=0, tokens=(token,)),),
    )
    return bytearray(buffers.encode_result(result, LIMITS).ljust(LIMITS.result_bytes, b"\0"))


def test_words_of_a_token_lie_where_their_names_say():
    packed = one_token((70, 200, 5), (71, 30, -6), (72, 20, 2**31 - 1))
    at = buffers.RESULT_HEADER_BYTES + BEAT_BYTES
    words = np.frombuffer(packed[at : at + BEAT_BYTES], dtype="<i4").tolist()
    assert dict(zip(buffers.TOKEN_WORDS, words, strict=True)) == {
        "token_id": 70, "confidence": 200, "num_top": 3, "zero": 0,
        "top_id_0": 70, "top_id_1": 71, "top_id_2": 72, "top_id_3": 0,
        "top_confidence_0": 200, "top_confidence_1": 30, "top_confidence_2": 20,
        "top_confidence_3": 0,
        "top_logit_0": 5, "top_logit_1": -6, "top_logit_2": 2**31 - 1, "top_logit_3": 0,
    }  # fmt: skip


@pytest.mark.parametrize("word, value", [(0, 71), (1, 9), (2, 0), (2, 5)])
def test_a_token_that_contradicts_its_candidates_is_refused(word, value):
    packed = one_token((70, 200, 5))
    at = buffers.RESULT_HEADER_BYTES + BEAT_BYTES + 4 * word
    packed[at : at + 4] = value.to_bytes(4, "little")
    with pytest.raises(CardError, match="not to be trusted"):
        buffers.decode_result(np.frombuffer(bytes(packed), dtype=np.uint8), LIMITS)


def test_program_header_is_one_beat():
    header = buffers.ProgramHeader(
        isa_version=1, arithmetic_version=2, num_instructions=3, port_beats=4, vector_words=5,
        num_ports=6, sha256=bytes(range(32)),
    )  # fmt: skip
    packed = buffers.encode_program(header, b"instructions")
    assert packed[BEAT_BYTES:] == b"instructions"
    assert buffers.decode_program_header(packed[:BEAT_BYTES]) == header


def test_zeros_are_no_buffer():
    with pytest.raises(CardError, match="synchronised"):
        buffers.decode_result(np.zeros(LIMITS.result_bytes, dtype=np.uint8), LIMITS)
    with pytest.raises(CardError, match="synchronised"):
        buffers.decode_command(bytes(LIMITS.command_bytes), LIMITS)


def _packed(**lane):
    values = dict(
        slot=0, start=0, token_ids=(1,), num_draft_tokens=1, output_index=0, seed=1,
        choice_index=0, inv_temperature=0,
    )  # fmt: skip
    command = Command(sequence=1, program_id=1, kv=KV, lanes=(LaneCommand(**{**values, **lane}),))
    return bytearray(buffers.encode_command(command, LIMITS))


@pytest.mark.parametrize(
    "word, value, fault",
    [
        (1, 99, "interface version 99"),
        (3, LIMITS.max_lanes + 1, "5 lanes"),
        (16 + 4, 10_000, "lie outside"),
        (16 + 11, 0xFFFFFFFF, "lie outside"),
        (16 + 11, 16 * 5 - 1, "lie outside"),
    ],
)
def test_damaged_commands_are_refused(word, value, fault):
    packed = _packed()
    packed[4 * word : 4 * word + 4] = value.to_bytes(4, "little")
    with pytest.raises(CardError, match=fault):
        buffers.decode_command(bytes(packed), LIMITS)


def test_a_result_with_too_many_tokens_is_refused():
    result = buffers.Result(
        header=buffers.ResultHeader(sequence=1, num_lanes=1),
        lanes=(buffers.LaneOutcome(slot=0, tokens=()),),
    )
    packed = bytearray(buffers.encode_result(result, LIMITS).ljust(LIMITS.result_bytes, b"\0"))
    packed[buffers.RESULT_HEADER_BYTES + 4] = LIMITS.max_draft_tokens + 1
    with pytest.raises(CardError, match="drafted 8 tokens"):
        buffers.decode_result(np.frombuffer(bytes(packed), dtype=np.uint8), LIMITS)


@pytest.mark.parametrize("num_ports", [1, 4, 32])
def test_kv_strides_are_those_of_the_ports(num_ports):
    layout = KvLayout(num_slots=3, context_tokens=100, num_layers=2, num_kv_heads=2, head_dim=48)
    kv, port = KvGeometry.of(layout, num_ports), PortKvLayout.of(layout, num_ports)
    assert kv.port_bytes == port.share_bytes
    assert (kv.k_beats, kv.v_beats, kv.layer_beats) == (
        port.k_beats, port.v_beats, port.layer_beats,
    )  # fmt: skip
    assert kv.record_bytes == 96
