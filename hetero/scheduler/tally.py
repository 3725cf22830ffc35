"""Counters that grow: of one request, and of the engine."""

from collections import Counter
from dataclasses import dataclass, field

from hetero.core.types import CardUsage, SpeculationStats


@dataclass(slots=True)
class SpeculationTally:
    """Adds up verifications that had drafts.

    A step emits its accepted drafts and one token of the target's. When a stop ends the answer
    inside the accepted drafts, the token that ended it takes that one's place: ``accepted + 1``
    is what the step emitted, always.
    """

    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    drafted_per_position: list[int] = field(default_factory=list)
    accepted_per_position: list[int] = field(default_factory=list)

    def add_step(self, *, num_drafted: int, num_emitted: int) -> None:
        """Count one verification; a step without drafts is not one of speculation."""
        if num_drafted == 0:
            return
        num_accepted = num_emitted - 1
        self.num_spec_steps += 1
        self.num_draft_tokens += num_drafted
        self.num_accepted_draft_tokens += num_accepted
        _add_to_first(self.drafted_per_position, num_drafted, length=num_drafted)
        _add_to_first(self.accepted_per_position, num_accepted, length=num_drafted)

    def stats(self) -> SpeculationStats:
        """The counters as they stand."""
        return SpeculationStats(
            num_spec_steps=self.num_spec_steps,
            num_draft_tokens=self.num_draft_tokens,
            num_accepted_draft_tokens=self.num_accepted_draft_tokens,
            drafted_per_position=tuple(self.drafted_per_position),
            accepted_per_position=tuple(self.accepted_per_position),
        )


@dataclass(slots=True)
class RequestTally:
    """What one request has cost and gained so far. Wall-clock seconds but for the card's."""

    speculation: SpeculationTally = field(default_factory=SpeculationTally)
    draft_s: float = 0.0
    verify_s: float = 0.0
    card: CardUsage = field(default_factory=CardUsage)
    fallbacks: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class EngineTally:
    """What the engine has done since it started."""

    speculation: SpeculationTally = field(default_factory=SpeculationTally)
    num_steps: int = 0
    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)


def _add_to_first(counts: list[int], n: int, *, length: int) -> None:
    """Add 1 to the first ``n`` counts, in a list of at least ``length``."""
    counts.extend([0] * (length - len(counts)))
    for i in range(n):
        counts[i] += 1
