"""Speculation changes the speed, never the tokens: scheduler level, on a hashing target."""

import asyncio

import pytest
from support.drafters import (
    GarbageDrafter,
    MixedDrafter,
    MortalDrafter,
    RightDrafter,
    ScriptedDrafter,
    WrongDrafter,
)
from support.engines import collect_all, open_engine, request, run
from support.fake_verifier import FakeVerifier, hash_target, info

from hetero.drafters.ngram import NgramDrafter

TARGET = hash_target()
DOUBLES = {
    "right": lambda: RightDrafter(TARGET),
    "wrong": lambda: WrongDrafter(TARGET, 128),
    "mixed": lambda: MixedDrafter(TARGET, 128),
    "garbage": GarbageDrafter,
    "scripted": lambda: ScriptedDrafter([[1, 2, 3], [], [9], [4, 5]]),
    "dies": lambda: MortalDrafter(TARGET, lambda n: n > 3),
    "flickers": lambda: MortalDrafter(TARGET, lambda n: n % 2 == 0),
    "raises": lambda: MortalDrafter(TARGET, lambda n: n > 2, reason=None),
    "ngram": NgramDrafter,
}


def prompts(number, salt=0):
    return [[1 + (i * 7 + j + salt) % 120 for j in range(1 + 3 * i % 40)] for i in range(number)]


async def plain(requests):
    return [a.token_ids for a in await run(FakeVerifier(TARGET), requests=requests)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("double", DOUBLES)
async def test_output_does_not_depend_on_the_drafter(double, k, temperature):
    """vllm-project/vllm#7627: with T = 0, output changed when speculation was switched on."""
    requests = [request(p, k=k, temperature=temperature) for p in prompts(50)]
    expected = await plain(requests)
    answers = await run(FakeVerifier(TARGET), DOUBLES[double](), requests=requests)
    assert [a.token_ids for a in answers] == expected


async def test_ngram_keeps_output_on_repetitive_prompts():
    """vllm-project/vllm#41758: the n-gram drafter changed greedy output on repeated tokens."""

    def echo(token_ids, num_prompt, sampling):
        return token_ids[-3] if len(token_ids) % 11 else 9

    requests = [
        request(p, k=4, max_tokens=60)
        for p in ([5] * 30, [1, 2, 3] * 9, [4, 5, 6, 7, 8, 4, 5, 6], [3, 3, 3])
    ]
    expected = [a.token_ids for a in await run(FakeVerifier(echo), requests=requests)]
    answers = await run(FakeVerifier(echo), NgramDrafter(), requests=requests)
    assert [a.token_ids for a in answers] == expected
    assert all(a.finish.speculation.num_accepted_draft_tokens > 20 for a in answers)


@pytest.mark.parametrize("k", [2, 4])
async def test_even_draft_lengths(k):
    """ml-explore/mlx-lm#1423, ml-explore/mlx-lm#1470: output diverged with K = 2 and K = 4."""
    requests = [request(p, k=k) for p in prompts(10)]
    answers = await run(FakeVerifier(TARGET), MixedDrafter(TARGET, 128), requests=requests)
    assert [a.token_ids for a in answers] == await plain(requests)


@pytest.mark.parametrize("concurrency", [1, 2, 4, 8])
@pytest.mark.parametrize("k", [1, 3, 5, 8])
async def test_company_does_not_matter(concurrency, k):
    """sgl-project/sglang#32666: deep drafts made mush as soon as two requests ran at once."""
    requests = [request(p, k=k, temperature=0.8) for p in prompts(concurrency, salt=k)]
    together = await run(FakeVerifier(TARGET), MixedDrafter(TARGET, 128), requests=requests)
    for one, answer in zip(requests, together, strict=True):
        (alone,) = await run(FakeVerifier(TARGET), RightDrafter(TARGET), requests=[one])
        assert answer.token_ids == alone.token_ids


async def test_acceptance_does_not_sink_with_company():
    """ggml-org/llama.cpp#27117: acceptance collapsed when several sequences drafted at once."""
    requests = [request(p, k=4, ignore_eos=True, max_tokens=40) for p in prompts(16)]
    for answer in await run(FakeVerifier(TARGET), RightDrafter(TARGET), requests=requests):
        stats = answer.finish.speculation
        assert stats.num_accepted_draft_tokens == stats.num_draft_tokens > 0


async def test_all_drafts_of_a_perfect_drafter_stand():
    """vllm-project/vllm#9730: a hole left by the bonus token made acceptance drop over time."""
    verifier = FakeVerifier(TARGET)
    one = request(k=5, ignore_eos=True, max_tokens=201)
    (answer,) = await run(verifier, RightDrafter(TARGET), requests=[one])
    stats = answer.finish.speculation
    assert stats.num_accepted_draft_tokens == stats.num_draft_tokens
    assert stats.drafted_per_position == stats.accepted_per_position
    assert len(verifier.steps) == 1 + -(-200 // 6)


async def test_rows_are_never_over_budget_and_prompts_are_read_in_chunks():
    verifier = FakeVerifier(TARGET)
    requests = [request([1 + i] * (20 * i + 1), k=8, ignore_eos=True) for i in range(12)]
    answers = await run(
        verifier, RightDrafter(TARGET), requests=requests, max_batch_rows=40, max_running=8
    )
    assert [a.token_ids for a in answers] == await plain(requests)
    rows = [sum(len(i.token_ids) + len(i.draft_token_ids) for i in s) for s in verifier.steps]
    assert max(rows) <= 40
    # The longest prompt needs several steps; its drafts never start before it has been read.
    assert any(not item.sample for step in verifier.steps for item in step)


async def test_a_request_that_ends_while_drafts_are_awaited_disturbs_nobody():
    """tenstorrent/vllm-tt-plugin#131: another request's end shifted the draft's batch row."""
    leaver, others = request(k=4, max_tokens=500, ignore_eos=True), prompts(3)
    requests = [request(p, k=4) for p in others]
    drafter = RightDrafter(TARGET)
    async with open_engine(FakeVerifier(TARGET), drafter) as engine:
        stream = engine.generate(leaver)
        await anext(stream)
        asking = drafter.propose

        async def propose_and_leave(batch):
            drafts = await asking(batch)
            if len(batch.queries) == 4:
                await stream.aclose()
            return drafts

        drafter.propose = propose_and_leave
        answers = await collect_all(engine, requests)
    assert [a.token_ids for a in answers] == await plain(requests)
    assert len(drafter.batches) > 3


async def test_empty_drafts_are_plain_decoding():
    """spiritbuun/buun-llama-cpp#74: an empty draft entered the speculative path and asserted."""
    right = RightDrafter(TARGET)
    empty_then_right = ScriptedDrafter([])
    empty_then_right.draft_for = lambda q: (
        () if len(empty_then_right.batches) < 5 else right.draft_for(q)
    )
    one = request(k=3, ignore_eos=True)
    (answer,) = await run(FakeVerifier(TARGET), empty_then_right, requests=[one])
    assert [answer.token_ids] == await plain([one])
    assert answer.finish.speculation.num_accepted_draft_tokens > 0
    assert answer.finish.fallbacks == {}


async def test_seeds_are_respected():
    """vllm-project/vllm#6038, vllm-project/vllm#13196: seeds had no effect, or all the same."""
    seeds = [request(temperature=1.0, seed=s, k=s % 5) for s in range(20)]
    drafter = MixedDrafter(TARGET, 128)
    first = await run(FakeVerifier(TARGET), drafter, requests=seeds)
    again = await run(FakeVerifier(TARGET), drafter, requests=seeds[::-1])
    assert [a.token_ids for a in first] == [a.token_ids for a in again[::-1]]
    assert len({tuple(a.token_ids) for a in first}) > 1


async def test_choices_differ_and_greedy_and_sampled_requests_mix():
    """vllm-project/vllm#27077: mixing greedy and sampled requests upset the counters."""
    requests = [request(temperature=t, choice_index=c, k=3) for t in (0, 1) for c in (0, 1)]
    answers = await run(FakeVerifier(TARGET), WrongDrafter(TARGET, 128), requests=requests)
    greedy0, greedy1, sampled0, sampled1 = (a.token_ids for a in answers)
    assert greedy0 == greedy1
    assert sampled0 != sampled1
    for answer in answers:
        stats = answer.finish.speculation
        assert 0 <= stats.num_accepted_draft_tokens <= stats.num_draft_tokens


async def test_speculation_can_be_switched_off_per_request():
    """vllm-project/vllm#6993, sgl-project/sglang#30263, ggml-org/llama.cpp#23052."""
    drafter = RightDrafter(TARGET)
    off = [request(enabled=False), request(method="none"), request(k=0)]
    on = [request(), request(method="card", k=2)]
    answers = await run(FakeVerifier(TARGET), drafter, requests=off + on)
    assert len({tuple(a.token_ids) for a in answers}) == 1
    for answer in answers[:3]:
        assert answer.finish.speculation.num_spec_steps == 0
        assert answer.finish.card.cycles == 0
    for answer in answers[3:]:
        assert answer.finish.speculation.num_spec_steps > 0
        assert answer.finish.card.cycles > 0
    asked = {q.sequence_id for batch in drafter.batches for q in batch.queries}
    assert len(asked) == 2


async def test_low_acceptance_is_warned_of(caplog):
    """vllm-project/vllm#44164: nobody notices drafts that are never accepted."""
    one = request(k=8, max_tokens=40, ignore_eos=True)
    await run(FakeVerifier(TARGET), WrongDrafter(TARGET, 128), requests=[one])
    assert "0 of" in caplog.text
    caplog.clear()
    await run(FakeVerifier(TARGET), RightDrafter(TARGET), requests=[one])
    assert caplog.text == ""


async def test_two_drafters_serve_one_round():
    card, ngram = RightDrafter(TARGET), NgramDrafter()
    requests = [request(method=m) for m in ("card", "ngram", "none") * 3]
    verifier = FakeVerifier(TARGET)
    answers = await run(verifier, card, ngram, requests=requests)
    assert len({tuple(a.token_ids) for a in answers}) == 1
    assert max(len(step) for step in verifier.steps) == 9


async def test_garbage_is_counted_by_reason():
    one = request(k=4, max_tokens=60, ignore_eos=True)
    async with open_engine(FakeVerifier(TARGET, info=info()), GarbageDrafter()) as engine:
        (answer,) = await collect_all(engine, [one])
        totals = engine.snapshot()
    assert set(answer.finish.fallbacks) == {"malformed", "stale"}
    assert totals.fallbacks == answer.finish.fallbacks


async def test_many_requests_through_a_small_engine_leak_nothing():
    """sgl-project/sglang#19518: what lay beyond the committed tokens leaked at the end."""
    verifier = FakeVerifier(TARGET, num_blocks=40, block_tokens=16)
    drafter = MixedDrafter(TARGET, 128)
    async with open_engine(verifier, drafter, max_waiting=1000) as engine:

        async def one(i):
            stream = engine.generate(request([1 + i % 100] * (1 + i % 50), k=i % 7))
            async for _ in stream:
                if i % 9 == 0:
                    await stream.aclose()

        await asyncio.gather(*(one(i) for i in range(1000)))
        while engine.snapshot().num_running:
            await asyncio.sleep(0)
        usage = verifier.kv_usage()
        assert usage.free_blocks == usage.total_blocks == 40
        assert usage.num_sequences == 0
        totals = engine.snapshot()
        assert sum(totals.finished.values()) == 1000
        assert totals.num_waiting == 0
    assert len(verifier.released) == len(set(verifier.released)) == 1000
