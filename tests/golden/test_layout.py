"""Packing is lossless and lies as docs/draft-program.md says."""

import numpy as np
import pytest

from fpga.program import layout
from fpga.program.layout import Int4Matrix, Int8Matrix, KvLayout

SHAPES = [(1, 32), (4, 32), (5, 96), (64, 576), (130, 64)]


def _int4(rows, width, seed=0):
    rng = np.random.default_rng(seed)
    return Int4Matrix(
        rng.integers(-8, 8, (rows, width)).astype(np.int8),
        rng.integers(-127, 128, (rows, width // 32)).astype(np.int8),
        rng.integers(0, 1 << 16, rows).astype(np.uint16),
    )


@pytest.mark.parametrize("rows, width", SHAPES)
def test_int4_round_trips(rows, width):
    matrix = _int4(rows, width)
    region = layout.pack_int4(matrix)
    assert len(region) == layout.int4_bytes(rows, width)
    back = layout.unpack_int4(np.frombuffer(region + b"\xff" * 99, np.uint8), rows, width)
    for ours, theirs in zip(matrix, back, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("rows, width", SHAPES)
def test_int8_round_trips(rows, width):
    rng = np.random.default_rng(1)
    quant = rng.integers(-127, 128, (rows, width)).astype(np.int8)
    matrix = Int8Matrix(quant, rng.integers(0, 1 << 16, rows).astype(np.uint16))
    region = layout.pack_int8(matrix)
    assert len(region) == layout.int8_bytes(rows, width)
    back = layout.unpack_int8(np.frombuffer(region + b"\xff" * 99, np.uint8), rows, width)
    for ours, theirs in zip(matrix, back, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_int4_bytes_lie_where_the_document_says():
    matrix = _int4(8, 96)
    region = np.frombuffer(layout.pack_int4(matrix), np.uint8)
    beats = region.reshape(-1, 64)
    assert len(beats) == 1 + 1 + 2 * 3  # mantissas, scales, two tiles of three groups
    assert beats[0, :16].view("<u2").tolist() == matrix.mantissa_o.tolist()
    scales = beats[1].view(np.int8)
    # Row 6 (tile 1, row 2), group 1: weight beat 4, row 2 of it.
    assert scales[4 * 4 + 2] == matrix.scale_og[6, 1]
    byte = beats[2 + 4, 2 * 16 + 5]
    assert byte & 15 == matrix.quant_oi[6, 32 + 10] & 15
    assert byte >> 4 == matrix.quant_oi[6, 32 + 11] & 15


def test_scale_beats_come_before_every_16_weight_beats():
    matrix = _int4(64, 64)  # 16 tiles x 2 groups = 32 weight beats
    beats = np.frombuffer(layout.pack_int4(matrix), np.uint8).reshape(-1, 64)
    assert len(beats) == 2 + 2 * 17
    assert beats[2 + 17].view(np.int8)[0] == matrix.scale_og[32, 0]


def test_kv_heads_do_not_overlap_and_fill_their_slot():
    kv = KvLayout(num_slots=3, context_tokens=50, num_layers=2, num_kv_heads=3, head_dim=16)
    places = [(slot, layer, head) for slot in range(3) for layer in range(2) for head in range(3)]
    offsets = [kv.head_offset(*place) for place in places]
    assert offsets == sorted(offsets)
    assert min(np.diff(offsets)) >= kv.head_bytes
    assert offsets[-1] + kv.head_bytes <= kv.total_bytes
    assert all(offset % layout.BEAT_BYTES == 0 for offset in offsets)
    assert kv.token_bytes == 2 * 3 * 2 * (16 + 4)
