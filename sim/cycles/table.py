"""The program as numbers for the engine: sizes of a port's streams and of vector passes."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from fpga.program import isa
from fpga.program.deal import BLOCK_TILES, CHUNK_PAIRS, TILE_ROWS, WIDTH_UNIT
from fpga.program.layout import BEAT_BYTES, GROUP_COLUMNS, align
from sim.cycles.stream import I64
from sim.cycles.units import (
    ATTENTION,
    DRAW,
    EMBED,
    HEAD,
    MATMUL,
    NORM,
    QUANT,
    ROPE_KV,
    ROPE_ROW,
    SILU,
)

COLUMNS: Final = 8
GAMMA_TILES: Final = 8
"""Tiles whose gammas fill a beat."""


def op_table(program: Sequence[isa.Instruction], ports: int) -> I64:
    """[op, column]: kind, sampled_only, four numbers of the kind, beats of its item, their base."""
    rows = [_row(op, ports) for op in program]
    table = np.array(rows, dtype=np.int64).reshape(-1, COLUMNS)
    for index, covers in enumerate(_covered(program, ports)):
        if table[index, 0] in (NORM, QUANT):
            table[index, 3] = covers
    return table


def share_beats(table: I64) -> int:
    """Beats of a port's share of the weights, as far as streams reach."""
    return int((table[:, 6] + table[:, 7]).max(initial=0))


def _row(op: isa.Instruction, ports: int) -> list[int]:
    kind, numbers, beats, base = _KINDS[type(op)](op, ports)
    filled = [*numbers, 0, 0, 0, 0][:4]
    return [kind, int(op.sampled_only), *filled, beats, base]


Row = tuple[int, list[int], int, int]


def _words(width: int, ports: int) -> int:
    return -(-width // (TILE_ROWS * ports))


def _embed(op: isa.Embed, ports: int) -> Row:  # noqa: ARG001
    return EMBED, [align(op.width, WIDTH_UNIT) // GROUP_COLUMNS], 0, 0


def _norm(op: isa.NormQuant, ports: int) -> Row:
    words = _words(op.width, ports)
    return NORM, [words], -(-words // GAMMA_TILES), op.gamma_beat


def _matrix(op: Any, ports: int) -> Row:
    tiles = _words(op.num_rows, ports)
    unit = WIDTH_UNIT if op.weight_bits == 4 else GROUP_COLUMNS
    pairs = align(op.width, WIDTH_UNIT) // unit
    has_ids = isinstance(op, isa.Head) and op.d2t_beat != isa.NO_BEAT
    header = 3 if has_ids else 1
    beats = 0
    for first in range(0, tiles, BLOCK_TILES):
        block = min(BLOCK_TILES, tiles - first) * pairs
        beats += header + 2 * block + (-(-block // CHUNK_PAIRS) if op.weight_bits == 4 else 0)
    kind = HEAD if isinstance(op, isa.Head) else MATMUL
    return kind, [tiles, pairs, op.weight_bits, header], beats, op.weight_beat


def _rope_row(op: isa.RopeRow, ports: int) -> Row:  # noqa: ARG001
    return ROPE_ROW, [align(2 * op.head_dim, BEAT_BYTES) // BEAT_BYTES], 0, 0


def _rope_kv(op: isa.RopeKv, ports: int) -> Row:  # noqa: ARG001
    return ROPE_KV, [op.num_heads, op.num_kv_heads, op.head_dim], 0, 0


def _attention(op: isa.Attention, ports: int) -> Row:  # noqa: ARG001
    return ATTENTION, [op.num_heads, op.num_kv_heads, op.head_dim, op.layer], 0, 0


_CANDIDATES: Final = 64

_KINDS: Final[dict[type[isa.Instruction], Callable[[Any, int], Row]]] = {
    isa.Embed: _embed,
    isa.RopeRow: _rope_row,
    isa.NormQuant: _norm,
    isa.Quant: lambda op, ports: (QUANT, [_words(op.width, ports)], 0, 0),
    isa.MatMul: _matrix,
    isa.RopeKv: _rope_kv,
    isa.Attention: _attention,
    isa.SiluGate: lambda op, ports: (SILU, [_words(op.width, ports)], 0, 0),
    isa.Head: _matrix,
    isa.Draw: lambda op, ports: (DRAW, [_CANDIDATES], 0, 0),  # noqa: ARG005
}


def _covered(program: Sequence[isa.Instruction], ports: int) -> list[bool]:
    """Whether the running maximum of what was written last is that of the vector read."""
    vec = TILE_ROWS * ports
    covered: list[bool] = []
    last: tuple[int, int] | None = None  # place and length of the vector written last
    for op in program:
        reads = (op.in_vec, op.width) if isinstance(op, isa.NormQuant | isa.Quant) else None
        covered.append(reads is not None and reads == last and reads[1] % vec == 0)
        if isinstance(op, isa.MatMul):
            last = (op.out_vec, align(op.num_rows, vec))
        elif isinstance(op, isa.Embed | isa.SiluGate):
            last = (op.out_vec, op.width)
        elif isinstance(op, isa.Attention):
            last = (op.out_vec, op.num_heads * op.head_dim)
    return covered
