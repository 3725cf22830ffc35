"""Plain decoding, as a drafter that never guesses."""

from collections.abc import Iterable

from hetero.core.types import DraftBatch, Drafts, SequenceId


class NoDrafter:
    """Answers every query with nothing. Implements ``ports.Drafter``."""

    name = "none"

    async def propose(self, batch: DraftBatch) -> Drafts:
        """Guess nothing."""
        del batch
        return Drafts()

    def release(self, sequence_ids: Iterable[SequenceId]) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing runs."""
