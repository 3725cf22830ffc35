"""The rows of a start's passes as numbers, laid as fpga/rtl/pass_scheduler.sv lays them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fpga.driver.buffers import LaneCommand
from sim.cycles.stream import I64, UNKNOWN
from sim.cycles.units import R_TOKEN
from sim.schedule import Pass, Row, card_passes


class Layout(NamedTuple):
    """``rows`` [pass, lane, column], ``groups`` [pass, lane, column]: see the engine."""

    rows: I64
    groups: I64


Drafted = Sequence[Sequence[int]]
"""What each lane drafts."""


def lay_out(
    lanes: Sequence[LaneCommand], width: int, window: int, drafted: Drafted | None = None
) -> Layout:
    """All passes. Rows that are not there see nothing; ``drafted`` None: not known."""
    passes = card_passes(lanes, width)
    layout = Layout(
        np.zeros((len(passes), width, 5), dtype=np.int64),
        np.zeros((len(passes), width, 5), dtype=np.int64),
    )
    for number, rows in enumerate(passes):
        _fill(layout, number, rows, lanes, window)
        for index, row in enumerate(rows):
            token = _token(row, lanes, drafted)
            layout.rows[number, index, R_TOKEN:] = (token, row.position)
    return layout


def _token(row: Row, lanes: Sequence[LaneCommand], drafted: Drafted | None) -> int:
    lane = lanes[row.lane]
    index = row.position - lane.start
    if index < len(lane.token_ids):
        return lane.token_ids[index]
    return UNKNOWN if drafted is None else drafted[row.lane][index - len(lane.token_ids)]


def _fill(
    layout: Layout, number: int, rows: Pass, lanes: Sequence[LaneCommand], window: int
) -> None:
    groups: dict[int, int] = {}
    seen: dict[int, int] = {}
    for index, row in enumerate(rows):
        lane = lanes[row.lane]
        tree = number == 0 and lane.ancestor_mask != 0
        if row.lane not in groups:
            groups[row.lane] = index
            low = max(row.position + 1 - window, 0) if window else 0
            end = min(row.position, lane.prefix_len) if tree else row.position
            slots = (lane.slot, lane.write_slot)
            layout.groups[number, index] = (low, lane.prefix_len, end, *slots)
        seen[row.lane] = seen.get(row.lane, 0) + 1
        visible = _tree_rows(rows, lane.ancestor_mask, row.lane) if tree else seen[row.lane]
        layout.rows[number, index, :R_TOKEN] = (visible, groups[row.lane], int(row.sampled))


def _tree_rows(rows: Pass, mask: int, own: int) -> int:
    return sum(1 for row in rows if mask >> row.lane & 1 or row.lane == own)
