"""Prompt lookup: finds what it should, forgets what it must, stays cheap."""

import time

import pytest

from hetero.core.errors import ConfigError
from hetero.core.types import DraftBatch, DraftQuery, SamplingParams, SequenceId
from hetero.drafters.ngram import NgramDrafter
from hetero.drafters.none import NoDrafter


async def draft(drafter, token_ids, k=4, sequence_id=1):
    query = DraftQuery(SequenceId(sequence_id), token_ids, 1, k, SamplingParams())
    answer = await drafter.propose(DraftBatch(1, (query,)))
    assert answer.fallbacks == {}
    found = answer.drafts.get(SequenceId(sequence_id))
    if found is None:
        return None
    assert found.base_len == len(token_ids)
    return list(found.token_ids)


@pytest.mark.parametrize(
    "token_ids, expected",
    [
        ([1, 2, 3, 4, 5, 6, 1, 2], [3, 4, 5, 6]),
        ([1, 2, 3, 9, 1, 2, 4, 8, 1, 2], [4, 8, 1, 2]),  # the most recent match
        ([7, 1, 2, 3, 5, 8, 2, 3, 6, 1, 2, 3], [5, 8, 2, 3]),  # the longest before the most recent
        ([5, 5, 5], [5, 5, 5, 5]),  # goes on past the end
        ([1, 2, 1, 2, 1], [2, 1, 2, 1]),
        ([1, 2, 3, 4], None),
        ([1], None),
        ([1, 1], None),  # one pair, no past
        ([], None),
    ],
)
async def test_lookup(token_ids, expected):
    assert await draft(NgramDrafter(), token_ids) == expected


async def test_growing_gives_what_starting_over_gives():
    tokens = [(i * i * 7 + i // 3) % 6 for i in range(300)]
    grown = NgramDrafter()
    for length in range(1, 300, 3):
        assert await draft(grown, tokens[:length]) == await draft(NgramDrafter(), tokens[:length])


async def test_sequences_are_apart_and_forgotten():
    drafter = NgramDrafter(min_ngram_tokens=1)
    assert await draft(drafter, [1, 2, 1], sequence_id=1) == [2, 1, 2, 1]
    assert await draft(drafter, [3, 1], sequence_id=2) is None
    drafter.release([SequenceId(1), SequenceId(99)])
    assert await draft(drafter, [9, 1], sequence_id=1) is None
    await drafter.close()


async def test_a_round_costs_its_new_tokens_only():
    drafter, tokens = NgramDrafter(), [i * 31 % 5000 for i in range(20_000)]
    await draft(drafter, tokens)
    started = time.perf_counter()
    for _ in range(200):
        tokens.append(1)
        await draft(drafter, tokens)
    # Indexing all of it again takes about 30 ms a round.
    assert (time.perf_counter() - started) / 200 < 0.003


def test_sizes_are_checked():
    with pytest.raises(ConfigError, match=r"ngram sizes 3\.\.2"):
        NgramDrafter(min_ngram_tokens=3, max_ngram_tokens=2)


async def test_none_never_guesses():
    drafter = NoDrafter()
    assert await draft(drafter, [5, 5, 5, 5]) is None
    drafter.release([SequenceId(1)])
    await drafter.close()
