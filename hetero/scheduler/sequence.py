"""One running generation, as the scheduler sees it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

from hetero.core.types import (
    DraftQuery,
    Finish,
    FinishReason,
    GenerationRequest,
    LatencyStats,
    SequenceId,
    VerifyItem,
)
from hetero.scheduler.answer import Answer
from hetero.scheduler.outbox import Outbox
from hetero.scheduler.tally import RequestTally


class TokenPrefix(Sequence[int]):
    """The first tokens of a list that only grows: a snapshot that copies nothing."""

    def __init__(self, token_ids: list[int]) -> None:
        self._token_ids = token_ids
        self._length = len(token_ids)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return self._token_ids[slice(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._token_ids[index % self._length]


@dataclass(slots=True, kw_only=True, eq=False)
class LiveSequence:
    """A request between arrival and finish.

    ``token_ids`` are committed. The target's KV cache holds the first ``num_cached`` of them: a
    sequence *reads its prompt* until only the last committed token is uncached, then *decodes*.
    """

    sequence_id: SequenceId
    request: GenerationRequest
    answer: Answer
    outbox: Outbox
    drafter_name: str
    num_speculative_tokens: int
    max_new_tokens: int
    arrived_s: float
    token_ids: list[int]
    num_cached: int = 0
    cancelled: bool = False
    ttft_s: float | None = None
    last_growth_s: float = 0.0
    tally: RequestTally = field(default_factory=RequestTally)

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.request.prompt_token_ids)

    @property
    def num_uncached(self) -> int:
        """Committed tokens that the target has yet to read."""
        return len(self.token_ids) - self.num_cached

    @property
    def decoding(self) -> bool:
        """Whether the prompt has been read and each round brings new tokens."""
        return self.answer.num_tokens > 0

    @property
    def num_draft_slots(self) -> int:
        """Drafts that make sense now: after them comes one more token, and no limit is passed."""
        remaining = self.max_new_tokens - self.answer.num_tokens
        return min(self.num_speculative_tokens, remaining - 1)

    def draft_query(self, max_draft_tokens: int) -> DraftQuery:
        """Ask for a continuation of everything committed."""
        return DraftQuery(
            sequence_id=self.sequence_id,
            token_ids=TokenPrefix(self.token_ids),
            num_prompt_tokens=self.num_prompt_tokens,
            max_draft_tokens=max_draft_tokens,
            sampling=self.request.sampling,
        )

    def verify_item(self, *, num_tokens: int, draft_token_ids: tuple[int, ...] = ()) -> VerifyItem:
        """Rows for ``num_tokens`` uncached tokens; the last committed one brings a verdict."""
        end = self.num_cached + num_tokens
        return VerifyItem(
            sequence_id=self.sequence_id,
            start=self.num_cached,
            token_ids=tuple(self.token_ids[self.num_cached : end]),
            draft_token_ids=draft_token_ids,
            sample=end == len(self.token_ids),
            num_prompt_tokens=self.num_prompt_tokens,
            sampling=self.request.sampling,
        )

    def finish(
        self,
        reason: FinishReason,
        now_s: float,
        *,
        matched_stop: str | int | None = None,
        error: str | None = None,
    ) -> Finish:
        """Sum up."""
        latency = LatencyStats(
            ttft_s=self.ttft_s,
            total_s=now_s - self.arrived_s,
            draft_s=self.tally.draft_s,
            verify_s=self.tally.verify_s,
        )
        return Finish(
            reason=reason,
            num_prompt_tokens=self.num_prompt_tokens,
            num_completion_tokens=self.answer.num_tokens,
            matched_stop=matched_stop,
            error=error,
            speculation=self.tally.speculation.stats(),
            latency=latency,
            card=self.tally.card,
            fallbacks=dict(self.tally.fallbacks),
        )
