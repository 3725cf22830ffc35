"""Frames of the draft protocol, free of wire types. Field meanings and units: draft.proto.

request:  ClientHello | Round      | Heartbeat | Goaway | UnknownFrame
response: ServerHello | RoundReply | Heartbeat | Goaway | UnknownFrame
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hetero.core.types import CardInfo, CardUsage, SamplingParams


class Feature(IntEnum):
    """Abilities beyond chain drafts, negotiated in the hello."""

    TREE = 1
    PREDRAFT = 2
    Q_ROWS = 3
    HIDDEN_STATES = 4
    RESYNC = 5
    INCREMENTAL = 6


class ErrorCode(IntEnum):
    """Why one sequence got no draft. UNSPECIFIED also stands for codes from the future."""

    UNSPECIFIED = 0
    UNKNOWN_SEQUENCE = 1
    NO_SLOT = 2
    CONTEXT_EXCEEDED = 3
    RESOURCE_EXHAUSTED = 4
    OUT_OF_SYNC = 5
    SUPERSEDED = 6
    DEADLINE_EXPIRED = 7
    INVALID = 8
    CARD_FAILED = 9
    NO_CREDIT = 10


class GoawayReason(IntEnum):
    """Why a stream ends. UNSPECIFIED also stands for reasons from the future."""

    UNSPECIFIED = 0
    BYE = 1
    DRAINING = 2
    VERSION = 3
    PAIR = 4
    PROTOCOL = 5
    SILENCE = 6
    BUSY = 7
    REPLACED = 8


class CloseReason(IntEnum):
    """Why a sequence ends."""

    UNSPECIFIED = 0
    FINISHED = 1
    CANCELLED = 2


class WireVerifyMode(IntEnum):
    """How drafts will be verified."""

    UNSPECIFIED = 0
    COUPLED = 1
    REJECTION = 2
    BLOCK = 3


# ---- both ways ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Sign of life; times on the sender's monotonic clock."""

    sent_us: int
    echo_us: int = 0
    echo_delay_us: int = 0
    serving: bool = True


@dataclass(frozen=True, slots=True)
class Goaway:
    """The sender ends the stream."""

    reason: GoawayReason
    detail: str = ""
    min_protocol_version: int = 0
    max_protocol_version: int = 0


@dataclass(frozen=True, slots=True)
class UnknownFrame:
    """A frame kind from a newer peer: to be counted and ignored."""


# ---- hello --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHello:
    """Who the verifier is and what it must have."""

    min_protocol_version: int
    max_protocol_version: int
    build: str
    client_id: int
    target_model: str
    tokenizer_sha256: str
    vocab_size: int
    features: frozenset[Feature] = frozenset()
    max_frame_bytes: int
    heartbeat_timeout_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerHello:
    """Who the card host is and what it takes. Limits of the card are in ``card``."""

    protocol_version: int
    build: str
    card: CardInfo
    max_nodes: int
    max_depth: int
    max_frame_bytes: int
    features: frozenset[Feature] = frozenset()
    round_credits: int
    heartbeat_interval_us: int
    serving: bool


# ---- verifier -> card host ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """Begins a sequence with all its committed tokens."""

    sequence_id: int
    epoch: int
    token_ids: tuple[int, ...]
    num_prompt_tokens: int
    sampling: SamplingParams
    verify_mode: WireVerifyMode = WireVerifyMode.COUPLED


@dataclass(frozen=True, slots=True)
class Commit:
    """Appends the path to ``accepted_node_id`` (0: none), then ``token_ids``."""

    sequence_id: int
    epoch: int
    base_len: int
    accepted_node_id: int
    token_ids: tuple[int, ...]
    prefix_hash: bytes = b""


@dataclass(frozen=True, slots=True)
class Ask:
    """Requests a draft that continues exactly ``base_len`` tokens."""

    sequence_id: int
    epoch: int
    base_len: int
    max_draft_tokens: int
    max_nodes: int = 0
    deadline_us: int = 0


@dataclass(frozen=True, slots=True)
class Close:
    """Ends a sequence."""

    sequence_id: int
    reason: CloseReason = CloseReason.FINISHED


@dataclass(frozen=True, slots=True)
class Resync:
    """Asks how much of a prefix the server still holds."""

    sequence_id: int
    epoch: int
    committed_len: int
    prefix_hash: bytes


@dataclass(frozen=True, slots=True, eq=False)
class HiddenStates:
    """Target hidden states [tokens, layers, width] from position ``start``.

    dtype int8, float16, float32, or uint16 holding bfloat16 (NumPy has none).
    """

    sequence_id: int
    epoch: int
    start: int
    values_tld: NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class SequenceError:
    """Why one sequence got no draft; all others go on."""

    sequence_id: int
    code: ErrorCode
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Changes of sequences and requests for drafts, in the order the server takes them.

    ``malformed`` is filled by the decoder: entries that broke the protocol harm their own
    sequence only.
    """

    round_id: int
    closes: tuple[Close, ...] = ()
    opens: tuple[Open, ...] = ()
    commits: tuple[Commit, ...] = ()
    resyncs: tuple[Resync, ...] = ()
    hidden_states: tuple[HiddenStates, ...] = ()
    asks: tuple[Ask, ...] = ()
    malformed: tuple[SequenceError, ...] = ()


# ---- card host -> verifier ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QRows:
    """Sparse integer draft probabilities, compressed rows; each row sums to 2^16."""

    row_starts: tuple[int, ...]
    token_ids: tuple[int, ...]
    weights: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Nodes:
    """A draft as nodes {id, parent, token}: a chain, or a tree rooted in the prefix (id 0)."""

    ids: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()
    q_rows: QRows | None = None

    @classmethod
    def chain(cls, tokens: tuple[int, ...], confidence: tuple[float, ...] = ()) -> "Nodes":
        """Token i becomes node i + 1, its parent node i."""
        ids = tuple(range(1, len(tokens) + 1))
        return cls(ids, tuple(range(len(tokens))), tokens, confidence)

    @property
    def is_chain(self) -> bool:
        """True if each node follows the one before it, ids counting from 1."""
        count = len(self.ids)
        return self.ids == tuple(range(1, count + 1)) and self.parents == tuple(range(count))

    def path_to(self, node_id: int) -> tuple[int, ...] | None:
        """Tokens from the root to a node; () for node 0, None if there is no such node."""
        where = {node: i for i, node in enumerate(self.ids)}
        path: list[int] = []
        while node_id:
            if node_id not in where:
                return None
            path.append(self.tokens[where[node_id]])
            node_id = self.parents[where[node_id]]
        return tuple(reversed(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftReply:
    """A proposed continuation of ``base_len`` tokens, void once the epoch has moved on."""

    sequence_id: int
    epoch: int
    base_len: int
    nodes: Nodes
    usage: CardUsage = field(default_factory=CardUsage)
    simulated: bool = False
    valid_tokens: int = 0
    predrafted_from: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class ResyncResult:
    """How much of a prefix the server holds."""

    sequence_id: int
    epoch: int
    matched_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReply:
    """Answers to a round's asks. ``malformed`` (decoder only): sequences with a bad draft."""

    round_id: int
    drafts: tuple[DraftReply, ...] = ()
    errors: tuple[SequenceError, ...] = ()
    round_credits: int = 0
    resyncs: tuple[ResyncResult, ...] = ()
    malformed: tuple[SequenceError, ...] = ()


RequestFrame: TypeAlias = ClientHello | Round | Heartbeat | Goaway | UnknownFrame
ResponseFrame: TypeAlias = ServerHello | RoundReply | Heartbeat | Goaway | UnknownFrame
