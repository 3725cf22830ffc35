"""Bytes that host and card exchange: program header, command buffer, result buffer.

Everything is little-endian 32-bit words in beats of 64 bytes. One command buffer goes to the card
and one result buffer comes back in each start, whatever the number of lanes and tokens. Layout
changes raise INTERFACE_VERSION in regs.toml. The tables ``*_WORDS`` name the words of each kind of
beat; fpga/rtl/generated/buffers.svh and docs/card-buffers.md are made from them.

Program buffer: one header beat (``ProgramHeader``), then the linked instructions.

Command buffer: one header beat (``Command``), one beat for each lane (``LaneCommand``), and behind
MAX_LANES of those the tokens to read, lane after lane.

Result buffer: two header beats (``ResultHeader``), then for each lane one beat and MAX_DRAFT_TOKENS
beats, one for each drafted token (``DraftedToken``).
"""

import struct
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpga.program.layout import BEAT_BYTES, KvLayout, align
from fpga.program.port_kv import PortKvLayout
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
    STATUS_BAD_PROGRAM: "the program it read is damaged, of another instruction set, or linked for "
    "another number of memory ports",
    STATUS_BAD_LANE: "lane {detail} asks for a slot, position or token that does not exist",
    STATUS_DECODE_ERROR: "memory port {detail} cannot reach the address it was given (AXI DECERR)",
    STATUS_SLAVE_ERROR: "memory port {detail} answered with an error (AXI SLVERR)",
}

NUM_TOP: Final = 4
"""Candidates of each drafted token that the result tells, the token first."""

PROGRAM_WORDS: Final = (
    "magic", "interface_version", "isa_version", "arithmetic_version", "num_instructions",
    "port_beats", "vector_words", "num_ports", *(f"sha256_{i}" for i in range(8)),
)  # fmt: skip
COMMAND_WORDS: Final = (
    "magic", "interface_version", "sequence", "num_lanes", "program_id", "num_slots",
    "context_tokens", "slot_beats", "layer_beats", "k_beats", "v_beats", "window", "record_bytes",
)  # fmt: skip
LANE_WORDS: Final = (
    "slot", "tail_slot", "prefix_len", "start", "num_read", "num_draft", "output_index", "seed_lo",
    "seed_hi", "choice_index", "inv_temperature", "token_word", "ancestor_mask",
)  # fmt: skip
TOKEN_WORDS: Final = (
    "token_id", "confidence", "num_top", "zero", *(f"top_id_{i}" for i in range(NUM_TOP)),
    *(f"top_confidence_{i}" for i in range(NUM_TOP)), *(f"top_logit_{i}" for i in range(NUM_TOP)),
)  # fmt: skip

RESULT_WORDS: Final = (
    "magic", "interface_version", "sequence", "status", "detail", "num_lanes", "cycles_lo",
    "cycles_hi", "beats_read_lo", "beats_read_hi", "isa_version", "arithmetic_version",
    *(f"build_hash_{i}" for i in range(4)), *(f"sha256_{i}" for i in range(8)),
    *(f"zero_{i}" for i in range(4)), "passes_lo", "passes_hi", "tokens_read_lo", "tokens_read_hi",
)  # fmt: skip
LANE_RESULT_WORDS: Final = ("slot", "count")

_BEAT: Final = struct.Struct("<16I")
_PROGRAM: Final = struct.Struct("<8I32s")
_TOKEN: Final = struct.Struct("<12I4i")
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
        return BEAT_BYTES * (1 + self.max_draft_tokens)

    @property
    def result_bytes(self) -> int:
        """Size of the result buffer."""
        return RESULT_HEADER_BYTES + self.max_lanes * self.lane_result_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramHeader:
    """First beat of the program buffer. ``sha256``: identity of the artefact, 32 bytes.

    ``num_ports``: how many it was linked for. ``port_beats``: beats of each port's share of the
    weights.
    """

    isa_version: int
    arithmetic_version: int
    num_instructions: int
    port_beats: int
    vector_words: int
    num_ports: int
    sha256: bytes


def encode_program(header: ProgramHeader, instructions: bytes) -> bytes:
    """The program buffer."""
    packed = _PROGRAM.pack(
        PROGRAM_MAGIC,
        registers.INTERFACE_VERSION,
        header.isa_version,
        header.arithmetic_version,
        header.num_instructions,
        header.port_beats,
        header.vector_words,
        header.num_ports,
        header.sha256,
    )
    return packed + instructions


def decode_program_header(data: bytes) -> ProgramHeader:
    """The inverse for the first beat; CardError when it is none."""
    magic, version, isa, arithmetic, count, beats, words, ports, sha256 = _PROGRAM.unpack(data)
    _expect("program", magic, PROGRAM_MAGIC, version)
    return ProgramHeader(
        isa_version=isa,
        arithmetic_version=arithmetic,
        num_instructions=count,
        port_beats=beats,
        vector_words=words,
        num_ports=ports,
        sha256=sha256,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGeometry:
    """The KV cache on each port, strides in beats (docs/draft-program.md, KV).

    ``k_beats``, ``v_beats``: where keys and values of a layer begin; its scales are first.
    ``record_bytes``: keys of all heads at one position.
    """

    num_slots: int
    context_tokens: int
    slot_beats: int
    layer_beats: int
    k_beats: int
    v_beats: int
    record_bytes: int

    @classmethod
    def of(cls, kv: KvLayout, num_ports: int) -> "KvGeometry":
        """Positions dealt out over the ports: port p holds p, p + num_ports, ..."""
        port = PortKvLayout.of(kv, num_ports)
        return cls(**{field.name: getattr(port, field.name) for field in fields(cls)})

    @property
    def port_bytes(self) -> int:
        """One port's share of the whole cache."""
        return self.num_slots * self.slot_beats * BEAT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneCommand:
    """One lane's work. ``inv_temperature``: 16 fraction bits, 0 draws greedily.

    Positions below ``prefix_len`` lie in ``slot``, those from there on in ``tail_slot``, where new
    ones are written too; None: ``slot`` itself. ``ancestor_mask``: for a tree, bit m lets the lane
    see what lane m reads in this start; each lane then reads one token.
    """

    slot: int
    start: int
    token_ids: tuple[int, ...]
    num_draft_tokens: int
    output_index: int
    seed: int
    choice_index: int
    inv_temperature: int
    tail_slot: int | None = None
    prefix_len: int = 0
    ancestor_mask: int = 0

    @property
    def write_slot(self) -> int:
        """Where new positions go."""
        return self.slot if self.tail_slot is None else self.tail_slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One start of the card. ``sequence`` comes back in the result.

    ``program_id``: another one for every program that the host loaded; never 0. ``window``: how
    many positions a token sees, its own included; 0: all.
    """

    sequence: int
    program_id: int
    kv: KvGeometry
    lanes: tuple[LaneCommand, ...]
    window: int = 0


def encode_command(command: Command, limits: CardLimits) -> bytes:
    """The used part of the command buffer, at most ``limits.command_bytes``."""
    kv = command.kv
    header = _beat(
        COMMAND_MAGIC, registers.INTERFACE_VERSION, command.sequence, len(command.lanes),
        command.program_id, kv.num_slots, kv.context_tokens, kv.slot_beats, kv.layer_beats,
        kv.k_beats, kv.v_beats, command.window, kv.record_bytes,
    )  # fmt: skip
    at = limits.tokens_offset // WORD_BYTES
    descriptors: list[bytes] = []
    tokens: list[int] = []
    for lane in command.lanes:
        descriptors.append(_encode_lane(lane, at + len(tokens)))
        tokens.extend(lane.token_ids)
    head = (header + b"".join(descriptors)).ljust(limits.tokens_offset, b"\0")
    return head + struct.pack(f"<{len(tokens)}I", *tokens)


def _beat(*words: int) -> bytes:
    return _BEAT.pack(*words, *[0] * (BEAT_BYTES // WORD_BYTES - len(words)))


def _encode_lane(lane: LaneCommand, token_word: int) -> bytes:
    return _beat(
        lane.slot, lane.write_slot, lane.prefix_len, lane.start, len(lane.token_ids),
        lane.num_draft_tokens, lane.output_index, lane.seed & 0xFFFFFFFF, lane.seed >> 32,
        lane.choice_index, lane.inv_temperature, token_word, lane.ancestor_mask,
    )  # fmt: skip


def decode_command(data: bytes, limits: CardLimits) -> Command:
    """The card's side. CardError for a buffer that the host side never writes."""
    words = dict(zip(COMMAND_WORDS, _BEAT.unpack_from(data), strict=False))
    _expect("command", words["magic"], COMMAND_MAGIC, words["interface_version"])
    num_lanes = words["num_lanes"]
    if num_lanes > limits.max_lanes:
        raise CardError(f"command buffer: {num_lanes} lanes, this card has {limits.max_lanes}.")
    return Command(
        sequence=words["sequence"],
        program_id=words["program_id"],
        kv=KvGeometry(**{field.name: words[field.name] for field in fields(KvGeometry)}),
        lanes=tuple(_decode_lane(data, i, limits) for i in range(num_lanes)),
        window=words["window"],
    )


def _decode_lane(data: bytes, index: int, limits: CardLimits) -> LaneCommand:
    beat = _BEAT.unpack_from(data, BEAT_BYTES * (1 + index))
    words = dict(zip(LANE_WORDS, beat, strict=False))
    at, count, slot = words["token_word"], words["num_read"], words["slot"]
    if not limits.tokens_offset <= WORD_BYTES * at <= len(data) - WORD_BYTES * count:
        raise CardError(f"command buffer: {count} tokens at word {at} lie outside of it.")
    return LaneCommand(
        slot=slot,
        start=words["start"],
        token_ids=struct.unpack_from(f"<{count}I", data, WORD_BYTES * at),
        num_draft_tokens=words["num_draft"],
        output_index=words["output_index"],
        seed=words["seed_lo"] | words["seed_hi"] << 32,
        choice_index=words["choice_index"],
        inv_temperature=words["inv_temperature"],
        tail_slot=None if words["tail_slot"] == slot else words["tail_slot"],
        prefix_len=words["prefix_len"],
        ancestor_mask=words["ancestor_mask"],
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


class TopCandidate(NamedTuple):
    """One of the best candidates of a draw. ``confidence`` in 1/255, ``logit`` in 2^-logit_frac."""

    token_id: int
    confidence: int
    logit: int


class DraftedToken(NamedTuple):
    """One draw: up to NUM_TOP candidates in the order of what it compares, the drawn one first."""

    top: tuple[TopCandidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneOutcome:
    """What one lane drafted."""

    slot: int
    tokens: tuple[DraftedToken, ...]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The drawn tokens."""
        return tuple(token.top[0].token_id for token in self.tokens)

    @property
    def confidence(self) -> tuple[int, ...]:
        """How sure the draft was of each, in 1/255."""
        return tuple(token.top[0].confidence for token in self.tokens)


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
    beats = [_beat(lane.slot, len(lane.tokens)), *map(_encode_token, lane.tokens)]
    return b"".join(beats).ljust(limits.lane_result_bytes, b"\0")


def _encode_token(token: DraftedToken) -> bytes:
    missing = (0,) * (NUM_TOP - len(token.top))
    ids, confidences, logits = ((*values, *missing) for values in zip(*token.top, strict=True))
    return _TOKEN.pack(ids[0], confidences[0], len(token.top), 0, *ids, *confidences, *logits)


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
    offsets = range(at + BEAT_BYTES, at + BEAT_BYTES * (1 + count), BEAT_BYTES)
    return LaneOutcome(slot=slot, tokens=tuple(_decode_token(raw, at) for at in offsets))


def _decode_token(raw: bytes, at: int) -> DraftedToken:
    token_id, confidence, num_top, _, *rest = _TOKEN.unpack_from(raw, at)
    if not 1 <= num_top <= NUM_TOP or (token_id, confidence) != (rest[0], rest[NUM_TOP]):
        raise CardError(
            f"result buffer: token {token_id} with {num_top} candidates, the first {rest[0]}. "
            "The card is not to be trusted: reset it."
        )
    columns = (rest[i : i + num_top] for i in (0, NUM_TOP, 2 * NUM_TOP))
    return DraftedToken(tuple(TopCandidate(*row) for row in zip(*columns, strict=True)))


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
