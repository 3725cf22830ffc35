"""Prompt lookup: what followed the last time these tokens occurred? Needs no model.

After "Prompt Lookup Decoding" (apoorvumang/prompt-lookup-decoding). Strong where an answer copies
from its prompt or repeats itself: code edits, summaries, extraction.
"""

from collections.abc import Iterable, Sequence

from hetero.core.errors import ConfigError
from hetero.core.types import Draft, DraftBatch, DraftQuery, Drafts, SequenceId

NGram = tuple[int, ...]


class NgramDrafter:
    """Continues the most recent earlier occurrence of the longest known suffix.

    Implements ``ports.Drafter``. Suffixes of ``max_ngram_tokens`` down to ``min_ngram_tokens``
    are tried. Each sequence has an index that grows with it: a round costs its new tokens only.
    """

    name = "ngram"

    def __init__(self, *, min_ngram_tokens: int = 2, max_ngram_tokens: int = 4) -> None:
        if not 1 <= min_ngram_tokens <= max_ngram_tokens <= 16:
            raise ConfigError(
                f"ngram sizes {min_ngram_tokens}..{max_ngram_tokens}: "
                "need 1 <= min <= max <= 16. Choose other sizes."
            )
        self._sizes = range(max_ngram_tokens, min_ngram_tokens - 1, -1)
        self._indexes: dict[SequenceId, NgramIndex] = {}

    async def propose(self, batch: DraftBatch) -> Drafts:
        """Look up every query; a sequence without a match is left out."""
        drafts = {}
        for query in batch.queries:
            token_ids = self._continue(query)
            if token_ids:
                drafts[query.sequence_id] = Draft(
                    query.sequence_id, len(query.token_ids), token_ids
                )
        return Drafts(drafts=drafts)

    def release(self, sequence_ids: Iterable[SequenceId]) -> None:
        """Drop the indexes of ended sequences."""
        for sequence_id in sequence_ids:
            self._indexes.pop(sequence_id, None)

    async def close(self) -> None:
        """Drop all indexes."""
        self._indexes.clear()

    def _continue(self, query: DraftQuery) -> tuple[int, ...]:
        index = self._indexes.get(query.sequence_id)
        if index is None:
            index = self._indexes[query.sequence_id] = NgramIndex(self._sizes)
        index.extend(query.token_ids)
        return index.continuation(query.max_draft_tokens)


class NgramIndex:
    """Where each n-gram of one sequence last occurred, the sequence's own end excepted."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes  # longest first
        self._token_ids: list[int] = []
        self._next_position: dict[NGram, int] = {}  # n-gram -> position that follows it

    def extend(self, token_ids: Sequence[int]) -> None:
        """Take in a longer state of the sequence; its known beginning must not have changed."""
        for position in range(len(self._token_ids), len(token_ids)):
            # Only now does the n-gram that ends before this position have a continuation.
            for size in self._sizes:
                if size <= position:
                    self._next_position[tuple(self._token_ids[position - size :])] = position
            self._token_ids.append(token_ids[position])

    def continuation(self, max_tokens: int) -> tuple[int, ...]:
        """Up to ``max_tokens`` tokens that followed the longest suffix with a past.

        Past the end of the sequence the copy goes on reading what it has just written, so that a
        pattern shorter than the draft repeats.
        """
        length = len(self._token_ids)
        for size in self._sizes:
            if size < length:
                start = self._next_position.get(tuple(self._token_ids[-size:]))
                if start is not None:
                    period = length - start
                    return tuple(self._token_ids[start + i % period] for i in range(max_tokens))
        return ()
