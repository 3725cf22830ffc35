"""In which order a start's tokens go through the program: known before anything is computed.

A *row* is one token in flight. A *pass* takes up to the card's number of lanes of rows through the
program at once, so that they share the weights. First come the tokens to read, those that only
fill the KV cache before those whose successor is drawn, packed so that only the first pass may be
short; then one pass for each further drafted token.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from fpga.driver.buffers import LaneCommand

T = TypeVar("T")


class Row(NamedTuple):
    """``lane``: index in the command. ``sampled``: its successor is drawn."""

    lane: int
    position: int
    sampled: bool


Pass = tuple[Row, ...]


def reading(lanes: Sequence[LaneCommand]) -> list[Row]:
    """Rows of all tokens to read; a lane's rows are in rising order of position."""
    filling: list[Row] = []
    sampled: list[Row] = []
    for index, lane in enumerate(lanes):
        last = lane.start + len(lane.token_ids) - 1
        for position in range(lane.start, last + 1):
            is_sampled = position == last and lane.num_draft_tokens > 0
            (sampled if is_sampled else filling).append(Row(index, position, is_sampled))
    return filling + sampled


def drafting(lanes: Sequence[LaneCommand]) -> Iterator[Pass]:
    """Passes that feed drafted tokens back: the last drafted token is never read."""
    for step in range(1, max((lane.num_draft_tokens for lane in lanes), default=0)):
        yield tuple(
            Row(index, lane.start + len(lane.token_ids) + step - 1, True)
            for index, lane in enumerate(lanes)
            if lane.num_draft_tokens > step
        )


def chunked(rows: Sequence[T], width: int) -> Iterator[Sequence[T]]:
    """Cut into runs of ``width``, the first one shorter if they do not come out even."""
    first = len(rows) % width or width
    if rows:
        yield rows[:first]
    for start in range(first, len(rows), width):
        yield rows[start : start + width]


def card_passes(lanes: Sequence[LaneCommand], width: int) -> list[Pass]:
    """All passes of a start on a card with ``width`` lanes."""
    return [tuple(chunk) for chunk in chunked(reading(lanes), width)] + list(drafting(lanes))
