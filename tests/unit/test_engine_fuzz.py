"""Random traffic on a small engine: arrivals, cancels, deadlines, failures, every kind of drafter.

Whatever happens, each answer is a prefix of what plain decoding gives (all of it, unless it was
cut short), and at the end every block is free.
"""

import asyncio
import random
from collections import Counter

import pytest
from support.drafters import GarbageDrafter, MixedDrafter, MortalDrafter
from support.engines import assert_all_free, open_engine, request
from support.fake_verifier import FakeVerifier, hash_target

from hetero.core.errors import CapacityError
from hetero.drafters.ngram import NgramDrafter

TARGET = hash_target(vocab_size=24)
NUM_REQUESTS = 40


def plain_output(one):
    tokens = list(one.prompt_token_ids)
    while len(tokens) - len(one.prompt_token_ids) < one.sampling.max_tokens:
        tokens.append(TARGET(tokens, len(one.prompt_token_ids), one.sampling))
        ended = tokens[-1] == 0 and not one.sampling.ignore_eos
        if ended or tokens[-1] in one.sampling.stop_token_ids:
            break
    return tokens[len(one.prompt_token_ids) :]


def random_request(rng):
    max_tokens = rng.choice([1, 2, 7, 30, 80])
    return request(
        [rng.randrange(1, 24) for _ in range(rng.choice([1, 2, 15, 16, 17, 90]))],
        k=rng.choice([None, 0, 1, 3, 8, 64]),
        method=rng.choice([None, "card", "ngram", "mad", "dying", "none"]),
        enabled=rng.random() < 0.9,
        temperature=rng.choice([0.0, 0.8]),
        seed=rng.randrange(2**64),
        max_tokens=max_tokens,
        min_tokens=rng.choice([0, 0, min(5, max_tokens)]),
        ignore_eos=rng.random() < 0.3,
        stop_token_ids=(5,) if rng.random() < 0.3 else (),
    )


async def client(engine, rng, one, outcomes):
    for _ in range(rng.randrange(60)):
        await asyncio.sleep(0)
    patience = rng.choice([None, None, 1, 3])  # deltas read before the reader leaves
    stream, got, finish = engine.generate(one), [], None
    try:
        async for delta in stream:
            got += delta.token_ids
            finish = delta.finish
            if patience is not None and (patience := patience - 1) == 0:
                break
    except CapacityError:
        outcomes["refused"] += 1
    await stream.aclose()
    expected = plain_output(one)
    assert got == expected[: len(got)]
    if finish is not None and finish.reason in ("stop", "length"):
        assert got == expected
    outcomes[finish.reason if finish else "left"] += 1


@pytest.mark.parametrize("rng_seed", range(15))
async def test_random_traffic(rng_seed):
    rng = random.Random(rng_seed)
    block_tokens = rng.choice([1, 16, 64])
    verifier = FakeVerifier(
        TARGET,
        num_blocks=rng.choice([150, 400]) // min(block_tokens, 16),
        block_tokens=block_tokens,
        fail_steps=[rng.randrange(10, 80)] if rng_seed % 3 == 0 else [],
    )
    mad, dying = GarbageDrafter(rng_seed), MortalDrafter(TARGET, lambda n: rng.random() < 0.3)
    mad.name, dying.name = "mad", "dying"
    drafters = [MixedDrafter(TARGET, 24, rng_seed), NgramDrafter(min_ngram_tokens=1), mad, dying]
    outcomes = Counter()
    settings = dict(max_batch_rows=rng.choice([7, 24, 100]), max_running=6, max_waiting=30)
    async with open_engine(verifier, *drafters, **settings) as engine:
        requests = [random_request(rng) for _ in range(NUM_REQUESTS)]
        await asyncio.gather(*(client(engine, rng, one, outcomes) for one in requests))
        while engine.snapshot().num_running or engine.snapshot().num_waiting:
            await asyncio.sleep(0)
        assert_all_free(verifier)
    rows = [sum(len(i.token_ids) + len(i.draft_token_ids) for i in s) for s in verifier.steps]
    assert max(rows) <= settings["max_batch_rows"]
    assert outcomes["stop"] + outcomes["length"] > 5
    released = [s for drafter in (drafters[0], mad, dying) for s in drafter.released]
    assert len(released) == len(set(released))
