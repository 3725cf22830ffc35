"""Ratios of sums, and None instead of a division by zero."""

import pytest

from hetero.core.figures import (
    acceptance_per_position,
    acceptance_rate,
    add_up,
    mean_acceptance_length,
)
from hetero.core.types import SpeculationStats

SHORT = SpeculationStats(2, 4, 3, (2, 2), (2, 1))
LONG = SpeculationStats(1, 4, 0, (1, 1, 1, 1), (0, 0, 0, 0))


def test_of_one_request():
    assert mean_acceptance_length(SHORT) == 2.5
    assert acceptance_rate(SHORT) == 0.75
    assert acceptance_per_position(SHORT, 4) == [1.0, 0.5, None, None]


def test_of_many():
    both = add_up([SHORT, LONG])
    assert both == SpeculationStats(3, 8, 3, (3, 3, 1, 1), (2, 1, 0, 0))
    assert mean_acceptance_length(both) == 2.0
    assert acceptance_per_position(both, 2) == pytest.approx([2 / 3, 1 / 3, 0, 0])


def test_nothing_drafted_is_none():
    """vllm-project/vllm#24322: ratios without drafts were NaN or divided by zero."""
    nothing = add_up([])
    assert mean_acceptance_length(nothing) is None
    assert acceptance_rate(nothing) is None
    assert acceptance_per_position(nothing, 2) == [None, None]
    assert acceptance_per_position(nothing, 0) == []
