"""Where every row of a step writes its K and V, and which keys it reads. Built once a step.

Rows of one sequence are cut into tiles of ``TILE_ROWS`` queries; keys are reduced in splits of
``SPLIT_KEYS``. Both are constants of the numerics identity: the reduction order of a row depends
on its own position only, whatever else is in the batch. Tiles are batched ``SLAB_TILES`` at a time
to bound memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_verifier.kv.cache import CacheShape

TILE_ROWS = 16
SPLIT_KEYS = 128
SLAB_TILES = 8


@dataclass(frozen=True, slots=True)
class SequenceRows:
    """Consecutive new positions of one sequence, ``start`` the first; blocks cover them all."""

    start: int
    num_rows: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TileSlab:
    """Tiles that are computed together: t tiles of r = TILE_ROWS rows, s splits of keys."""

    num_tiles: int
    num_splits: int
    row_tr: torch.Tensor  # int64 [t * r]: batch row of each tile row
    block_htp: torch.Tensor  # int64 [kv heads * t * pages]: cache block of each page of keys
    bias_trk: torch.Tensor  # float32 [t, 1, r, s * SPLIT_KEYS]: 0, or -inf where not visible


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """All that a layer needs to know about one step."""

    num_rows: int  # real rows; padding rows follow them
    slot_hn: torch.Tensor  # int64 [kv heads * num_rows]: where new K and V go
    slabs: tuple[TileSlab, ...]
    tile_row_n: torch.Tensor  # int64 [padded rows]: each batch row's place among all tile rows


@dataclass(frozen=True, slots=True)
class _Tile:
    first_row: int  # in the batch
    start: int  # position of that row
    num_rows: int
    block_ids: tuple[int, ...]

    @property
    def num_splits(self) -> int:
        return (self.start + self.num_rows - 1) // SPLIT_KEYS + 1


def build_plan(
    sequences: Sequence[SequenceRows],
    num_padded_rows: int,
    shape: CacheShape,
    device: torch.device,
) -> AttentionPlan:
    """Plan a step whose rows are those of ``sequences`` in order, then padding."""
    # Tiles of like length share a slab, so that short ones are not padded to the longest.
    tiles = sorted(_cut_tiles(sequences), key=lambda tile: tile.num_splits)
    groups = [tiles[i : i + SLAB_TILES] for i in range(0, len(tiles), SLAB_TILES)]
    # A padding row reads the output of tile row 0: finite, and nobody looks at it.
    tile_row_n = np.zeros(num_padded_rows, dtype=np.int64)
    for i, tile in enumerate(tiles):
        rows = np.arange(tile.num_rows)
        tile_row_n[tile.first_row + rows] = i * TILE_ROWS + rows
    return AttentionPlan(
        num_rows=sum(sequence.num_rows for sequence in sequences),
        slot_hn=torch.from_numpy(_slots(sequences, shape)).to(device),
        slabs=tuple(_build_slab(group, shape, device) for group in groups),
        tile_row_n=torch.from_numpy(tile_row_n).to(device),
    )


def _cut_tiles(sequences: Sequence[SequenceRows]) -> list[_Tile]:
    tiles = []
    first_row = 0
    for sequence in sequences:
        for offset in range(0, sequence.num_rows, TILE_ROWS):
            rows = min(TILE_ROWS, sequence.num_rows - offset)
            start = sequence.start + offset
            tiles.append(_Tile(first_row + offset, start, rows, sequence.block_ids))
        first_row += sequence.num_rows
    return tiles


def _slots(sequences: Sequence[SequenceRows], shape: CacheShape) -> NDArray[np.int64]:
    """Cache positions of new rows in the head-major layout, [kv heads * rows]."""
    parts = []
    for sequence in sequences:
        position = sequence.start + np.arange(sequence.num_rows)
        block = np.asarray(sequence.block_ids, dtype=np.int64)[position // shape.block_tokens]
        parts.append(block * shape.block_tokens + position % shape.block_tokens)
    slot_n = np.concatenate(parts)
    head_h = np.arange(shape.num_kv_heads, dtype=np.int64)[:, None]
    slot_hn: NDArray[np.int64] = head_h * (shape.num_blocks * shape.block_tokens) + slot_n
    return slot_hn.ravel()


def _build_slab(tiles: Sequence[_Tile], shape: CacheShape, device: torch.device) -> TileSlab:
    num_splits = max(tile.num_splits for tile in tiles)
    pages = num_splits * SPLIT_KEYS // shape.block_tokens
    # Pages beyond a sequence's blocks read block 0: masked, and finite.
    block_tp = np.zeros((len(tiles), pages), dtype=np.int64)
    offset_r = np.arange(TILE_ROWS)
    row_tr = np.empty((len(tiles), TILE_ROWS), dtype=np.int64)
    position_tr = np.empty((len(tiles), TILE_ROWS), dtype=np.int64)
    for i, tile in enumerate(tiles):
        held = tile.block_ids[:pages]
        block_tp[i, : len(held)] = held
        # Unused tile rows repeat the first one; their output is not read.
        used_r = np.where(offset_r < tile.num_rows, offset_r, 0)
        row_tr[i] = tile.first_row + used_r
        position_tr[i] = tile.start + used_r
    head_h = np.arange(shape.num_kv_heads)[:, None, None] * shape.num_blocks
    position = torch.from_numpy(position_tr).to(device)[:, None, :, None]
    hidden = torch.arange(num_splits * SPLIT_KEYS, device=device) > position
    return TileSlab(
        num_tiles=len(tiles),
        num_splits=num_splits,
        row_tr=torch.from_numpy(row_tr.ravel()).to(device),
        block_htp=torch.from_numpy((head_h + block_tp).ravel()).to(device),
        bias_trk=torch.zeros(hidden.shape, device=device).masked_fill_(hidden, -torch.inf),
    )
