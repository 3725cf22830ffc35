"""In which passes a start's tokens go through the program."""

from fpga.driver.buffers import LaneCommand
from sim.schedule import card_passes, chunked, reading


def lanes(count=1, *, start=10, read=1, drafts=4):
    return [
        LaneCommand(
            slot=slot, start=start, token_ids=tuple(range(read)), num_draft_tokens=drafts,
            output_index=0, seed=0, choice_index=0, inv_temperature=0,
        )
        for slot in range(count)
    ]  # fmt: skip


def test_passes_are_full_but_the_first():
    work = lanes(3, read=5, drafts=3)
    passes = card_passes(work, 4)
    assert [len(rows) for rows in passes] == [3, 4, 4, 4, 3, 3]
    assert [row.sampled for row in passes[3]] == [False, True, True, True]


def test_rows_of_a_lane_are_in_order_and_complete():
    rows = reading(lanes(2, start=7, read=4, drafts=1))
    for lane in (0, 1):
        assert [row.position for row in rows if row.lane == lane] == [7, 8, 9, 10]
    assert sum(row.sampled for row in rows) == 2
    assert list(chunked([], 4)) == []
    assert [list(c) for c in chunked([1, 2, 3, 4], 4)] == [[1, 2, 3, 4]]
