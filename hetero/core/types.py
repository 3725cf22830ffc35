"""What the parts of hetero hand to each other. Plain, frozen, free of wire and tensor types.

Vocabulary: a *sequence* is one running generation. Its *committed* tokens are prompt plus output
that will never change. A *draft* is a guess at what follows them; the verifier *accepts* a prefix
of it and adds one token of its own: *recovered* after a rejection, *bonus* after none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, NewType

SequenceId = NewType("SequenceId", int)
"""Unique for the life of an engine process; never reused."""

FinishReason = Literal["stop", "length", "cancelled", "error"]
VerifyMode = Literal["coupled"]

MAX_SPECULATIVE_TOKENS = 64
"""Longest draft anyone may ask for in one round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the target picks each token. Validated by ``hetero.core.validation`` at the edge.

    temperature 0 is greedy. top_k 0, top_p 1.0 and min_p 0.0 mean off. The filters apply in the
    order temperature, min_p, top_k, top_p. ``seed`` is 64 bits, always set by the time a request
    runs; ``choice_index`` tells apart the n answers to one request.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    choice_index: int = 0
    max_tokens: int = 256
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeParams:
    """A request's wish about speculation. None leaves the choice to the server."""

    enabled: bool = True
    num_speculative_tokens: int | None = None
    method: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One request as the scheduler takes it: tokenised, validated, its seed drawn."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    speculative: SpeculativeParams = field(default_factory=SpeculativeParams)
    deadline_s: float | None = None  # on the scheduler's monotonic clock


# ---- drafting ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DraftQuery:
    """One sequence that could use a draft this round.

    ``token_ids``: every committed token, prompt first. It is a snapshot of fixed length; the
    caller may share storage with its own list, the drafter must not keep or change it.
    """

    sequence_id: SequenceId
    token_ids: Sequence[int]
    num_prompt_tokens: int
    max_draft_tokens: int
    sampling: SamplingParams


@dataclass(frozen=True, slots=True)
class DraftBatch:
    """All sequences that want drafts in one round; ``round_id`` grows by one a round."""

    round_id: int
    queries: tuple[DraftQuery, ...]


@dataclass(frozen=True, slots=True)
class CardUsage:
    """Card work behind some drafts.

    ``modelled_s``: the card's own time, cycles over its clock; virtual when simulated. ``host_s``:
    what starting it, synchronising and waiting would cost a host, modelled; 0 for a real card,
    whose host spends that time.
    """

    cycles: int = 0
    modelled_s: float = 0.0
    host_s: float = 0.0

    def __add__(self, other: "CardUsage") -> "CardUsage":
        return CardUsage(
            self.cycles + other.cycles,
            self.modelled_s + other.modelled_s,
            self.host_s + other.host_s,
        )

    @property
    def total_s(self) -> float:
        """What whoever waits for the drafts would wait."""
        return self.modelled_s + self.host_s


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposed continuation of one sequence: token i follows ``base_len + i`` tokens."""

    sequence_id: SequenceId
    base_len: int
    token_ids: tuple[int, ...]
    confidence: tuple[float, ...] = ()  # 0..1 per token, for scheduling only; may be empty
    card: CardUsage = CardUsage()


@dataclass(frozen=True, slots=True)
class Drafts:
    """Answer to a DraftBatch. A sequence in neither mapping simply had nothing to guess.

    ``fallbacks`` says why a sequence goes undrafted although it asked: a short stable reason
    (``timeout``, ``disconnected``, ``no_slot``, ``draft_ctx``, ...) that becomes a metric label.
    """

    drafts: Mapping[SequenceId, Draft] = field(default_factory=dict)
    fallbacks: Mapping[SequenceId, str] = field(default_factory=dict)


# ---- verifying --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VerifyItem:
    """Rows of one sequence in a verify step.

    ``token_ids`` are committed tokens that the KV cache lacks, starting at position ``start``;
    ``draft_token_ids`` follow them. With ``sample`` False this is a prefill chunk that stops
    short of the last committed token: no drafts, no verdict.
    """

    sequence_id: SequenceId
    start: int
    token_ids: tuple[int, ...]
    draft_token_ids: tuple[int, ...]
    sample: bool
    num_prompt_tokens: int
    sampling: SamplingParams


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the target says: ``num_accepted`` drafts stand, then ``next_token_id`` follows.

    ``next_token_id`` is the bonus token if every draft was accepted, else the recovered one.
    """

    sequence_id: SequenceId
    num_drafted: int
    num_accepted: int
    next_token_id: int


@dataclass(frozen=True, slots=True)
class KvUsage:
    """Block accounting of the verifier's cache. free + committed + reserved == total."""

    total_blocks: int
    free_blocks: int
    committed_blocks: int
    reserved_blocks: int
    num_sequences: int


@dataclass(frozen=True, slots=True)
class VerifierInfo:
    """What the wiring and the API need to know of a loaded target."""

    model_name: str
    vocab_size: int  # of the tokenizer: ids at or above it are never sampled
    max_context_tokens: int
    eos_token_ids: tuple[int, ...]
    tokenizer_sha256: str
    system_fingerprint: str
    device: str
    dtype: str


# ---- answers ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpeculationStats:
    """Counters of one request after stop trimming; add them up before dividing.

    A *step* is a verification that had at least one draft token. Position lists are indexed by
    draft position and may differ in length between requests.
    """

    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    drafted_per_position: tuple[int, ...] = ()
    accepted_per_position: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LatencyStats:
    """Wall-clock seconds of one request: waited in all, and for drafts and verdicts."""

    ttft_s: float | None = None
    total_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Finish:
    """How a request ended. ``matched_stop`` is the stop string or stop id that ended it."""

    reason: FinishReason
    num_prompt_tokens: int
    num_completion_tokens: int
    matched_stop: str | int | None = None
    error: str | None = None
    speculation: SpeculationStats = SpeculationStats()
    latency: LatencyStats = LatencyStats()
    card: CardUsage = CardUsage()
    fallbacks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delta:
    """New text and the tokens behind it; ``text`` may lag ``token_ids`` while held back."""

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    finish: Finish | None = None


# ---- the card ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CardInfo:
    """A loaded card: what it is, what it holds, what it can take."""

    device: str  # "u55c", "kv260", ...
    backend: str  # "functional", "rtl", "pynq", ...
    simulated: bool
    num_slots: int
    max_lanes: int
    max_context_tokens: int
    max_draft_tokens: int  # most tokens one start may draft for a slot
    max_prefill_tokens: int  # most tokens one start may read for a slot
    vocab_size: int
    clock_hz: int
    artefact_sha256: str
    target_tokenizer_sha256: str


@dataclass(frozen=True, slots=True)
class LaneWork:
    """Work for one slot in one start of the card.

    The slot's KV is valid for ``start`` tokens; anything beyond is dead, which is how rollback
    works. The card reads ``token_ids`` at positions ``start``.. and then, when
    ``num_draft_tokens`` > 0, drafts that many with feedback, noise counters beginning at
    ``output_index`` for the first. temperature 0 drafts greedily.

    Several continuations of one sequence share its KV: positions below ``prefix_len`` lie in
    ``slot``, those from there on in ``tail_slot``, where new ones are written too. None: ``slot``
    itself. No two lanes of a start write to one slot.

    ``ancestor_mask`` makes the lanes of a start nodes of a token tree. Each reads one token, at the
    position of its depth, and sees the first ``prefix_len`` positions of ``slot``, itself, and what
    lane m reads in this start for each bit m. 0: an ordinary lane.
    """

    slot: int
    start: int
    token_ids: tuple[int, ...]
    num_draft_tokens: int
    output_index: int
    seed: int
    choice_index: int
    temperature: float
    tail_slot: int | None = None
    prefix_len: int = 0
    ancestor_mask: int = 0

    @property
    def write_slot(self) -> int:
        """Where the KV of new positions goes."""
        return self.slot if self.tail_slot is None else self.tail_slot


class DraftCandidate(NamedTuple):
    """A token that the draft considered. ``confidence``: its share, 0..1, without the noise."""

    token_id: int
    confidence: float
    logit: float


@dataclass(frozen=True, slots=True)
class LaneResult:
    """What one slot's work gave. KV is valid for start + len(read) + len(drafted) - 1 tokens.

    (The last drafted token has not been read back; with nothing drafted there is no - 1.)

    ``top``: for each drafted token the best candidates of its draw, itself first; empty from a
    card that does not tell.
    """

    slot: int
    token_ids: tuple[int, ...]
    confidence: tuple[float, ...]
    top: tuple[tuple[DraftCandidate, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class CardRun:
    """One start of the card."""

    lanes: tuple[LaneResult, ...]
    usage: CardUsage
