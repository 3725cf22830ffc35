"""Bytes that host and card exchange: program header, command buffer, result buffer.

Everything is little-endian 32-bit words in beats of 64 bytes. One command buffer goes to the card
and one result buffer comes back in each start, whatever the number of lanes and tokens. Layout
changes raise INTERFACE_VERSION in regs.toml.

Program buffer: one header beat (``ProgramHeader``), then the artefact's instructions.

Command buffer: one header beat (``CommandHeader``), one beat for each lane (``LaneCommand``), and
behind MAX_LANES of those the tokens to read, lane after lane.

Result buffer: two header beats (``ResultHeader``), then for each lane one beat and the arrays of
drafted ids and of confidences (in 1/255), MAX_DRAFT_TOKENS words each, filled up to beats.
"""

import struct
from dataclasses import astuple, dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.program.layout import BEAT_BYTES, KvLayout, align
from fpga.regmap import registers
from hetero.core.errors import CardError

PROGRAM_MAGIC: Final = 0x50444548  # "HEDP"
COMMAND_MAGIC: Final = 0x43444548  # "HEDC"
RESULT_MAGIC: Final = 0x52444548  # "HEDR"
WORD_BYTES: Final = 4
CONFIDENCE_ONE: Final = 255
RESULT_HEADER_BYTES: Final = 2 * BEAT_BYTES

STATUS_OK: Final = 0
STATUS_BAD_COMMAND: Final = 1
STATUS_BAD_PROGRAM: Final = 2
STATUS_BAD_LANE: Final = 3
STATUS_DECODE_ERROR: Final = 4
STATUS_SLAVE_ERROR: Final = 5

STATUS_TEXT: Final = {
    STATUS_BAD_COMMAND: "the command buffer it read is not one of this interface version",
    STATUS_BAD_PROGRAM: "the program it read is damaged or of another instruction set",
    STATUS_BAD_LANE: "lane {detail} asks for a slot, position or token that does not exist",
    STATUS_DECODE_ERROR: "memory port {detail} cannot reach the address it was given (AXI DECERR)",
    STATUS_SLAVE_ERROR: "memory port {detail} answered with an error (AXI SLVERR)",
}

_PROGRAM: Final = struct.Struct("<8I32s")
_COMMAND: Final = struct.Struct("<16I")
_LANE: Final = struct.Struct("<16I")
_RESULT: Final = struct.Struct("<6I2Q2I16s32s16xQQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardLimits:
    """Build parameters of a card that fix the sizes of the buffers."""

    num_ports: int
    max_lanes: int
    max_read_tokens: int
    max_draft_tokens: int

    @property
    def command_bytes(self) -> int:
        """Size of the command buffer."""
        return self.tokens_offset + align(
            WORD_BYTES * self.max_lanes * self.max_read_tokens, BEAT_BYTES
        )

    @property
    def tokens_offset(self) -> int:
        """Where the tokens begin in the command buffer."""
        return BEAT_BYTES * (1 + self.max_lanes)

    @property
    def lane_result_bytes(self) -> int:
        """Size of one lane's part of the result buffer."""
        return BEAT_BYTES + 2 * align(WORD_BYTES * self.max_draft_tokens, BEAT_BYTES)

    @property
    def result_bytes(self) -> int:
        """Size of the result buffer."""
        return RESULT_HEADER_BYTES + self.max_lanes * self.lane_result_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramHeader:
    """First beat of the program buffer. ``sha256``: identity of the artefact, 32 bytes."""

    isa_version: int
    arithmetic_version: int
    num_instructions: int
    image_beats: int
    vector_words: int
    sha256: bytes


def encode_program(header: ProgramHeader, instructions: bytes) -> bytes:
    """The program buffer."""
    packed = _PROGRAM.pack(
        PROGRAM_MAGIC,
        registers.INTERFACE_VERSION,
        header.isa_version,
        header.arithmetic_version,
        header.num_instructions,
        header.image_beats,
        header.vector_words,
        0,
        header.sha256,
    )
    return packed + instructions


def decode_program_header(data: bytes) -> ProgramHeader:
    """The inverse for the first beat; CardError when it is none."""
    magic, version, isa, arithmetic, count, beats, words, _, sha256 = _PROGRAM.unpack(data)
    _expect("program", magic, PROGRAM_MAGIC, version)
    return ProgramHeader(
        isa_version=isa,
        arithmetic_version=arithmetic,
        num_instructions=count,
        image_beats=beats,
        vector_words=words,
        sha256=sha256,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGeometry:
    """The KV layout as the card needs it: strides in beats (fpga.program.layout.KvLayout)."""

    num_slots: int
    context_tokens: int
    slot_beats: int
    head_beats: int
    data_beats: int
    scale_beats: int

    @classmethod
    def of(cls, kv: KvLayout) -> "KvGeometry":
        """Strides of a layout; all of them are whole beats."""
        return cls(
            num_slots=kv.num_slots,
            context_tokens=kv.context_tokens,
            slot_beats=kv.slot_bytes // BEAT_BYTES,
            head_beats=kv.head_bytes // BEAT_BYTES,
            data_beats=kv.data_bytes // BEAT_BYTES,
            scale_beats=kv.scale_bytes // BEAT_BYTES,
        )


_KV_FIELDS: Final = tuple(f.name for f in fields(KvGeometry))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneCommand:
    """One lane's work. ``inv_temperature``: 16 fraction bits, 0 draws greedily."""

    slot: int
    start: int
    token_ids: tuple[int, ...]
    num_draft_tokens: int
    output_index: int
    seed: int
    choice_index: int
    inv_temperature: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One start of the card. ``sequence`` comes back in the result."""

    sequence: int
    kv: KvGeometry
    lanes: tuple[LaneCommand, ...]


def encode_command(command: Command, limits: CardLimits) -> bytes:
    """The used part of the command buffer, at most ``limits.command_bytes``."""
    kv = command.kv
    header = _COMMAND.pack(
        COMMAND_MAGIC,
        registers.INTERFACE_VERSION,
        command.sequence,
        len(command.lanes),
        *astuple(kv),
        *[0] * 6,
    )
    at = limits.tokens_offset // WORD_BYTES
    descriptors: list[bytes] = []
    tokens: list[int] = []
    for lane in command.lanes:
        descriptors.append(_encode_lane(lane, at + len(tokens)))
        tokens.extend(lane.token_ids)
    head = (header + b"".join(descriptors)).ljust(limits.tokens_offset, b"\0")
    return head + struct.pack(f"<{len(tokens)}I", *tokens)


def _encode_lane(lane: LaneCommand, tokens_at_word: int) -> bytes:
    return _LANE.pack(
        lane.slot,
        lane.start,
        len(lane.token_ids),
        lane.num_draft_tokens,
        lane.output_index,
        lane.seed & 0xFFFFFFFF,
        lane.seed >> 32,
        lane.choice_index,
        lane.inv_temperature,
        tokens_at_word,
        *[0] * 6,
    )


def decode_command(data: bytes, limits: CardLimits) -> Command:
    """The card's side. CardError for a buffer that the host side never writes."""
    magic, version, sequence, num_lanes, *rest = _COMMAND.unpack_from(data)
    _expect("command", magic, COMMAND_MAGIC, version)
    if num_lanes > limits.max_lanes:
        raise CardError(f"command buffer: {num_lanes} lanes, this card has {limits.max_lanes}.")
    kv = KvGeometry(**dict(zip(_KV_FIELDS, rest, strict=False)))
    lanes = tuple(_decode_lane(data, BEAT_BYTES * (1 + i)) for i in range(num_lanes))
    return Command(sequence=sequence, kv=kv, lanes=lanes)


def _decode_lane(data: bytes, offset: int) -> LaneCommand:
    slot, start, count, drafts, output, low, high, choice, inv_t, at, *_ = _LANE.unpack_from(
        data, offset
    )
    if WORD_BYTES * (at + count) > len(data):
        raise CardError(f"command buffer: {count} tokens at word {at} lie outside of it.")
    return LaneCommand(
        slot=slot,
        start=start,
        token_ids=struct.unpack_from(f"<{count}I", data, WORD_BYTES * at),
        num_draft_tokens=drafts,
        output_index=output,
        seed=low | high << 32,
        choice_index=choice,
        inv_temperature=inv_t,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultHeader:
    """What the card says of a start. ``beats_read``: 64-byte beats over all memory ports.

    ``passes``: how often the program ran over the weights. ``detail``: which lane or port an
    error is about.
    """

    sequence: int
    status: int = STATUS_OK
    detail: int = 0
    num_lanes: int = 0
    cycles: int = 0
    beats_read: int = 0
    isa_version: int = 0
    arithmetic_version: int = 0
    build_hash: bytes = bytes(16)
    artefact_sha256: bytes = bytes(32)
    passes: int = 0
    tokens_read: int = 0


_RESULT_FIELDS: Final = tuple(f.name for f in fields(ResultHeader))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneOutcome:
    """What one lane drafted; ``confidence`` in 1/255."""

    slot: int
    token_ids: tuple[int, ...]
    confidence: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The whole result buffer."""

    header: ResultHeader
    lanes: tuple[LaneOutcome, ...]


def encode_result(result: Result, limits: CardLimits) -> bytes:
    """The card's side: the used part of the result buffer."""
    header = result.header
    packed = _RESULT.pack(
        RESULT_MAGIC,
        registers.INTERFACE_VERSION,
        header.sequence,
        header.status,
        header.detail,
        header.num_lanes,
        header.cycles,
        header.beats_read,
        header.isa_version,
        header.arithmetic_version,
        header.build_hash,
        header.artefact_sha256,
        header.passes,
        header.tokens_read,
    )
    lanes = b"".join(_encode_outcome(lane, limits) for lane in result.lanes)
    return packed.ljust(RESULT_HEADER_BYTES, b"\0") + lanes


def _encode_outcome(lane: LaneOutcome, limits: CardLimits) -> bytes:
    array_bytes = align(WORD_BYTES * limits.max_draft_tokens, BEAT_BYTES)
    head = struct.pack("<2I", lane.slot, len(lane.token_ids)).ljust(BEAT_BYTES, b"\0")
    arrays = [np.array(x, dtype="<u4").tobytes() for x in (lane.token_ids, lane.confidence)]
    return head + b"".join(array.ljust(array_bytes, b"\0") for array in arrays)


def decode_result(data: NDArray[np.uint8], limits: CardLimits) -> Result:
    """The host's side. CardError when the buffer is no result of this interface version."""
    raw = data.tobytes()
    magic, version, *values = _RESULT.unpack_from(raw)
    _expect("result", magic, RESULT_MAGIC, version)
    header = ResultHeader(**dict(zip(_RESULT_FIELDS, values, strict=True)))
    if header.num_lanes > limits.max_lanes:
        raise CardError(f"result buffer: {header.num_lanes} lanes of {limits.max_lanes}.")
    return Result(
        header=header,
        lanes=tuple(_decode_outcome(raw, lane, limits) for lane in range(header.num_lanes)),
    )


def _decode_outcome(raw: bytes, lane: int, limits: CardLimits) -> LaneOutcome:
    at = RESULT_HEADER_BYTES + lane * limits.lane_result_bytes
    slot, count = struct.unpack_from("<2I", raw, at)
    if count > limits.max_draft_tokens:
        raise CardError(
            f"result buffer: lane {lane} drafted {count} tokens, at most "
            f"{limits.max_draft_tokens} are possible. The card is not to be trusted: reset it."
        )
    ids_at = at + BEAT_BYTES
    confidence_at = ids_at + align(WORD_BYTES * limits.max_draft_tokens, BEAT_BYTES)
    return LaneOutcome(
        slot=slot,
        token_ids=struct.unpack_from(f"<{count}I", raw, ids_at),
        confidence=struct.unpack_from(f"<{count}I", raw, confidence_at),
    )


def _expect(kind: str, magic: int, wanted_magic: int, version: int) -> None:
    if magic != wanted_magic:
        raise CardError(
            f"{kind} buffer: begins with {magic:#010x} instead of {wanted_magic:#010x}; was it "
            "synchronised?"
        )
    if version != registers.INTERFACE_VERSION:
        raise CardError(
            f"{kind} buffer: interface version {version}, this side speaks "
            f"{registers.INTERFACE_VERSION}."
        )
