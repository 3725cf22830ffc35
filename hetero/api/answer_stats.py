"""The block of speculation figures that clients find at ``metrics.speculative_decoding``."""

from typing import Any

from hetero.core.figures import acceptance_per_position, acceptance_rate, mean_acceptance_length
from hetero.core.types import SpeculationStats


def speculation_json(spec: SpeculationStats, num_spec_tokens: int) -> dict[str, Any]:
    """The fields that vLLM 0.33 writes, and acceptance per position.

    Null where nothing was drafted. ``num_spec_tokens``: drafts per round that the request could
    get.
    """
    return {
        "mean_acceptance_length": mean_acceptance_length(spec),
        "draft_acceptance_rate": acceptance_rate(spec),
        "acceptance_histogram": _histogram(spec, num_spec_tokens),
        "num_spec_steps": spec.num_spec_steps,
        "num_accepted_draft_tokens": spec.num_accepted_draft_tokens,
        "num_draft_tokens": spec.num_draft_tokens,
        "num_spec_tokens": num_spec_tokens,
        "acceptance_per_position": acceptance_per_position(spec, num_spec_tokens),
    }


def _histogram(spec: SpeculationStats, num_spec_tokens: int) -> list[int]:
    """Steps that accepted exactly j tokens, j = 0..K.

    Drafts are chains: a step that accepted position i accepted all positions before it.
    """
    counts = spec.accepted_per_position
    at_least = [spec.num_spec_steps, *counts, *[0] * (num_spec_tokens - len(counts))]
    return [more - fewer for more, fewer in zip(at_least, [*at_least[1:], 0], strict=True)]
