"""What the draft client tells the server, without a loop or a wire."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.draft_pair import query
from support.frames import FakeClock, server_hello

from hetero.core.types import Draft
from hetero.draft_client.ledger import Ledger
from hetero.draft_protocol.messages import ErrorCode, Nodes

SERVER = server_hello()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def ledger(clock):
    return Ledger(clock, no_slot_retry_s=0.5)


def plan(ledger, tokens, sequence_id=1, **options):
    return ledger.plan([query(sequence_id, tokens, **options)], SERVER, deadline_us=7)


def test_first_open_then_commits(ledger):
    first = plan(ledger, [1, 2], num_prompt_tokens=2)
    assert [(o.token_ids, o.num_prompt_tokens, o.epoch) for o in first.opens] == [((1, 2), 2, 1)]
    assert [(a.epoch, a.base_len, a.max_draft_tokens, a.deadline_us) for a in first.asks] == [
        (1, 2, 5, 7)
    ]
    second = plan(ledger, [1, 2, 3], num_prompt_tokens=2)
    assert second.opens == []
    (commit,) = second.commits
    assert (commit.epoch, commit.base_len, commit.accepted_node_id, commit.token_ids) == (
        2,
        2,
        0,
        (3,),
    )
    assert second.asks[0].epoch == 2


@pytest.mark.parametrize(
    "new, accepted, tokens",
    [
        ([9], 0, (9,)),
        ([5, 9], 1, (9,)),
        ([5, 6, 9], 2, (9,)),
        ([5, 6, 7, 9], 3, (9,)),
        ([5, 6, 7, 8, 9], 3, (8, 9)),
        ([5, 6], 1, (6,)),  # a commit always has a token of its own
        ([5], 0, (5,)),
    ],
)
def test_the_accepted_node_stands_for_its_path(ledger, new, accepted, tokens):
    plan(ledger, [1, 2])
    ledger.drafted(Draft(1, 2, (5, 6, 7)))
    (commit,) = plan(ledger, [1, 2, *new]).commits
    assert (commit.accepted_node_id, commit.token_ids) == (accepted, tokens)


@given(st.lists(st.integers(0, 2), max_size=5), st.lists(st.integers(0, 2), min_size=1, max_size=8))
def test_commit_always_means_the_committed_tokens(drafted, new):
    ledger = Ledger(FakeClock(), no_slot_retry_s=0)
    plan(ledger, [1, 2])
    ledger.drafted(Draft(1, 2, tuple(drafted)))
    (commit,) = plan(ledger, [1, 2, *new]).commits
    path = Nodes.chain(tuple(drafted)).path_to(commit.accepted_node_id)
    assert [*path, *commit.token_ids] == new
    assert commit.token_ids


def test_a_dropped_draft_is_never_referred_to(ledger):
    plan(ledger, [1, 2])
    ledger.drafted(Draft(1, 2, (5,)))
    plan(ledger, [1, 2, 5, 6])
    (commit,) = plan(ledger, [1, 2, 5, 6, 5, 6]).commits
    assert commit.accepted_node_id == 0


def test_asking_again_without_a_commit(ledger):
    plan(ledger, [1, 2])
    again = plan(ledger, [1, 2])
    assert (again.opens, again.commits) == ([], [])
    assert (again.asks[0].epoch, again.asks[0].base_len) == (1, 2)


def test_a_lost_stream_opens_anew_with_a_later_epoch(ledger):
    plan(ledger, [1, 2])
    plan(ledger, [1, 2, 3])
    ledger.stream_lost()
    (item,) = plan(ledger, [1, 2, 3, 4], num_prompt_tokens=2).opens
    assert (item.token_ids, item.epoch, item.num_prompt_tokens) == ((1, 2, 3, 4), 3, 2)


def test_no_slot_is_tried_again_later(ledger, clock):
    plan(ledger, [1, 2])
    assert ledger.failed(1, ErrorCode.NO_SLOT) == "no_slot"
    assert plan(ledger, [1, 2, 3]).fallbacks == {1: "no_slot"}
    clock.advance(0.6)
    assert plan(ledger, [1, 2, 3]).opens


def test_context_is_bounded_by_the_servers_word(ledger):
    assert plan(ledger, [1] * 64).fallbacks == {1: "draft_ctx"}
    assert plan(ledger, [1] * 63, sequence_id=2).asks
    outgrown = plan(ledger, [1] * 64, sequence_id=2)
    assert [c.sequence_id for c in outgrown.closes] == [2]
    assert outgrown.fallbacks == {2: "draft_ctx"}
    assert plan(ledger, [1] * 65, sequence_id=2).closes == []


def test_a_small_cards_draft_length_is_respected(ledger):
    small = dataclasses.replace(SERVER, card=dataclasses.replace(SERVER.card, max_draft_tokens=3))
    asks = ledger.plan([query(1, [1], k=9)], small, deadline_us=0).asks
    assert asks[0].max_draft_tokens == 3


def test_release_closes_only_what_is_open(ledger):
    plan(ledger, [1, 2], sequence_id=1)
    plan(ledger, [1] * 64, sequence_id=2)
    assert [c.sequence_id for c in ledger.release([1, 2, 3])] == [1]
    assert len(ledger) == 0
    assert ledger.release([1]) == []
    assert ledger.failed(1, ErrorCode.OUT_OF_SYNC) == "out_of_sync"


def test_nothing_asked_is_nothing_awaited(ledger):
    ahead = plan(ledger, [1, 2], k=0)
    assert ahead.opens
    assert ahead.asks == []
