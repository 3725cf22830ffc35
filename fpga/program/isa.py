"""The instruction set of the draft card: dataclasses, opcodes, binary encoding.

An instruction is 16 little-endian 32-bit words (64 bytes, one beat): word 0 holds the opcode in
bits 0..7 and flags from bit 8, the operands follow in the order of the dataclass fields, unused
words are zero. docs/draft-program.md tells what each does, docs/arithmetic.md how it rounds.

Operand units, by suffix:

``_vec``    offset into a lane's vector memory, in int32 words
``_beat``   offset into the weight image, in 64-byte beats
``_frac``   fraction bits of the int32 values in a vector
``_shift``  power-of-two exponent of a stored scale: value = mantissa * 2^-shift
others      counts
"""

import struct
from dataclasses import dataclass, fields
from typing import ClassVar, Final, TypeAlias

from hetero.core.errors import ArtefactError

ISA_VERSION: Final = 2
INSTRUCTION_WORDS: Final = 16
INSTRUCTION_BYTES: Final = 4 * INSTRUCTION_WORDS
FLAG_SAMPLED: Final = 1 << 8
NO_BEAT: Final = 0xFFFFFFFF
"""A ``_beat`` operand that names nothing."""

_WORDS: Final = struct.Struct(f"<{INSTRUCTION_WORDS}I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What every instruction has.

    ``sampled_only``: executed only for the tokens whose successor is to be drawn. Prefill
    tokens skip it; nothing later in the program may then need its result for them.
    """

    opcode: ClassVar[int] = -1

    sampled_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Base):
    """The token is done."""

    opcode: ClassVar[int] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed(Base):
    """Gather the input token's row of an int8 matrix into a vector (docs: EMBED)."""

    opcode: ClassVar[int] = 1

    weight_beat: int
    num_rows: int
    width: int
    row_shift: int
    out_vec: int
    out_frac: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NormQuant(Base):
    """RMSNorm a vector and quantise it into the activation register (docs: NORM_QUANT).

    ``eps_q``: eps * width in units of the squared input. The gamma mantissas contain
    sqrt(width), so that the card divides by the root of the sum, not of the mean.
    """

    opcode: ClassVar[int] = 2

    in_vec: int
    width: int
    gamma_beat: int
    gamma_shift: int
    eps_q: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quant(Base):
    """Quantise a vector into the activation register (docs: QUANT)."""

    opcode: ClassVar[int] = 3

    in_vec: int
    width: int
    in_frac: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MatMul(Base):
    """Multiply a matrix by the activation register (docs: MATMUL).

    ``accumulate`` adds to the output vector with saturation (the residual add) instead of
    overwriting it.
    """

    opcode: ClassVar[int] = 4

    weight_beat: int
    num_rows: int
    width: int
    weight_bits: int
    row_shift: int
    out_vec: int
    out_frac: int
    accumulate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeKv(Base):
    """Rotate q and k, quantise all heads, append k and v to the cache (docs: ROPE_KV).

    ``in_vec`` holds q, k and v one after the other. The quantised q goes to the query register.
    Elements 2i and 2i + 1 of a head are turned against each other by pair i of the lane's RoPE
    row (``RopeRow``).
    """

    opcode: ClassVar[int] = 5

    in_vec: int
    in_frac: int
    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Base):
    """Attend with the query register over the cache, own position included (docs: ATTENTION)."""

    opcode: ClassVar[int] = 6

    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    out_vec: int
    out_frac: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SiluGate(Base):
    """silu(gate) * up (docs: SILU_GATE)."""

    opcode: ClassVar[int] = 7

    gate_vec: int
    up_vec: int
    width: int
    in_frac: int
    out_vec: int
    out_frac: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Head(Base):
    """Output matrix, keeping only the best candidates (docs: HEAD).

    ``d2t_beat``: int32 target id of each row, ascending; NO_BEAT when row and id are the same.
    ``valid_rows``: the rows from there on only fill the vocabulary up and are no candidates.
    """

    opcode: ClassVar[int] = 8

    weight_beat: int
    num_rows: int
    width: int
    weight_bits: int
    row_shift: int
    out_frac: int
    num_candidates: int
    d2t_beat: int
    valid_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw(Base):
    """Draw one of the candidates with the lane's noise; feeds back to EMBED (docs: DRAW)."""

    opcode: ClassVar[int] = 9

    logit_frac: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeRow(Base):
    """Fetch the token's row of the RoPE table, for every ROPE_KV that follows (docs: ROPE_ROW)."""

    opcode: ClassVar[int] = 10

    rope_beat: int
    head_dim: int


Instruction: TypeAlias = (
    End | Embed | NormQuant | Quant | MatMul | RopeKv | Attention | SiluGate | Head | Draw | RopeRow
)

INSTRUCTION_TYPES: Final[tuple[type[Instruction], ...]] = (
    End,
    Embed,
    NormQuant,
    Quant,
    MatMul,
    RopeKv,
    Attention,
    SiluGate,
    Head,
    Draw,
    RopeRow,
)

_BY_OPCODE: Final = {kind.opcode: kind for kind in INSTRUCTION_TYPES}


def operand_names(kind: type[Instruction]) -> list[str]:
    """Operand fields of an instruction type, in encoding order."""
    return [f.name for f in fields(kind) if f.name != "sampled_only"]


def encode(instruction: Instruction) -> bytes:
    """64 bytes. An operand that does not fit 32 unsigned bits is the compiler's bug."""
    operands = [getattr(instruction, name) for name in operand_names(type(instruction))]
    flags = FLAG_SAMPLED if instruction.sampled_only else 0
    words = [instruction.opcode | flags, *operands]
    return _WORDS.pack(*words, *[0] * (INSTRUCTION_WORDS - len(words)))


def decode(word_bytes: bytes) -> Instruction:
    """The inverse of ``encode``; ArtefactError for an opcode, flag or filler it never writes."""
    words = _WORDS.unpack(word_bytes)
    kind = _BY_OPCODE.get(words[0] & 0xFF)
    if kind is None:
        raise ArtefactError(
            f"opcode {words[0] & 0xFF}: instruction set {ISA_VERSION} has none of that number. "
            "Rebuild the draft with this version."
        )
    names = operand_names(kind)
    if words[0] & ~(0xFF | FLAG_SAMPLED) or any(words[1 + len(names) :]):
        raise ArtefactError(f"{kind.__name__}: unknown flag or stray operand. Rebuild the draft.")
    operands = dict(zip(names, words[1:], strict=False))
    return kind(sampled_only=bool(words[0] & FLAG_SAMPLED), **operands)


def encode_program(instructions: list[Instruction]) -> bytes:
    """Instructions one after the other."""
    return b"".join(encode(instruction) for instruction in instructions)


def decode_program(data: bytes) -> list[Instruction]:
    """The inverse of ``encode_program``; ArtefactError for a torn or endless program."""
    if not data or len(data) % INSTRUCTION_BYTES:
        raise ArtefactError(
            f"program of {len(data)} bytes: not a whole number of {INSTRUCTION_BYTES}-byte "
            "instructions. Rebuild the draft."
        )
    steps = range(0, len(data), INSTRUCTION_BYTES)
    instructions = [decode(data[i : i + INSTRUCTION_BYTES]) for i in steps]
    if not isinstance(instructions[-1], End):
        raise ArtefactError("program does not finish with END. Rebuild the draft.")
    return instructions
