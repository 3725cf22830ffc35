"""What host and card write to each other comes back as it was; damage is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga.driver import buffers, placement
from fpga.driver.buffers import CardLimits, Command, KvGeometry, LaneCommand
from fpga.program.layout import BEAT_BYTES, KvLayout
from hetero.core.errors import CardError

LIMITS = CardLimits(num_ports=3, max_lanes=4, max_read_tokens=5, max_draft_tokens=7)
KV = KvGeometry(
    num_slots=6, context_tokens=64, slot_beats=9, head_beats=8, data_beats=3, scale_beats=1
)
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
)


@given(WORD, st.lists(LANE, max_size=LIMITS.max_lanes).map(tuple))
def test_commands_survive_the_way(sequence, lanes):
    command = Command(sequence=sequence, kv=KV, lanes=lanes)
    packed = buffers.encode_command(command, LIMITS)
    assert len(packed) <= LIMITS.command_bytes
    assert buffers.decode_command(packed.ljust(LIMITS.command_bytes, b"\0"), LIMITS) == command


TOKENS = st.lists(WORD, max_size=LIMITS.max_draft_tokens)


@given(WORD, st.lists(TOKENS, max_size=LIMITS.max_lanes), st.integers(0, 2**64 - 1))
def test_results_survive_the_way(sequence, drafts, cycles):
    lanes = tuple(
        buffers.LaneOutcome(
            slot=i, token_ids=tuple(t), confidence=tuple(j % 256 for j in range(len(t)))
        )
        for i, t in enumerate(drafts)
    )
    header = buffers.ResultHeader(
        sequence=sequence, num_lanes=len(lanes), cycles=cycles, beats_read=2**40, passes=3,
        build_hash=bytes(range(16)), artefact_sha256=bytes(range(32)),
    )  # fmt: skip
    result = buffers.Result(header=header, lanes=lanes)
    packed = buffers.encode_result(result, LIMITS)
    data = np.frombuffer(packed.ljust(LIMITS.result_bytes, b"\0"), dtype=np.uint8)
    assert buffers.decode_result(data, LIMITS) == result


def test_program_header_is_one_beat():
    header = buffers.ProgramHeader(
        isa_version=1, arithmetic_version=2, num_instructions=3, image_beats=4, vector_words=5,
        sha256=bytes(range(32)),
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
    command = Command(sequence=1, kv=KV, lanes=(LaneCommand(**{**values, **lane}),))
    return bytearray(buffers.encode_command(command, LIMITS))


@pytest.mark.parametrize(
    "word, value, fault",
    [
        (1, 99, "interface version 99"),
        (3, LIMITS.max_lanes + 1, "5 lanes"),
        (16 + 2, 10_000, "lie outside"),
        (16 + 9, 0xFFFFFFFF, "lie outside"),
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
        lanes=(buffers.LaneOutcome(slot=0, token_ids=(), confidence=()),),
    )
    packed = bytearray(buffers.encode_result(result, LIMITS).ljust(LIMITS.result_bytes, b"\0"))
    packed[buffers.RESULT_HEADER_BYTES + 4] = LIMITS.max_draft_tokens + 1
    with pytest.raises(CardError, match="drafted 8 tokens"):
        buffers.decode_result(np.frombuffer(bytes(packed), dtype=np.uint8), LIMITS)


def test_kv_strides_are_whole_beats_of_the_layout():
    layout = KvLayout(num_slots=3, context_tokens=100, num_layers=2, num_kv_heads=2, head_dim=48)
    kv = KvGeometry.of(layout)
    assert kv.slot_beats * BEAT_BYTES == layout.slot_bytes
    assert (kv.head_beats, kv.data_beats) == (layout.head_bytes // 64, layout.data_bytes // 64)


@given(st.binary(min_size=1, max_size=700), st.integers(1, 9))
def test_shares_join_to_the_image(image, num_ports):
    raw = np.frombuffer(image, dtype=np.uint8)
    shares = [placement.share_of(raw, port, num_ports) for port in range(num_ports)]
    assert {share.size for share in shares} == {placement.share_bytes(raw.size, num_ports)}
    joined = placement.join(shares)
    np.testing.assert_array_equal(joined[: raw.size], raw)
    assert not joined[raw.size :].any()


def test_a_beat_lies_at_its_port():
    image = np.arange(6 * BEAT_BYTES, dtype=np.uint16).view(np.uint8)[: 6 * BEAT_BYTES]
    share = placement.share_of(image, 1, 4)
    np.testing.assert_array_equal(share[:BEAT_BYTES], image[BEAT_BYTES : 2 * BEAT_BYTES])
    np.testing.assert_array_equal(share[BEAT_BYTES:], image[5 * BEAT_BYTES :])
