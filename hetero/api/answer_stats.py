"""Speculation counters as clients see them: raw counts, and ratios that may be null."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from hetero.core.types import SpeculationStats


def add_up(stats: Iterable[SpeculationStats]) -> SpeculationStats:
    """Counters of several answers together; ratios are taken of the sums."""
    items = list(stats)
    return SpeculationStats(
        num_spec_steps=sum(s.num_spec_steps for s in items),
        num_draft_tokens=sum(s.num_draft_tokens for s in items),
        num_accepted_draft_tokens=sum(s.num_accepted_draft_tokens for s in items),
        drafted_per_position=_add_columns(s.drafted_per_position for s in items),
        accepted_per_position=_add_columns(s.accepted_per_position for s in items),
    )


def mean_acceptance_length(spec: SpeculationStats) -> float | None:
    """(accepted + 1) per verification that had drafts; None where there was none."""
    if not spec.num_spec_steps:
        return None
    return 1 + spec.num_accepted_draft_tokens / spec.num_spec_steps


def draft_acceptance_rate(spec: SpeculationStats) -> float | None:
    """Accepted / drafted; None where nothing was drafted."""
    if not spec.num_draft_tokens:
        return None
    return spec.num_accepted_draft_tokens / spec.num_draft_tokens


def speculation_json(spec: SpeculationStats, num_spec_tokens: int) -> dict[str, Any]:
    """The block that vLLM 0.33 writes at ``metrics.speculative_decoding``, and a bit more.

    ``acceptance_histogram[j]``: steps that accepted exactly j tokens, j = 0..K. Drafts are
    chains, so a step that accepted position i accepted all before it.
    """
    length = max(num_spec_tokens, len(spec.drafted_per_position), len(spec.accepted_per_position))
    at_least = _padded(spec.accepted_per_position, length)
    steps_with = [spec.num_spec_steps, *at_least]
    exactly = [more - fewer for more, fewer in zip(steps_with, [*at_least, 0], strict=True)]
    drafted = _padded(spec.drafted_per_position, length)
    return {
        "mean_acceptance_length": mean_acceptance_length(spec),
        "draft_acceptance_rate": draft_acceptance_rate(spec),
        "acceptance_histogram": exactly,
        "num_spec_steps": spec.num_spec_steps,
        "num_accepted_draft_tokens": spec.num_accepted_draft_tokens,
        "num_draft_tokens": spec.num_draft_tokens,
        "num_spec_tokens": num_spec_tokens,
        "acceptance_per_position": [
            accepted / total if total else None
            for accepted, total in zip(at_least, drafted, strict=True)
        ],
    }


def _padded(counts: Sequence[int], length: int) -> list[int]:
    return [*counts, *[0] * (length - len(counts))]


def _add_columns(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip_longest(*rows, fillvalue=0))
