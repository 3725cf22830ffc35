"""Ratios from speculation counters, as every report states them. None where nothing was drafted.

Counters add up, ratios do not: over many requests, ``add_up`` first.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from hetero.core.types import SpeculationStats


def mean_acceptance_length(stats: SpeculationStats) -> float | None:
    """Tokens that a verification with drafts brought: accepted ones and the target's own."""
    if stats.num_spec_steps == 0:
        return None
    return 1 + stats.num_accepted_draft_tokens / stats.num_spec_steps


def acceptance_rate(stats: SpeculationStats) -> float | None:
    """Accepted / drafted."""
    if stats.num_draft_tokens == 0:
        return None
    return stats.num_accepted_draft_tokens / stats.num_draft_tokens


def acceptance_per_position(stats: SpeculationStats, length: int) -> list[float | None]:
    """Accepted / drafted at each draft position; at least ``length`` entries."""
    drafted = _padded(stats.drafted_per_position, length)
    accepted = _padded(stats.accepted_per_position, len(drafted))
    return [a / d if d else None for a, d in zip(accepted, drafted, strict=True)]


def add_up(many: Iterable[SpeculationStats]) -> SpeculationStats:
    """The counters of many requests as if they were one."""
    every = list(many)
    return SpeculationStats(
        num_spec_steps=sum(s.num_spec_steps for s in every),
        num_draft_tokens=sum(s.num_draft_tokens for s in every),
        num_accepted_draft_tokens=sum(s.num_accepted_draft_tokens for s in every),
        drafted_per_position=_column_sums([s.drafted_per_position for s in every]),
        accepted_per_position=_column_sums([s.accepted_per_position for s in every]),
    )


def _column_sums(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip_longest(*rows, fillvalue=0))


def _padded(counts: Sequence[int], length: int) -> list[int]:
    return [*counts, *[0] * (length - len(counts))]
