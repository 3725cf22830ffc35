"""Where every byte lies: packed matrices in the weight image, the KV cache in card memory.

The unit is a *beat* of 64 bytes, what a 512-bit port delivers in a cycle (a narrower port takes
it in parts). Every region begins on a 4 KiB boundary, which no AXI burst may cross.

A matrix region:

1. row mantissas, uint16, two bytes a row, filled up to whole beats;
2. the weight beats. int4: a beat is 4 rows x one group of 32 columns, row after row 16 bytes;
   in a byte the even column is the low nibble. The stream goes through the groups of 4 rows,
   then to the next 4 rows. Before every 16 weight beats comes one beat with their 64 group
   scales (int8), so that the reader sees a constant pattern of 17.
   int8: a beat is 2 rows x 32 columns, and there are no group scales.

Rows are filled up with zeros to a multiple of 4 (int8: 2).
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

BEAT_BYTES: Final = 64
REGION_BYTES: Final = 4096
GROUP_COLUMNS: Final = 32
INT4_TILE_ROWS: Final = 4
INT8_TILE_ROWS: Final = 2
CHUNK_BEATS: Final = 16
"""Weight beats that share one beat of group scales."""
VECTOR_ALIGN_WORDS: Final = 128
"""Vectors begin at multiples of this: four elements on each of up to 32 memory ports."""


class Int4Matrix(NamedTuple):
    """W[o, i] = quant * scale[o, i // 32] * mantissa[o] * 2^-row_shift.

    ``quant_oi``: int8 in -8..7. ``scale_og``: int8, its sign included. ``mantissa_o``: uint16.
    """

    quant_oi: NDArray[np.int8]
    scale_og: NDArray[np.int8]
    mantissa_o: NDArray[np.uint16]


class Int8Matrix(NamedTuple):
    """W[o, i] = quant * mantissa[o] * 2^-row_shift. ``quant_oi``: int8 in -127..127."""

    quant_oi: NDArray[np.int8]
    mantissa_o: NDArray[np.uint16]


def align(num_bytes: int, unit_bytes: int = REGION_BYTES) -> int:
    """Round up."""
    return -(-num_bytes // unit_bytes) * unit_bytes


def mantissa_bytes(num_rows: int) -> int:
    """Bytes of the row mantissas at the start of a matrix region."""
    return align(2 * num_rows, BEAT_BYTES)


def int4_weight_beats(num_rows: int, width: int) -> int:
    """Beats of 4 rows x 32 columns, group scales not counted."""
    return -(-num_rows // INT4_TILE_ROWS) * (width // GROUP_COLUMNS)


def int4_bytes(num_rows: int, width: int) -> int:
    """Bytes of an int4 matrix region before alignment."""
    beats = int4_weight_beats(num_rows, width)
    return mantissa_bytes(num_rows) + (beats + -(-beats // CHUNK_BEATS)) * BEAT_BYTES


def int8_bytes(num_rows: int, width: int) -> int:
    """Bytes of an int8 matrix region before alignment."""
    beats = -(-num_rows // INT8_TILE_ROWS) * (width // GROUP_COLUMNS)
    return mantissa_bytes(num_rows) + beats * BEAT_BYTES


def matrix_bytes(num_rows: int, width: int, weight_bits: int) -> int:
    """Bytes of a matrix region before alignment."""
    size = {4: int4_bytes, 8: int8_bytes}[weight_bits]
    return size(num_rows, width)


def _fill_rows(array: NDArray[np.int8], tile_rows: int) -> NDArray[np.int8]:
    missing = -array.shape[0] % tile_rows
    return np.pad(array, ((0, missing), (0, 0)))


def _pack_mantissas(mantissa_o: NDArray[np.uint16]) -> bytes:
    packed = mantissa_o.astype("<u2").tobytes()
    return packed.ljust(mantissa_bytes(mantissa_o.size), b"\0")


def _unpack_mantissas(region: NDArray[np.uint8], num_rows: int) -> NDArray[np.uint16]:
    return region[: 2 * num_rows].view("<u2").astype(np.uint16)


def pack_int4(matrix: Int4Matrix) -> bytes:
    """The region of an int4 matrix. Columns must be a multiple of 32."""
    quant = _fill_rows(matrix.quant_oi, INT4_TILE_ROWS)
    scale = _fill_rows(matrix.scale_og, INT4_TILE_ROWS)
    tiles, groups = quant.shape[0] // INT4_TILE_ROWS, scale.shape[1]
    nibbles = (quant & 15).astype(np.uint8).reshape(tiles, INT4_TILE_ROWS, groups, -1, 2)
    # [tile, row, group, byte] -> a beat is [row, byte] of one tile and group
    packed = nibbles[..., 0] | (nibbles[..., 1] << 4)
    beats = packed.transpose(0, 2, 1, 3).reshape(-1, BEAT_BYTES)
    scales = scale.reshape(tiles, INT4_TILE_ROWS, groups).transpose(0, 2, 1).reshape(-1)
    num_chunks = -(-len(beats) // CHUNK_BEATS)
    stream = np.zeros((num_chunks, CHUNK_BEATS + 1, BEAT_BYTES), dtype=np.uint8)
    stream[:, 0] = (
        np.pad(scales, (0, num_chunks * BEAT_BYTES - scales.size))
        .view(np.uint8)
        .reshape(num_chunks, BEAT_BYTES)
    )
    filled = np.pad(beats, ((0, num_chunks * CHUNK_BEATS - len(beats)), (0, 0)))
    stream[:, 1:] = filled.reshape(num_chunks, CHUNK_BEATS, BEAT_BYTES)
    size = int4_bytes(*matrix.quant_oi.shape) - mantissa_bytes(matrix.quant_oi.shape[0])
    return _pack_mantissas(matrix.mantissa_o) + stream.tobytes()[:size]


def unpack_int4(region: NDArray[np.uint8], num_rows: int, width: int) -> Int4Matrix:
    """The inverse of ``pack_int4``. ``region``: uint8, at least ``int4_bytes`` long."""
    groups = width // GROUP_COLUMNS
    tiles = -(-num_rows // INT4_TILE_ROWS)
    raw = region[mantissa_bytes(num_rows) : int4_bytes(num_rows, width)]
    num_chunks = -(-int4_weight_beats(num_rows, width) // CHUNK_BEATS)
    stream = np.zeros(num_chunks * (CHUNK_BEATS + 1) * BEAT_BYTES, dtype=np.uint8)
    stream[: raw.size] = raw
    chunks = stream.reshape(num_chunks, CHUNK_BEATS + 1, BEAT_BYTES)
    scales = chunks[:, 0].reshape(-1)[: tiles * groups * INT4_TILE_ROWS].view(np.int8)
    scale = scales.reshape(tiles, groups, INT4_TILE_ROWS).transpose(0, 2, 1)
    beats = chunks[:, 1:].reshape(-1, BEAT_BYTES)[: tiles * groups]
    packed = beats.reshape(tiles, groups, INT4_TILE_ROWS, -1).transpose(0, 2, 1, 3)
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(tiles * INT4_TILE_ROWS, width)
    quant = (nibbles.astype(np.int8) ^ 8) - 8
    return Int4Matrix(
        np.ascontiguousarray(quant[:num_rows]),
        np.ascontiguousarray(scale.reshape(-1, groups)[:num_rows]),
        _unpack_mantissas(region, num_rows),
    )


def pack_int8(matrix: Int8Matrix) -> bytes:
    """The region of an int8 matrix. Columns must be a multiple of 32."""
    quant = _fill_rows(matrix.quant_oi, INT8_TILE_ROWS)
    tiled = quant.reshape(-1, INT8_TILE_ROWS, quant.shape[1] // GROUP_COLUMNS, GROUP_COLUMNS)
    return _pack_mantissas(matrix.mantissa_o) + tiled.transpose(0, 2, 1, 3).tobytes()


def unpack_int8(region: NDArray[np.uint8], num_rows: int, width: int) -> Int8Matrix:
    """The inverse of ``pack_int8``. ``region``: uint8, at least ``int8_bytes`` long."""
    raw = region[mantissa_bytes(num_rows) : int8_bytes(num_rows, width)].view(np.int8)
    tiled = raw.reshape(-1, width // GROUP_COLUMNS, INT8_TILE_ROWS, GROUP_COLUMNS)
    quant = tiled.transpose(0, 2, 1, 3).reshape(-1, width)[:num_rows]
    return Int8Matrix(np.ascontiguousarray(quant), _unpack_mantissas(region, num_rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """The KV cache in card memory: slot after slot, in each layer after layer.

    A layer of a slot is, for each KV head in turn: keys int8 [context, head_dim], values int8
    [context, head_dim], key scales, value scales (uint32 [context], mantissa in the low half,
    exponent in the high half). Each of these arrays begins on a beat. Rolling back is a length:
    nothing is ever erased.
    """

    num_slots: int
    context_tokens: int
    num_layers: int
    num_kv_heads: int
    head_dim: int

    @property
    def data_bytes(self) -> int:
        """Keys, or values, of one head."""
        return align(self.context_tokens * self.head_dim, BEAT_BYTES)

    @property
    def scale_bytes(self) -> int:
        """Key scales, or value scales, of one head."""
        return align(4 * self.context_tokens, BEAT_BYTES)

    @property
    def head_bytes(self) -> int:
        """Keys, values and both scales of one head."""
        return 2 * (self.data_bytes + self.scale_bytes)

    @property
    def slot_bytes(self) -> int:
        """One sequence."""
        return align(self.num_layers * self.num_kv_heads * self.head_bytes)

    @property
    def total_bytes(self) -> int:
        """All slots."""
        return self.num_slots * self.slot_bytes

    @property
    def token_bytes(self) -> int:
        """What one token adds to one sequence: the information bytes, no padding."""
        return self.num_layers * self.num_kv_heads * 2 * (self.head_dim + 4)

    def head_offset(self, slot: int, layer: int, kv_head: int) -> int:
        """Byte offset of a head's keys; values, key scales and value scales follow."""
        return slot * self.slot_bytes + (layer * self.num_kv_heads + kv_head) * self.head_bytes
