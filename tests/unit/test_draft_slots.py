"""Slots, plans and shares of the draft server, without a loop or a wire."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cards import card_info

from hetero.core.errors import CapacityError
from hetero.core.types import CardUsage, SamplingParams
from hetero.draft_protocol.liveness import Pulse
from hetero.draft_protocol.messages import Ask, Open
from hetero.draft_server.card_loop import split_usage
from hetero.draft_server.planner import MAX_DRAFT_STARTS_IN_A_ROW, PendingAsk, Planner
from hetero.draft_server.slots import SlotTable, common_prefix_len
from hetero.draft_server.streams import ClientStream

small_lists = st.lists(st.integers(0, 2), max_size=600)


@given(small_lists, small_lists, st.data())
def test_common_prefix(a, b, data):
    expected = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    known = data.draw(st.integers(0, expected))
    assert common_prefix_len(a, b, known) == expected


def opening(*tokens, epoch=1):
    return Open(7, epoch, tokens, len(tokens), SamplingParams())


def test_slots_run_out_and_come_back():
    table = SlotTable(2)
    table.open((1, 1), opening(1))
    table.open((2, 1), opening(2))
    with pytest.raises(CapacityError, match="all 2 card slots"):
        table.open((1, 2), opening(3))
    table.close((1, 1))
    table.close((1, 1))
    table.open((1, 2), opening(3))
    table.close_stream(1)
    assert len(table) == 1


def test_opening_again_keeps_the_slot():
    table = SlotTable(2)
    first = table.open((1, 1), opening(1, 2))
    again = table.open((1, 1), opening(1, 3, epoch=4))
    assert again is first
    assert again.tokens == [1, 3]
    assert again.epoch == 4


def test_a_free_slot_with_the_right_prefix_is_preferred():
    table = SlotTable(3)
    table.slots[1].history[:] = [1, 2, 3, 4]
    table.slots[2].history[:] = [1, 2]
    sequence = table.open((1, 1), opening(1, 2, 3, 9))
    assert sequence.slot.index == 1
    assert sequence.agreed == 3
    assert sequence.slot.history == [1, 2, 3]


def test_rollback_by_verdict():
    """After a draft of d0..d4 on L tokens the card holds L + 4; then the verdict comes."""
    for num_accepted in range(6):
        table = SlotTable(1)
        sequence = table.open((1, 1), opening(1, 2, 3))
        drafted = [10, 11, 12, 13, 14]
        sequence.slot.history = [1, 2, 3, *drafted[:-1]]
        sequence.roll_back()
        assert sequence.agreed == 3
        sequence.commit(2, [*drafted[:num_accepted], 99])
        assert sequence.agreed == min(3 + num_accepted, 7)
        assert len(sequence.slot.history) == sequence.agreed


def test_a_failed_card_holds_nothing():
    table = SlotTable(2)
    sequence = table.open((1, 1), opening(1, 2, 3))
    sequence.slot.history = [1, 2, 3]
    sequence.roll_back()
    table.card_lost_all()
    assert sequence.agreed == 0
    assert sequence.num_unread == 3


@given(st.integers(0, 2**40), st.lists(st.integers(1, 200), min_size=1, max_size=16))
def test_shares_of_a_start_add_up(cycles, weights):
    shares = split_usage(CardUsage(cycles, 0.125, 0.5), weights)
    assert sum(share.cycles for share in shares) == cycles
    assert sum(share.modelled_s for share in shares) == pytest.approx(0.125)
    assert sum(share.host_s for share in shares) == pytest.approx(0.5)
    assert all(min(share.cycles, share.modelled_s, share.host_s) >= 0 for share in shares)


# ---- planner ------------------------------------------------------------------------------------


class Board:
    """A planner over sequences that a test sets up by hand."""

    def __init__(self, **info):
        self.info = card_info(num_slots=16, max_lanes=2, **info)
        self.table = SlotTable(16)
        self.planner = Planner(self.info)
        self.stream = ClientStream(
            1, Pulse(lambda: 0.0, interval_s=1, timeout_s=3), round_credits=9
        )

    def open(self, sequence_id, num_tokens, *, read=0):
        tokens = tuple(random.Random(sequence_id).choices(range(256), k=num_tokens))
        sequence = self.table.open(
            (1, sequence_id), Open(sequence_id, 1, tokens, num_tokens, SamplingParams())
        )
        sequence.slot.history[:] = tokens[:read]
        sequence.roll_back()
        return sequence

    def ask(self, sequence, *, k=4, expires_at=None):
        ask = Ask(sequence.key[1], sequence.epoch, len(sequence.tokens), k)
        self.planner.add(PendingAsk(self.stream, 1, ask, sequence.agreed, expires_at))

    def plan(self):
        return [
            (
                lane.sequence.key[1],
                lane.work.start,
                len(lane.work.token_ids),
                lane.work.num_draft_tokens,
            )
            for lane in self.planner.plan(self.table)
        ]


def test_drafts_before_reads_oldest_ask_first():
    board = Board()
    long = board.open(1, 100)
    a, b, c = (board.open(i, 5, read=4) for i in (2, 3, 4))
    board.ask(long)
    for sequence in (c, a, b):
        board.ask(sequence)
    assert board.plan() == [(4, 4, 1, 4), (2, 4, 1, 4)]
    board.planner.remove(c.key)
    board.planner.remove(a.key)
    assert board.plan() == [(3, 4, 1, 4)]
    board.planner.remove(b.key)
    assert board.plan() == [(1, 0, 32, 0)]


def test_reading_stops_one_short_so_that_a_draft_has_its_logits():
    board = Board(max_draft_tokens=4)
    sequence = board.open(1, 40, read=20)
    assert board.plan() == [(1, 20, 19, 0)]
    sequence.slot.history[:] = sequence.tokens[:39]
    sequence.roll_back()
    assert board.plan() == []
    board.ask(sequence)
    assert board.plan() == [(1, 39, 1, 4)]


def test_a_fully_read_sequence_reads_its_last_token_again():
    board = Board()
    sequence = board.open(1, 10, read=10)
    board.ask(sequence)
    assert board.plan() == [(1, 9, 1, 4)]


def test_waiting_prompts_get_their_turn():
    board = Board()
    board.open(1, 100)
    board.ask(board.open(2, 5, read=4))
    plans = [board.plan() for _ in range(2 * MAX_DRAFT_STARTS_IN_A_ROW)]
    assert plans.count([(1, 0, 32, 0)]) == 1
    assert plans[MAX_DRAFT_STARTS_IN_A_ROW] == [(1, 0, 32, 0)]


def test_who_asked_is_read_before_who_did_not():
    board = Board()
    board.open(1, 100)
    board.open(2, 100)
    board.ask(board.open(3, 100))
    assert [lane[0] for lane in board.plan()] == [3, 1]


def test_drafts_end_at_the_context():
    board = Board(max_context_tokens=64)
    board.ask(board.open(1, 62, read=61), k=16)
    assert board.plan() == [(1, 61, 1, 2)]


def test_expired_asks_are_taken_back():
    board = Board()
    for sequence_id, expires_at in ((1, 5.0), (2, None), (3, 6.0)):
        board.ask(board.open(sequence_id, 3), expires_at=expires_at)
    assert [p.ask.sequence_id for p in board.planner.remove_expired(5.5)] == [1]
    assert len(board.planner) == 2
    assert len(board.planner.remove_all()) == 2
    assert len(board.planner) == 0
