"""Links an artefact for a card: port shares of the weights, instructions with port-local operands.

The artefact knows nothing of memory ports. A card with P of them deals each matrix out in tiles of
four rows, tile t to port t mod P, and every port reads its tiles as one stream
(docs/decisions/0004-each-memory-port-owns-its-rows.md). All ports have equally many beats, rows
filled up with zeros, so one local offset holds for all of them.

The streams themselves are in fpga/program/deal.py.

A vector element e lies in bank (e / 4) mod P of a lane's vector memory, word e / (4 P): a
``_word`` operand is such a word, the same in all banks.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpga.program import isa
from fpga.program.artefact import Artefact
from fpga.program.deal import (
    BLOCK_TILES,
    TILE_ROWS,
    WIDTH_UNIT,
    Bytes,
    deal_gamma,
    deal_matrix,
)
from fpga.program.layout import (
    BEAT_BYTES,
    GROUP_COLUMNS,
    REGION_BYTES,
    Int4Matrix,
    Int8Matrix,
    align,
    unpack_int4,
    unpack_int8,
)
from hetero.core.errors import ConfigError

MAX_PORTS: Final = 32
DRAIN_SHIFT: Final = 8

LINKED_OPERANDS: Final[dict[int, tuple[str, ...]]] = {
    isa.End.opcode: (),
    isa.Embed.opcode: (
        "local_beat",
        "num_rows",
        "width",
        "shift",
        "out_word",
        "block_beats",
        "pairs",
    ),
    isa.NormQuant.opcode: (
        "in_word",
        "words",
        "width",
        "local_beat",
        "gamma_beats",
        "gamma_shift",
        "eps_q",
    ),
    isa.Quant.opcode: ("in_word", "words", "width", "in_frac"),
    isa.MatMul.opcode: (
        "local_beat",
        "beats",
        "tiles",
        "pairs",
        "bits",
        "shift",
        "out_word",
        "accumulate",
    ),
    isa.RopeKv.opcode: (
        "in_word",
        "words",
        "in_frac",
        "layer",
        "num_heads",
        "num_kv_heads",
        "head_dim",
    ),
    isa.Attention.opcode: (
        "layer",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "out_word",
        "out_frac",
    ),
    isa.SiluGate.opcode: ("gate_word", "up_word", "words", "width", "out_word", "out_frac"),
    isa.Head.opcode: (
        "local_beat",
        "beats",
        "tiles",
        "pairs",
        "bits",
        "shift",
        "valid_rows",
        "num_candidates",
        "has_ids",
    ),
    isa.Draw.opcode: ("logit_frac",),
    isa.RopeRow.opcode: ("local_beat", "row_beats"),
}
"""Words 1, 2, ... of a linked instruction. ``shift`` operands are signed."""

_WORDS: Final = struct.Struct(f"<{isa.INSTRUCTION_WORDS}I")

Operands = dict[str, int]


@dataclass(frozen=True, slots=True)
class LinkedProgram:
    """``words``: 64 bytes an instruction. ``shares``: each port's weights, of equal size."""

    words: bytes
    shares: tuple[Bytes, ...]

    @property
    def share_beats(self) -> int:
        """Beats of one share."""
        return self.shares[0].size // BEAT_BYTES


@dataclass(frozen=True, slots=True)
class MatrixPlace:
    """A matrix in the shares; ``beats`` on each port."""

    local_beat: int
    beats: int
    tiles: int
    pairs: int
    block_beats: int


@dataclass(slots=True)
class _Linker:
    artefact: Artefact
    num_ports: int
    parts: list[Bytes] = field(default_factory=list)
    next_beat: int = 0
    places: dict[int, MatrixPlace] = field(default_factory=dict)

    @property
    def vec(self) -> int:
        return TILE_ROWS * self.num_ports

    def add(self, beats_pb: Bytes) -> int:
        """Append a region, uint8 [port, byte]; returns its local beat."""
        at = self.next_beat
        size = align(beats_pb.shape[1], REGION_BYTES)
        self.parts.append(np.pad(beats_pb, ((0, 0), (0, size - beats_pb.shape[1]))))
        self.next_beat += size // BEAT_BYTES
        return at

    def word(self, vec: int) -> int:
        """A vector offset as a word of the banks."""
        if vec % self.vec:
            raise ConfigError(
                f"draft: a vector at word {vec} is no multiple of {self.vec}, which "
                f"{self.num_ports} ports need. Rebuild the draft with this version."
            )
        return vec // self.vec

    def words(self, width: int) -> int:
        return -(-width // self.vec)

    def place(self, op: isa.Embed | isa.MatMul | isa.Head) -> MatrixPlace:
        """Deal a matrix out, once."""
        if op.weight_beat not in self.places:
            self.places[op.weight_beat] = self._deal(op)
        return self.places[op.weight_beat]

    def _deal(self, op: isa.Embed | isa.MatMul | isa.Head) -> MatrixPlace:
        bits = 8 if isinstance(op, isa.Embed) else op.weight_bits
        region = self.artefact.region_from(op.weight_beat)
        ids_o = self._target_ids(op)
        if bits == 4:
            matrix: Int4Matrix | Int8Matrix = unpack_int4(region, op.num_rows, op.width)
        else:
            matrix = unpack_int8(region, op.num_rows, op.width)
        stream_pb = deal_matrix(matrix, self.num_ports, ids_o)
        tiles = -(-op.num_rows // self.vec)
        pairs = align(op.width, WIDTH_UNIT) // (WIDTH_UNIT if bits == 4 else GROUP_COLUMNS)
        header = 1 if ids_o is None else 3
        return MatrixPlace(
            local_beat=self.add(stream_pb),
            beats=stream_pb.shape[1] // BEAT_BYTES,
            tiles=tiles,
            pairs=pairs,
            block_beats=header + 2 * BLOCK_TILES * pairs + (pairs if bits == 4 else 0),
        )

    def _target_ids(self, op: isa.Instruction) -> NDArray[np.uint32] | None:
        if not isinstance(op, isa.Head) or op.d2t_beat == isa.NO_BEAT:
            return None
        raw = self.artefact.region_from(op.d2t_beat)[: 4 * op.num_rows]
        return raw.view("<u4")

    # ---- instructions

    def embed(self, op: isa.Embed) -> Operands:
        place = self.place(op)
        return {
            "local_beat": place.local_beat,
            "num_rows": op.num_rows,
            "width": op.width,
            "shift": op.row_shift - op.out_frac,
            "out_word": self.word(op.out_vec),
            "block_beats": place.block_beats,
            "pairs": place.pairs,
        }

    def norm_quant(self, op: isa.NormQuant) -> Operands:
        gamma_d = self.artefact.region_from(op.gamma_beat)[: 2 * op.width].view("<i2")
        gamma_pb = deal_gamma(gamma_d, self.num_ports)
        return {
            "in_word": self.word(op.in_vec),
            "words": self.words(op.width),
            "width": op.width,
            "local_beat": self.add(gamma_pb),
            "gamma_beats": gamma_pb.shape[1] // BEAT_BYTES,
            "gamma_shift": op.gamma_shift,
            "eps_q": op.eps_q,
        }

    def quant(self, op: isa.Quant) -> Operands:
        return {
            "in_word": self.word(op.in_vec),
            "words": self.words(op.width),
            "width": op.width,
            "in_frac": op.in_frac,
        }

    def matmul(self, op: isa.MatMul | isa.Head) -> Operands:
        place = self.place(op)
        return {
            "local_beat": place.local_beat,
            "beats": place.beats,
            "tiles": place.tiles,
            "pairs": place.pairs,
            "bits": op.weight_bits,
            "shift": op.row_shift - op.out_frac - DRAIN_SHIFT,
        }

    def plain_matmul(self, op: isa.MatMul) -> Operands:
        out = {"out_word": self.word(op.out_vec), "accumulate": op.accumulate}
        return {**self.matmul(op), **out}

    def head(self, op: isa.Head) -> Operands:
        return {
            **self.matmul(op),
            "valid_rows": op.valid_rows,
            "num_candidates": op.num_candidates,
            "has_ids": int(op.d2t_beat != isa.NO_BEAT),
        }

    def rope_kv(self, op: isa.RopeKv) -> Operands:
        return {
            "in_word": self.word(op.in_vec),
            "words": self.words((op.num_heads + 2 * op.num_kv_heads) * op.head_dim),
            "in_frac": op.in_frac,
            "layer": op.layer,
            "num_heads": op.num_heads,
            "num_kv_heads": op.num_kv_heads,
            "head_dim": op.head_dim,
        }

    def attention(self, op: isa.Attention) -> Operands:
        return {
            "layer": op.layer,
            "num_heads": op.num_heads,
            "num_kv_heads": op.num_kv_heads,
            "head_dim": op.head_dim,
            "out_word": self.word(op.out_vec),
            "out_frac": op.out_frac,
        }

    def silu_gate(self, op: isa.SiluGate) -> Operands:
        return {
            "gate_word": self.word(op.gate_vec),
            "up_word": self.word(op.up_vec),
            "words": self.words(op.width),
            "width": op.width,
            "out_word": self.word(op.out_vec),
            "out_frac": op.out_frac,
        }

    def rope_row(self, op: isa.RopeRow) -> Operands:
        positions = self.artefact.shape.max_context_tokens
        row_bytes = 2 * op.head_dim
        raw = self.artefact.region_from(op.rope_beat)[: positions * row_bytes]
        rows = raw.reshape(positions, row_bytes)
        filled = np.pad(rows, ((0, 0), (0, align(row_bytes, BEAT_BYTES) - row_bytes))).reshape(-1)
        table_pb = np.broadcast_to(filled, (self.num_ports, filled.size))
        return {
            "local_beat": self.add(table_pb),
            "row_beats": align(row_bytes, BEAT_BYTES) // BEAT_BYTES,
        }


def link_program(artefact: Artefact, num_ports: int) -> LinkedProgram:
    """Deal an artefact out over a card's ports. ConfigError for a number that is no card's."""
    if num_ports not in (1, 2, 4, 8, 16, MAX_PORTS):
        raise ConfigError(f"ports = {num_ports}: a card has 1, 2, 4, 8, 16 or 32 memory ports.")
    linker = _Linker(artefact, num_ports)
    linkers: dict[type[Any], Callable[[Any], Operands]] = {
        isa.End: lambda op: {},  # noqa: ARG005
        isa.Embed: linker.embed,
        isa.NormQuant: linker.norm_quant,
        isa.Quant: linker.quant,
        isa.MatMul: linker.plain_matmul,
        isa.RopeKv: linker.rope_kv,
        isa.Attention: linker.attention,
        isa.SiluGate: linker.silu_gate,
        isa.Head: linker.head,
        isa.Draw: lambda op: {"logit_frac": op.logit_frac},
        isa.RopeRow: linker.rope_row,
    }
    # The head first: a tied embedding shares its stream, and only the head may bring target ids.
    for op in artefact.program:
        if isinstance(op, isa.Head):
            linker.place(op)
    words = b"".join(
        encode_linked(op.opcode, linkers[type(op)](op), sampled_only=op.sampled_only)
        for op in artefact.program
    )
    image_pb = np.concatenate(linker.parts, axis=1)
    return LinkedProgram(words, tuple(np.ascontiguousarray(share) for share in image_pb))


def encode_linked(opcode: int, operands: Operands, *, sampled_only: bool) -> bytes:
    """64 bytes of a linked instruction."""
    names = LINKED_OPERANDS[opcode]
    assert set(names) == set(operands), f"opcode {opcode}: {sorted(operands)}"
    flags = isa.FLAG_SAMPLED if sampled_only else 0
    words = [opcode | flags, *(operands[name] & 0xFFFFFFFF for name in names)]
    return _WORDS.pack(*words, *[0] * (isa.INSTRUCTION_WORDS - len(words)))


# ---- back to instructions, for executors that know the artefact's form


def decode_operands(word_bytes: bytes) -> tuple[int, bool, Operands]:
    """Opcode, sampled_only and operands of one linked instruction; shifts signed."""
    words = _WORDS.unpack(word_bytes)
    names = LINKED_OPERANDS.get(words[0] & 0xFF)
    if names is None or words[0] & ~(0xFF | isa.FLAG_SAMPLED) or any(words[1 + len(names) :]):
        raise ConfigError(
            f"linked instruction {words[0]:#x}: not of instruction set {isa.ISA_VERSION}."
        )
    operands = dict(zip(names, words[1:], strict=False))
    if "shift" in operands:
        operands["shift"] = (operands["shift"] ^ 1 << 31) - (1 << 31)
    return words[0] & 0xFF, bool(words[0] & isa.FLAG_SAMPLED), operands


def unlink_program(words: bytes, num_ports: int) -> list[isa.Instruction]:
    """Linked instructions as the artefact's, with filled-up sizes and local beats.

    ``num_rows`` and ``width`` of matrices are those with filler, ``weight_beat``, ``gamma_beat``
    and ``rope_beat`` count in the ports' shares, ``d2t_beat`` only says whether ids are in the
    stream, and fraction bits are folded into ``row_shift``. ConfigError for words that are none.
    """
    if not words or len(words) % isa.INSTRUCTION_BYTES:
        raise ConfigError(f"linked program of {len(words)} bytes: not whole instructions.")
    steps = range(0, len(words), isa.INSTRUCTION_BYTES)
    program = [_unlink(words[i : i + isa.INSTRUCTION_BYTES], num_ports) for i in steps]
    if not isinstance(program[-1], isa.End):
        raise ConfigError("linked program does not finish with END.")
    return program


def _unlink(word_bytes: bytes, num_ports: int) -> isa.Instruction:
    opcode, sampled, operands = decode_operands(word_bytes)
    vec = TILE_ROWS * num_ports
    named: Operands = {
        name.replace("_word", "_vec"): value * vec if name.endswith("_word") else value
        for name, value in operands.items()
    }
    kind = isa.INSTRUCTION_TYPES[opcode]
    if kind in (isa.MatMul, isa.Head):
        bits = named["bits"]
        unit = WIDTH_UNIT if bits == 4 else GROUP_COLUMNS
        named.update(
            weight_beat=named["local_beat"],
            num_rows=named["tiles"] * vec,
            width=named["pairs"] * unit,
            weight_bits=bits,
            row_shift=named["shift"] + DRAIN_SHIFT,
            out_frac=0,
        )
        named["d2t_beat"] = named["local_beat"] if named.get("has_ids") else isa.NO_BEAT
    elif kind is isa.Embed:
        named.update(weight_beat=named["local_beat"], row_shift=named["shift"], out_frac=0)
    elif kind is isa.NormQuant:
        named["gamma_beat"] = named["local_beat"]
    elif kind is isa.RopeRow:
        named.update(rope_beat=named["local_beat"], head_dim=named["row_beats"] * BEAT_BYTES // 2)
    elif kind is isa.SiluGate:
        named["in_frac"] = 16
    wanted = {name: named[name] for name in isa.operand_names(kind)}
    return kind(sampled_only=sampled, **wanted)
