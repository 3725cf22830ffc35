"""Deals matrices and gammas out over memory ports: each port's stream, byte for byte.

Stream of a matrix on a port, in beats of 64 bytes; width filled up to a multiple of 64:

- Blocks of up to 8 local tiles. First one beat of row mantissas, uint16, tile u row r at byte
  8u + 2r; for a head with target ids two beats of those, uint32, at word 4u + r; then the weights,
  tile after tile, in pairs of beats A and B.
- int4: a pair is 64 columns of the tile's 4 rows, A the lower 32. A row has 16 bytes of a beat, the
  even column in the low nibble. Before each 8 pairs of a block one beat of group scales, int8:
  byte 8 * pair + 4 * (1 for B) + row. A full block has no short chunk of pairs.
- int8: a pair is 32 columns of the tile's 4 rows, A has rows 0 and 1, 32 bytes each.

Gamma: 4 int16 a local tile, 8 tiles a beat. The RoPE table lies on every port, each position's row
filled up to whole beats.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpga.program.layout import BEAT_BYTES, GROUP_COLUMNS, Int4Matrix, Int8Matrix

TILE_ROWS: Final = 4
BLOCK_TILES: Final = 8
CHUNK_PAIRS: Final = 8
WIDTH_UNIT: Final = 64

Bytes = NDArray[np.uint8]


def deal_matrix(
    matrix: Int4Matrix | Int8Matrix, num_ports: int, ids_o: NDArray[np.uint32] | None = None
) -> Bytes:
    """Every port's stream of a matrix, uint8 [port, byte]. ``ids_o``: target id of each row."""
    quant_ptrw = _tiles(matrix.quant_oi, num_ports)
    mantissa_ptr = _tiles(matrix.mantissa_o[:, None], num_ports)[..., 0]
    scale_ptrg = None
    if isinstance(matrix, Int4Matrix):
        scale_ptrg = _tiles(matrix.scale_og, num_ports)
        scale_ptrg = _fill_last(scale_ptrg, WIDTH_UNIT // GROUP_COLUMNS)
    quant_ptrw = _fill_last(quant_ptrw, WIDTH_UNIT)
    ids_ptr = None if ids_o is None else _tiles(ids_o[:, None], num_ports)[..., 0]
    tiles = quant_ptrw.shape[1]
    whole = tiles // BLOCK_TILES * BLOCK_TILES

    def part(array: NDArray[Any] | None, begin: int, end: int) -> NDArray[Any] | None:
        return None if array is None else array[:, begin:end]

    parts = [
        _blocks(
            quant_ptrw[:, begin:end],
            part(scale_ptrg, begin, end),
            mantissa_ptr[:, begin:end],
            part(ids_ptr, begin, end),
        )
        for begin, end in ((0, whole), (whole, tiles))
        if end > begin
    ]
    return np.concatenate(parts, axis=1)


def deal_gamma(gamma_d: NDArray[np.int16], num_ports: int) -> Bytes:
    """Every port's gammas, uint8 [port, byte]."""
    tiles_ptr = _tiles(gamma_d.astype("<i2")[:, None], num_ports)[..., 0]
    raw = np.ascontiguousarray(tiles_ptr).view(np.uint8).reshape(num_ports, -1)
    return np.pad(raw, ((0, 0), (0, -raw.shape[1] % BEAT_BYTES)))


def _tiles(rows: NDArray[Any], num_ports: int) -> NDArray[Any]:
    """Rows dealt to ports in tiles: [port, local tile, 4, ...]."""
    missing = -rows.shape[0] % (TILE_ROWS * num_ports)
    filled = np.pad(rows, ((0, missing), (0, 0)))
    return filled.reshape(-1, num_ports, TILE_ROWS, rows.shape[1]).swapaxes(0, 1)


def _fill_last(array: NDArray[Any], unit: int) -> NDArray[Any]:
    missing = -array.shape[-1] % unit
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])


def _blocks(
    quant_ptrw: NDArray[Any],
    scale_ptrg: NDArray[Any] | None,
    mantissa_ptr: NDArray[Any],
    ids_ptr: NDArray[Any] | None,
) -> Bytes:
    """Blocks of equally many tiles, at most 8: uint8 [port, byte]."""
    ports, tiles = quant_ptrw.shape[:2]
    size = min(tiles, BLOCK_TILES)
    shape = (ports, tiles // size, size)
    quant = quant_ptrw.reshape(*shape, TILE_ROWS, -1)
    parts = [_header(mantissa_ptr.reshape(*shape, TILE_ROWS), "<u2", 1)]
    if ids_ptr is not None:
        parts.append(_header(ids_ptr.reshape(*shape, TILE_ROWS), "<u4", 2))
    if scale_ptrg is None:
        parts.append(_int8_beats(quant))
    else:
        parts.append(_int4_beats(quant, scale_ptrg.reshape(*shape, TILE_ROWS, -1)))
    return np.concatenate(parts, axis=2).reshape(ports, -1)


def _header(values_pbtr: NDArray[Any], dtype: str, num_beats: int) -> Bytes:
    ports, blocks = values_pbtr.shape[:2]
    raw = np.ascontiguousarray(values_pbtr.astype(dtype)).view(np.uint8).reshape(ports, blocks, -1)
    filled = np.pad(raw, ((0, 0), (0, 0), (0, num_beats * BEAT_BYTES - raw.shape[2])))
    return filled.reshape(ports, blocks, num_beats, BEAT_BYTES)


def _int8_beats(quant_pbtrw: NDArray[np.int8]) -> Bytes:
    """[port, block, beat, byte]: two rows of 32 columns a beat."""
    ports, blocks, tiles, _, width = quant_pbtrw.shape
    halves = quant_pbtrw.reshape(ports, blocks, tiles, 2, 2, width // GROUP_COLUMNS, GROUP_COLUMNS)
    beats = halves.transpose(0, 1, 2, 5, 3, 4, 6).reshape(ports, blocks, -1, BEAT_BYTES)
    return beats.view(np.uint8)


def _int4_beats(quant_pbtrw: NDArray[np.int8], scale_pbtrg: NDArray[np.int8]) -> Bytes:
    """[port, block, beat, byte]: a beat of scales before each 8 pairs of weight beats."""
    ports, blocks, tiles, rows, width = quant_pbtrw.shape
    nibbles = (quant_pbtrw & 15).astype(np.uint8).reshape(ports, blocks, tiles, rows, -1, 2)
    packed = nibbles[..., 0] | nibbles[..., 1] << 4
    groups = packed.reshape(ports, blocks, tiles, rows, -1, GROUP_COLUMNS // 2)
    beats = groups.transpose(0, 1, 2, 4, 3, 5).reshape(ports, blocks, -1, BEAT_BYTES)
    scales = scale_pbtrg.transpose(0, 1, 2, 4, 3).reshape(ports, blocks, -1).view(np.uint8)
    pairs = tiles * width // WIDTH_UNIT
    chunks = -(-pairs // CHUNK_PAIRS)
    stream = np.zeros((ports, blocks, chunks, 1 + 2 * CHUNK_PAIRS, BEAT_BYTES), dtype=np.uint8)
    stream[:, :, :, 0] = _filled(scales, chunks * BEAT_BYTES).reshape(ports, blocks, chunks, -1)
    flat = _filled(beats.reshape(ports, blocks, -1), chunks * 2 * CHUNK_PAIRS * BEAT_BYTES)
    stream[:, :, :, 1:] = flat.reshape(ports, blocks, chunks, 2 * CHUNK_PAIRS, BEAT_BYTES)
    return stream.reshape(ports, blocks, -1, BEAT_BYTES)[:, :, : 2 * pairs + chunks]


def _filled(array: NDArray[Any], size: int) -> NDArray[Any]:
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, size - array.shape[-1])])
