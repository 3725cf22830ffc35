"""The scripted cards must behave as a card would, or the tests above them prove nothing."""

import pytest
from support.cards import (
    FailingCard,
    FakeCard,
    GarbageCard,
    ScriptedCard,
    card_info,
    hash_model,
    next_from_sequences,
    wrong,
)

from hetero.core.errors import CardError
from hetero.core.types import LaneWork


def lane(start, token_ids, num_draft_tokens=0, slot=0):
    return LaneWork(slot, start, tuple(token_ids), num_draft_tokens, 0, 0, 0, 0.0)


def draft(card, start, token_ids, num_draft_tokens=3):
    return list(card.run([lane(start, token_ids, num_draft_tokens)]).lanes[0].token_ids)


def continue_with(model, tokens, count):
    tokens = list(tokens)
    for _ in range(count):
        tokens.append(model(tokens))
    return tokens[-count:]


def test_right_card_drafts_what_the_model_says_across_rounds():
    model = hash_model()
    card = FakeCard(model)
    first = draft(card, 0, [1, 2, 3])
    assert first == continue_with(model, [1, 2, 3], 3)
    # Two accepted, one recovered: the card holds 1 2 3 d0 d1, so reading goes on at 5.
    committed = [1, 2, 3, *first[:2], 9]
    assert draft(card, 5, committed[5:]) == continue_with(model, committed, 3)
    assert card.faults == []


def test_a_hole_in_the_cache_changes_the_drafts_and_is_noted():
    model = hash_model()
    card = FakeCard(model)
    first = draft(card, 0, [1, 2, 3])
    committed = [1, 2, 3, *first, 9]
    # All three accepted: the last one was never read back, so starting at 6 skips it.
    assert draft(card, 6, [9]) != continue_with(model, committed, 3)
    assert card.faults == ["start 6 beyond the 5 tokens held"]


def test_a_stale_token_in_the_cache_changes_the_drafts():
    model = hash_model()
    card = FakeCard(model)
    draft(card, 0, [1, 2, 3])
    committed = [1, 2, 3, 77, 9]
    assert draft(card, 4, [9]) != continue_with(model, committed, 3)


def test_replay_continues_the_sequence_with_the_same_prefix():
    next_token = next_from_sequences([[1, 2, 3, 4], [1, 2, 9, 8]], default=0)
    assert next_token([1, 2]) == 3
    assert next_token([1, 2, 9]) == 8
    assert next_token([5]) == 0


def test_wrong_never_agrees():
    model = hash_model(7)
    assert all(wrong(model, 7)([i]) != model([i]) for i in range(50))


def test_garbage_leaves_the_vocabulary_sometimes_and_repeats_itself():
    info = card_info(vocab_size=50)
    tokens = draft(GarbageCard(3, info=info), 0, [1], 16)
    assert tokens == draft(GarbageCard(3, info=info), 0, [1], 16)
    assert any(token >= 50 for token in tokens)


def test_script_runs_out_into_empty_drafts():
    card = ScriptedCard([[5, 6, 7, 8], []])
    assert [draft(card, 0, [1], 2) for _ in range(3)] == [[5, 6], [], []]


def test_failing_card_loses_its_cache():
    card = FailingCard(FakeCard(hash_model()), {2})
    draft(card, 0, [1, 2])
    with pytest.raises(CardError):
        draft(card, 2, [3])
    assert card.card.kv[0] == []
    draft(card, 0, [1, 2, 3])
    assert card.card.faults == []
