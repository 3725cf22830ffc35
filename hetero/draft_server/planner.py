"""What the card does next: which slots share one start, and who reads before who drafts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hetero.core.types import CardInfo, LaneWork
from hetero.draft_protocol.messages import Ask
from hetero.draft_server.slots import DraftSequence, SequenceKey
from hetero.draft_server.streams import ClientStream

MAX_DRAFT_STARTS_IN_A_ROW = 4
"""After so many starts that draft, waiting prompts get one: busy clients can't starve a new one."""


@dataclass(frozen=True, slots=True)
class PendingAsk:
    """An ask that waits for the card. ``expires_at``: on the server's clock, or None."""

    stream: ClientStream
    round_id: int
    ask: Ask
    valid_tokens: int
    expires_at: float | None

    @property
    def key(self) -> SequenceKey:
        """The sequence that asks."""
        return (self.stream.number, self.ask.sequence_id)


@dataclass(frozen=True, slots=True)
class Lane:
    """One slot's part in a start; ``pending`` is None where the card only reads."""

    sequence: DraftSequence
    pending: PendingAsk | None
    work: LaneWork


class Planner:
    """Keeps the asks that wait, oldest first, and makes starts of them.

    Drafting comes before reading: a draft start is short and somebody's verifier waits for it. A
    sequence drafts once what it has to read is no more than a round leaves behind.
    """

    def __init__(self, info: CardInfo) -> None:
        self._info = info
        self._pending: dict[SequenceKey, PendingAsk] = {}
        self._draft_starts_in_a_row = 0
        self._max_catch_up_tokens = min(info.max_draft_tokens + 1, info.max_prefill_tokens)

    def __len__(self) -> int:
        return len(self._pending)

    def has(self, key: SequenceKey) -> bool:
        """Whether a sequence's ask waits."""
        return key in self._pending

    def add(self, pending: PendingAsk) -> None:
        """Queue an ask; its sequence must have none."""
        assert pending.key not in self._pending
        self._pending[pending.key] = pending

    def remove(self, key: SequenceKey) -> PendingAsk | None:
        """Take back a sequence's ask, if it has one."""
        return self._pending.pop(key, None)

    def remove_expired(self, now: float) -> list[PendingAsk]:
        """Take back every ask whose time is over."""
        return self._remove(
            p for p in self._pending.values() if p.expires_at is not None and p.expires_at <= now
        )

    def remove_all(self) -> list[PendingAsk]:
        """Take back every ask."""
        return self._remove(self._pending.values())

    def plan(self, sequences: Iterable[DraftSequence]) -> list[Lane]:
        """The lanes of the next start; empty when there is nothing to do.

        Asks that are planned stay queued until the caller removes them.
        """
        by_key = {sequence.key: sequence for sequence in sequences}
        drafts = list(self._draft_lanes(by_key))
        reads = list(self._read_lanes(by_key))
        turn = not reads or self._draft_starts_in_a_row < MAX_DRAFT_STARTS_IN_A_ROW
        if drafts and turn:
            self._draft_starts_in_a_row += 1
            return drafts[: self._info.max_lanes]
        self._draft_starts_in_a_row = 0
        return reads[: self._info.max_lanes]

    def _draft_lanes(self, by_key: dict[SequenceKey, DraftSequence]) -> Iterator[Lane]:
        for key, pending in self._pending.items():
            sequence = by_key[key]
            if sequence.num_unread <= self._max_catch_up_tokens:
                # The last token is always read, for it gives the first draft's logits.
                start = min(sequence.agreed, len(sequence.tokens) - 1)
                work = _work(sequence, start, len(sequence.tokens), self._num_drafts(pending))
                yield Lane(sequence, pending, work)

    def _num_drafts(self, pending: PendingAsk) -> int:
        room = self._info.max_context_tokens - pending.ask.base_len
        return min(pending.ask.max_draft_tokens, self._info.max_draft_tokens, room)

    def _read_lanes(self, by_key: dict[SequenceKey, DraftSequence]) -> Iterator[Lane]:
        asked_first = [*self._pending, *(key for key in by_key if key not in self._pending)]
        for key in asked_first:
            sequence = by_key[key]
            if sequence.num_unread > self._max_catch_up_tokens:
                end = min(sequence.agreed + self._info.max_prefill_tokens, len(sequence.tokens) - 1)
                yield Lane(sequence, None, _work(sequence, sequence.agreed, end, 0))

    def _remove(self, pending: Iterable[PendingAsk]) -> list[PendingAsk]:
        removed = list(pending)
        for p in removed:
            del self._pending[p.key]
        return removed


def _work(sequence: DraftSequence, start: int, end: int, num_draft_tokens: int) -> LaneWork:
    return LaneWork(
        slot=sequence.slot.index,
        start=start,
        token_ids=tuple(sequence.tokens[start:end]),
        num_draft_tokens=num_draft_tokens,
        output_index=len(sequence.tokens) - sequence.num_prompt_tokens,
        seed=sequence.sampling.seed,
        choice_index=sequence.sampling.choice_index,
        temperature=sequence.sampling.temperature,
    )
