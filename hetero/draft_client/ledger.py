"""What the server has been told of each sequence, and what it must be told next. No I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hetero.core.ports import MonotonicClock
from hetero.core.types import Draft, DraftQuery, SequenceId
from hetero.draft_protocol.messages import Ask, Close, Commit, ErrorCode, Open, Round, ServerHello

REASONS = {
    ErrorCode.UNKNOWN_SEQUENCE: "unknown_sequence",
    ErrorCode.NO_SLOT: "no_slot",
    ErrorCode.CONTEXT_EXCEEDED: "draft_ctx",
    ErrorCode.RESOURCE_EXHAUSTED: "resource_exhausted",
    ErrorCode.OUT_OF_SYNC: "out_of_sync",
    ErrorCode.SUPERSEDED: "stale",
    ErrorCode.DEADLINE_EXPIRED: "timeout",
    ErrorCode.INVALID: "invalid",
    ErrorCode.CARD_FAILED: "card_failed",
    ErrorCode.NO_CREDIT: "no_credit",
}
"""Sequence errors as fallback reasons; codes from the future are ``refused``."""

_OPEN_OVERHEAD_BYTES = 256


@dataclass(slots=True)
class RemoteSequence:
    """The server's copy of a sequence, as far as we know.

    ``sent``: committed tokens it has; None if it has to be opened (again).
    """

    epoch: int = 0
    sent: int | None = None
    draft: Draft | None = None
    not_before: float = 0.0  # when a refused open may be tried again
    refusal: str = ""


@dataclass(slots=True)
class Plan:
    """What one round has to say."""

    closes: list[Close] = field(default_factory=list)
    opens: list[Open] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    fallbacks: dict[SequenceId, str] = field(default_factory=dict)

    def frames(self, round_id: int, max_frame_bytes: int) -> list[Round]:
        """One frame; more only where prompts would make it too large."""
        frames: list[Round] = []
        batch: list[Open] = []
        room = max_frame_bytes // 2
        for item in self.opens:
            size = 4 * len(item.token_ids) + _OPEN_OVERHEAD_BYTES
            if batch and size > room:
                frames.append(Round(round_id=round_id, opens=tuple(batch)))
                batch, room = [], max_frame_bytes // 2
            batch.append(item)
            room -= size
        frames.append(
            Round(
                round_id=round_id,
                closes=tuple(self.closes),
                opens=tuple(batch),
                commits=tuple(self.commits),
                asks=tuple(self.asks),
            )
        )
        return [
            frame for frame in frames if frame.opens or frame.commits or frame.asks or frame.closes
        ]


class Ledger:
    """Plans opens, commits and asks so that the server's copy becomes ours."""

    def __init__(self, clock: MonotonicClock, *, no_slot_retry_s: float) -> None:
        self._clock = clock
        self._no_slot_retry_s = no_slot_retry_s
        self._sequences: dict[SequenceId, RemoteSequence] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def plan(self, queries: Iterable[DraftQuery], server: ServerHello, *, deadline_us: int) -> Plan:
        """What to send for these queries; changes our idea of what the server has."""
        plan = Plan()
        for query in queries:
            remote = self._sequences.setdefault(query.sequence_id, RemoteSequence())
            if reason := self._unfit(query, remote, server, plan):
                plan.fallbacks[query.sequence_id] = reason
                continue
            _tell_tokens(query, remote, plan)
            if query.max_draft_tokens > 0:
                plan.asks.append(_ask(query, remote, server, deadline_us))
        return plan

    def drafted(self, draft: Draft) -> None:
        """Remember a draft we took, so that the next commit can name the accepted node."""
        if remote := self._sequences.get(draft.sequence_id):
            remote.draft = draft

    def failed(self, sequence_id: SequenceId, code: ErrorCode) -> str:
        """Learn from an error; returns the fallback reason."""
        reason = REASONS.get(code, "refused")
        remote = self._sequences.get(sequence_id)
        if remote is None:
            return reason
        if code in (ErrorCode.UNKNOWN_SEQUENCE, ErrorCode.OUT_OF_SYNC, ErrorCode.INVALID):
            remote.sent = None
        elif code == ErrorCode.CONTEXT_EXCEEDED:
            remote.sent, remote.refusal, remote.not_before = None, reason, float("inf")
        elif code in (ErrorCode.NO_SLOT, ErrorCode.RESOURCE_EXHAUSTED):
            remote.sent, remote.refusal = None, reason
            remote.not_before = self._clock() + self._no_slot_retry_s
        return reason

    def release(self, sequence_ids: Iterable[SequenceId]) -> list[Close]:
        """Forget sequences; returns what the server must be told."""
        gone = [(i, self._sequences.pop(i)) for i in sequence_ids if i in self._sequences]
        closes = [Close(i) for i, remote in gone if remote.sent is not None]
        if closes:
            # A slot gets free: whoever found none may ask again at once.
            for remote in self._sequences.values():
                if remote.refusal == "no_slot":
                    remote.not_before = 0.0
        return closes

    def stream_lost(self) -> None:
        """The server has nothing any more; every sequence is opened anew when it next asks."""
        for remote in self._sequences.values():
            remote.sent = None
            remote.draft = None
            remote.not_before = 0.0

    def _unfit(
        self, query: DraftQuery, remote: RemoteSequence, server: ServerHello, plan: Plan
    ) -> str:
        if len(query.token_ids) >= server.card.max_context_tokens:
            if remote.sent is not None:
                plan.closes.append(Close(query.sequence_id))
                remote.sent = None
            return "draft_ctx"
        if remote.sent is not None:
            return ""
        if 4 * len(query.token_ids) + _OPEN_OVERHEAD_BYTES > server.max_frame_bytes:
            return "resource_exhausted"
        return remote.refusal if self._clock() < remote.not_before else ""


def _tell_tokens(query: DraftQuery, remote: RemoteSequence, plan: Plan) -> None:
    count = len(query.token_ids)
    if remote.sent is not None and count == remote.sent:
        return
    remote.epoch += 1
    if remote.sent is None or count < remote.sent:
        plan.opens.append(
            Open(
                query.sequence_id,
                remote.epoch,
                tuple(query.token_ids),
                query.num_prompt_tokens,
                query.sampling,
            )
        )
    else:
        new = query.token_ids[remote.sent :]
        # The commit's own tokens are never none: the verdict adds one to what it accepts.
        accepted = min(_num_accepted(remote, new), len(new) - 1)
        tokens = tuple(new[accepted:])
        plan.commits.append(Commit(query.sequence_id, remote.epoch, remote.sent, accepted, tokens))
    remote.sent = count
    remote.draft = None


def _num_accepted(remote: RemoteSequence, new: Sequence[int]) -> int:
    draft = remote.draft
    if draft is None or draft.base_len != remote.sent:
        return 0
    pairs = zip(draft.token_ids, new, strict=False)
    return next(
        (i for i, (a, b) in enumerate(pairs) if a != b), min(len(draft.token_ids), len(new))
    )


def _ask(query: DraftQuery, remote: RemoteSequence, server: ServerHello, deadline_us: int) -> Ask:
    return Ask(
        query.sequence_id,
        remote.epoch,
        len(query.token_ids),
        min(query.max_draft_tokens, server.card.max_draft_tokens),
        deadline_us=deadline_us,
    )
