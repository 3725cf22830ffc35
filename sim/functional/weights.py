"""Matrices as the compiled kernels want them, unpacked once for each load of the card.

int4 weights get their group scales multiplied in: |q * scale| <= 8 * 127 fits int16, and the
products of a row add up in int32 because the draft's compiler proved that they do
(docs/arithmetic.md, section 4). That needs neither float BLAS nor a bound of 2^24: measured on one
Zen 3 core, the layer weights of SmolLM2-135M (104 M) take 11.5 ms a token so, 26 ms in float32
BLAS (four times the bytes), 44 ms with scales applied on the fly, 73 ms from packed nibbles.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from fpga.program import isa
from fpga.program.layout import BEAT_BYTES, GROUP_COLUMNS, unpack_int4, unpack_int8


@dataclass(frozen=True, slots=True)
class Matrix:
    """``weight_oi``: int16 (folded int4) or int8. ``mantissa_o``: int64."""

    weight_oi: NDArray[np.int16] | NDArray[np.int8]
    mantissa_o: NDArray[np.int64]

    def first(self, num_rows: int) -> "Matrix":
        """Without filler rows."""
        return Matrix(self.weight_oi[:num_rows], self.mantissa_o[:num_rows])


class Weights(Protocol):
    """What the executor asks of a weight image, dealt out over ports or not."""

    def matrix(self, op: isa.Embed | isa.MatMul | isa.Head) -> Matrix:
        """The matrix that an instruction names."""
        ...

    def gamma(self, op: isa.NormQuant) -> NDArray[np.int16]:
        """Norm weights, int16 [width]."""
        ...

    def rope(self, op: isa.RopeRow, context_tokens: int) -> NDArray[np.int16]:
        """Cosine and sine pairs, int16 [position, head_dim or more]."""
        ...

    def target_ids(self, op: isa.Head) -> NDArray[np.int64]:
        """Target id of each head row."""
        ...


class WeightImage:
    """Typed views of the weight image; a tied matrix is unpacked once."""

    def __init__(self, image: NDArray[np.uint8]) -> None:
        self._image = image
        self._matrices: dict[int, Matrix] = {}

    def matrix(self, op: isa.Embed | isa.MatMul | isa.Head) -> Matrix:
        """The matrix that an instruction names; embeddings are int8."""
        if op.weight_beat not in self._matrices:
            bits = 8 if isinstance(op, isa.Embed) else op.weight_bits
            region = self._from(op.weight_beat)
            self._matrices[op.weight_beat] = _unpack(region, op.num_rows, op.width, bits)
        return self._matrices[op.weight_beat]

    def gamma(self, op: isa.NormQuant) -> NDArray[np.int16]:
        """Norm weights, int16 [width]."""
        return self._from(op.gamma_beat)[: 2 * op.width].view("<i2").copy()

    def rope(self, op: isa.RopeRow, context_tokens: int) -> NDArray[np.int16]:
        """Cosine and sine pairs, int16 [position, head_dim]."""
        raw = self._from(op.rope_beat)[: 2 * context_tokens * op.head_dim]
        return raw.view("<i2").reshape(context_tokens, op.head_dim).copy()

    def target_ids(self, op: isa.Head) -> NDArray[np.int64]:
        """Target id of each head row."""
        if op.d2t_beat == isa.NO_BEAT:
            return np.arange(op.valid_rows, dtype=np.int64)
        return self._from(op.d2t_beat)[: 4 * op.valid_rows].view("<i4").astype(np.int64)

    def _from(self, beat: int) -> NDArray[np.uint8]:
        return self._image[beat * BEAT_BYTES :]


def _unpack(region: NDArray[np.uint8], num_rows: int, width: int, bits: int) -> Matrix:
    if bits == 8:
        rows = unpack_int8(region, num_rows, width)
        return Matrix(rows.quant_oi, rows.mantissa_o.astype(np.int64))
    groups = unpack_int4(region, num_rows, width)
    scale_oi = np.repeat(groups.scale_og.astype(np.int16), GROUP_COLUMNS, axis=1)
    folded: NDArray[np.int16] = groups.quant_oi * scale_oi
    return Matrix(folded, groups.mantissa_o.astype(np.int64))


TILE_ROWS: Final = 4
BLOCK_TILES: Final = 8


class PortImage:
    """The same views of weights that were dealt out over memory ports (fpga/program/link.py).

    ``shares``: each port's bytes, uint8, of equal size. Instructions are those of
    ``unlink_program``. Reads the streams on its own, so that a mistake in dealing shows.
    """

    def __init__(self, shares: Sequence[NDArray[np.uint8]]) -> None:
        self._beats_pbk = np.stack(shares).reshape(len(shares), -1, BEAT_BYTES)
        self._ports = len(shares)
        self._matrices: dict[int, Matrix] = {}

    def matrix(self, op: isa.Embed | isa.MatMul | isa.Head) -> Matrix:
        """The matrix with its filler rows and columns."""
        if op.weight_beat not in self._matrices:
            self._matrices[op.weight_beat] = self._read(op)
        return self._matrices[op.weight_beat]

    def gamma(self, op: isa.NormQuant) -> NDArray[np.int16]:
        """Norm weights, int16 [width]."""
        tiles = -(-op.width // (TILE_ROWS * self._ports))
        raw = self._beats_pbk[:, op.gamma_beat :].reshape(self._ports, -1)[:, : 8 * tiles]
        gamma_ptr = np.ascontiguousarray(raw).view("<i2").reshape(self._ports, tiles, TILE_ROWS)
        return gamma_ptr.swapaxes(0, 1).reshape(-1)[: op.width].copy()

    def rope(self, op: isa.RopeRow, context_tokens: int) -> NDArray[np.int16]:
        """Cosine and sine pairs, int16 [position, head_dim filled up to a beat]; port 0's copy."""
        row_beats = 2 * op.head_dim // BEAT_BYTES
        rows = self._beats_pbk[0, op.rope_beat : op.rope_beat + context_tokens * row_beats]
        return rows.reshape(-1).view("<i2").reshape(context_tokens, op.head_dim).copy()

    def target_ids(self, op: isa.Head) -> NDArray[np.int64]:
        """Target id of each head row."""
        if op.d2t_beat == isa.NO_BEAT:
            return np.arange(op.valid_rows, dtype=np.int64)
        parts = [
            _dealt(blocks[:, :, 1:3], "<u4", tiles)[..., None]
            for tiles, blocks in self._blocks(op, weight_bits=op.weight_bits)
        ]
        return self._rows(parts)[: op.valid_rows, 0].astype(np.int64)

    def _read(self, op: isa.Embed | isa.MatMul | isa.Head) -> Matrix:
        bits = 8 if isinstance(op, isa.Embed) else op.weight_bits
        header = _header_beats(op)
        weights, mantissas = [], []
        for tiles, blocks in self._blocks(op, weight_bits=bits):
            mantissas.append(_dealt(blocks[:, :, :1], "<u2", tiles)[..., None])
            body = blocks[:, :, header:]
            weights.append(_int8_tiles(body, tiles) if bits == 8 else _int4_tiles(body, tiles))
        return Matrix(self._rows(weights), self._rows(mantissas)[:, 0].astype(np.int64))

    def _blocks(
        self, op: isa.Embed | isa.MatMul | isa.Head, *, weight_bits: int
    ) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Tiles a block and blocks [port, block, beat, byte]: the whole ones, then a short one."""
        tiles = -(-op.num_rows // (TILE_ROWS * self._ports))
        at = op.weight_beat
        for size, count in ((BLOCK_TILES, tiles // BLOCK_TILES), (tiles % BLOCK_TILES, 1)):
            if size and count:
                beats = _header_beats(op) + _body_beats(op.width, size, weight_bits)
                part = self._beats_pbk[:, at : at + count * beats]
                yield size, part.reshape(self._ports, count, beats, BEAT_BYTES)
                at += count * beats

    def _rows(self, parts: list[NDArray[Any]]) -> NDArray[Any]:
        """[port, tile, row, column] parts to [matrix row, column]."""
        tiled = np.concatenate(parts, axis=1)
        rows: NDArray[Any] = tiled.swapaxes(0, 1).reshape(-1, tiled.shape[-1])
        return np.ascontiguousarray(rows)


def _header_beats(op: isa.Embed | isa.MatMul | isa.Head) -> int:
    return 3 if isinstance(op, isa.Head) and op.d2t_beat != isa.NO_BEAT else 1


def _body_beats(width: int, tiles: int, weight_bits: int) -> int:
    filled = -(-width // 64) * 64
    if weight_bits == 8:
        return 2 * tiles * filled // GROUP_COLUMNS
    pairs = tiles * filled // 64
    return 2 * pairs + -(-pairs // 8)


def _dealt(beats_pbnk: NDArray[np.uint8], dtype: str, tiles: int) -> NDArray[Any]:
    """Values of a block's header beats: [port, tile, row]."""
    ports, blocks = beats_pbnk.shape[:2]
    values = np.ascontiguousarray(beats_pbnk).view(dtype).reshape(ports, blocks, -1, TILE_ROWS)
    return values[:, :, :tiles].reshape(ports, -1, TILE_ROWS)


def _int8_tiles(beats_pbnk: NDArray[np.uint8], tiles: int) -> NDArray[np.int8]:
    ports, blocks = beats_pbnk.shape[:2]
    # [port, block, tile, pair, half of the tile, row of the half, column]
    quant = np.ascontiguousarray(beats_pbnk).view(np.int8)
    quant = quant.reshape(ports, blocks, tiles, -1, 2, 2, GROUP_COLUMNS)
    return quant.transpose(0, 1, 2, 4, 5, 3, 6).reshape(ports, blocks * tiles, TILE_ROWS, -1)


def _int4_tiles(beats_pbnk: NDArray[np.uint8], tiles: int) -> NDArray[np.int16]:
    """With the group scales multiplied in."""
    ports, blocks, beats = beats_pbnk.shape[:3]
    is_scale = np.arange(beats) % 17 == 0
    packed = beats_pbnk[:, :, ~is_scale].reshape(ports, blocks, tiles, -1, TILE_ROWS, 16)
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], 32)
    quant = (nibbles.astype(np.int8) ^ 8) - 8
    scales = np.ascontiguousarray(beats_pbnk[:, :, is_scale]).view(np.int8)
    scales = scales.reshape(ports, blocks, -1)[:, :, : packed[0, 0, ..., 0].size]
    folded: NDArray[np.int16] = quant.astype(np.int16) * scales.reshape(*quant.shape[:-1], 1)
    rows = folded.transpose(0, 1, 2, 4, 3, 5)
    return rows.reshape(ports, blocks * tiles, TILE_ROWS, -1)
