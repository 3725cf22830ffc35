"""Requests come, go, are cut off, and meet failures; blocks and slots always come back."""

import asyncio

import pytest
from support.drafters import LateDrafter, MortalDrafter, RightDrafter
from support.engines import (
    assert_all_free,
    collect,
    collect_all,
    open_engine,
    request,
    run,
)
from support.fake_verifier import FakeVerifier, hash_target

from hetero.core.errors import CapacityError, ConfigError
from hetero.scheduler.config import EngineConfig
from hetero.scheduler.observer import NullObserver

TARGET = hash_target()
ENDLESS = dict(ignore_eos=True, max_tokens=1500)


async def rounds(n=3):
    for _ in range(n * 4):
        await asyncio.sleep(0)


async def test_a_reader_that_leaves_frees_everything():
    """vllm-project/vllm#32439, ROCm/ATOM#1562: decoding went on after the client had left."""
    verifier, drafter = FakeVerifier(TARGET), RightDrafter(TARGET)
    async with open_engine(verifier, drafter) as engine:
        stream = engine.generate(request(k=4, **ENDLESS))
        await anext(stream)
        await stream.aclose()
        await rounds()
        assert_all_free(verifier)
        steps = len(verifier.steps)
        await rounds()
        assert len(verifier.steps) == steps
        assert drafter.released == [1]
        assert engine.snapshot().finished == {"cancelled": 1}


async def test_a_reader_task_that_is_cancelled_frees_everything():
    verifier = FakeVerifier(TARGET)
    async with open_engine(verifier) as engine:
        task = asyncio.create_task(collect(engine, request(**ENDLESS)))
        while not verifier.steps:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await rounds()
        assert_all_free(verifier)


async def test_leaving_the_queue():
    verifier = FakeVerifier(TARGET)
    async with open_engine(verifier, max_running=1) as engine:
        first = engine.generate(request(**ENDLESS))
        await anext(first)
        waiting = asyncio.create_task(collect(engine, request()))
        await rounds()
        assert engine.snapshot().num_waiting == 1
        waiting.cancel()
        await rounds()
        assert engine.snapshot().num_waiting == 0
        await first.aclose()


async def test_a_late_abort_does_not_touch_the_next_turn():
    """sgl-project/sglang#36552: a late abort raced the next turn and leaked KV."""
    verifier, drafter = FakeVerifier(TARGET), RightDrafter(TARGET)
    turn = request(k=4)
    (expected,) = await run(FakeVerifier(TARGET), requests=[turn])
    async with open_engine(verifier, drafter) as engine:
        for _ in range(20):
            stream = engine.generate(request(k=4, **ENDLESS))
            await anext(stream)
            again = asyncio.create_task(collect(engine, turn))
            await asyncio.sleep(0)
            await stream.aclose()
            assert (await again).token_ids == expected.token_ids
        await rounds()
        assert_all_free(verifier)


async def test_deadlines_end_running_and_waiting_requests():
    now = 100.0
    verifier = FakeVerifier(TARGET)
    async with open_engine(verifier, max_running=1, clock=lambda: now) as engine:
        running = engine.generate(request(deadline_s=110.0, **ENDLESS))
        await anext(running)
        waiting = asyncio.create_task(collect(engine, request(deadline_s=105.0)))
        await rounds()
        now = 106.0
        answer = await waiting
        assert (answer.finish.reason, answer.token_ids) == ("cancelled", [])
        assert "deadline" in answer.finish.error
        now = 111.0
        deltas = [delta async for delta in running]
        assert deltas[-1].finish.reason == "cancelled"
        assert_all_free(verifier)


async def test_a_verifier_failure_ends_its_requests_and_no_more():
    verifier = FakeVerifier(TARGET, fail_steps=[5])
    async with open_engine(verifier, RightDrafter(TARGET), max_running=2) as engine:
        requests = [request([i + 1], k=1, ignore_eos=True, max_tokens=40) for i in range(4)]
        answers = await collect_all(engine, requests)
        reasons = [a.finish.reason for a in answers]
        assert reasons == ["error", "error", "length", "length"]
        assert "fell off the bus" in answers[0].finish.error
        assert engine.snapshot().fault is None  # it has worked again since
        assert_all_free(verifier)


async def test_an_engine_whose_last_step_failed_says_so():
    verifier = FakeVerifier(TARGET, fail_steps=[2])
    async with open_engine(verifier) as engine:
        assert (await collect(engine, request())).finish.reason == "error"
        assert "fell off the bus" in engine.snapshot().fault
        assert (await collect(engine, request())).finish.reason in ("stop", "length")


async def test_the_queue_is_bounded():
    async with open_engine(FakeVerifier(TARGET), max_running=1, max_waiting=2) as engine:
        streams = [engine.generate(request(**ENDLESS)) for _ in range(3)]
        await anext(streams[0])
        tasks = [asyncio.create_task(anext(stream)) for stream in streams[1:]]
        await rounds()
        with pytest.raises(CapacityError, match="max_waiting = 2"):
            await anext(engine.generate(request()))
        for task in tasks:
            task.cancel()
        await streams[0].aclose()


async def test_a_request_larger_than_the_cache_is_refused():
    verifier = FakeVerifier(TARGET, num_blocks=4)
    async with open_engine(verifier) as engine:
        with pytest.raises(CapacityError, match="4 blocks"):
            await collect(engine, request(max_tokens=100))
        assert (await collect(engine, request(max_tokens=30))).finish.reason in ("stop", "length")


async def test_a_slow_reader_blocks_nobody_and_misses_nothing():
    verifier = FakeVerifier(TARGET)
    lengthy = request([2], ignore_eos=True, max_tokens=300)
    (expected,) = await run(FakeVerifier(TARGET), requests=[lengthy])
    async with open_engine(verifier) as engine:
        slow = engine.generate(lengthy)
        first = await anext(slow)
        await collect(engine, request(ignore_eos=True, max_tokens=400))
        rest = [delta async for delta in slow]
    assert len(rest) == 1  # merged while nobody read
    assert first.text + rest[0].text == expected.text
    assert [*first.token_ids, *rest[0].token_ids] == expected.token_ids


async def test_closing_ends_requests_and_drafters():
    verifier, drafter = FakeVerifier(TARGET), RightDrafter(TARGET)
    async with open_engine(verifier, drafter) as engine:
        task = asyncio.create_task(collect(engine, request(k=4, **ENDLESS)))
        while not verifier.steps:
            await asyncio.sleep(0)
        await engine.close()
        answer = await task
        assert answer.finish.reason == "cancelled"
        assert "shutting down" in answer.finish.error
        with pytest.raises(CapacityError, match="shutting down"):
            await collect(engine, request())
    assert_all_free(verifier)
    assert drafter.num_closed >= 1


async def test_late_drafts_are_waited_for_and_timed():
    drafter = LateDrafter(TARGET)
    now = 0.0
    async with open_engine(FakeVerifier(TARGET), drafter, clock=lambda: now) as engine:
        task = asyncio.create_task(collect(engine, request(k=4, max_tokens=4)))
        await drafter.asked.wait()
        now += 2.5
        drafter.gate.set()
        answer = await task
    assert answer.finish.latency.draft_s == 2.5
    assert answer.finish.latency.total_s == 2.5
    assert answer.finish.latency.ttft_s == 0


async def test_fallbacks_are_counted_by_reason():
    """ikawrakow/ik_llama.cpp#731: a drafter without room led to a hang."""
    for reason in ("no_slot", "timeout", "draft_ctx"):
        drafter = MortalDrafter(TARGET, lambda n: n <= 3, reason=reason)
        one = request(k=2, ignore_eos=True, max_tokens=20)
        (answer,) = await run(FakeVerifier(TARGET), drafter, requests=[one])
        assert answer.finish.fallbacks == {reason: 3}
        assert answer.finish.speculation.num_accepted_draft_tokens > 0


async def test_totals_and_events_agree():
    class Events(NullObserver):
        def __init__(self):
            self.started, self.tokens, self.finishes, self.steps = 0, 0, [], []

        def request_started(self, request, *, queued_s):
            self.started += 1

        def tokens_committed(self, request, *, num_tokens, gap_s, first):
            self.tokens += num_tokens

        def request_finished(self, request, finish):
            self.finishes.append(finish)

        def step_finished(self, report):
            self.steps.append(report)

    events = Events()
    requests = [request([1 + i] * 5, k=3) for i in range(10)]
    async with open_engine(
        FakeVerifier(TARGET),
        RightDrafter(TARGET),
        observer=events,
        max_batch_rows=24,
        max_running=6,
    ) as engine:
        answers = await collect_all(engine, requests)
        totals = engine.snapshot()
    num_tokens = sum(len(a.token_ids) for a in answers)
    assert totals.num_generation_tokens == events.tokens == num_tokens
    assert totals.num_prompt_tokens == 50
    assert totals.num_steps == len(events.steps)
    assert sum(s.num_committed_tokens for s in events.steps) == num_tokens
    assert sum(s.num_draft_tokens for s in events.steps) == totals.num_draft_tokens
    assert events.started == len(events.finishes) == sum(totals.finished.values()) == 10
    per_request = [a.finish.speculation for a in answers]
    assert totals.num_spec_steps == sum(s.num_spec_steps for s in per_request)
    assert totals.accepted_per_position == tuple(
        sum(s.accepted_per_position[i] for s in per_request if i < len(s.accepted_per_position))
        for i in range(3)
    )


def test_settings_are_checked():
    with pytest.raises(ConfigError, match=r"engine\.max_running = 300: must be 1\.\.255"):
        EngineConfig(max_running=300)
    with pytest.raises(ConfigError, match="num_speculative_tokens = 65"):
        EngineConfig(num_speculative_tokens=65)


async def test_an_unknown_default_method_is_refused():
    with pytest.raises(ConfigError, match=r"default_method = card: this engine has none"):
        async with open_engine(FakeVerifier(TARGET), default_method="card"):
            pass
