"""The main job on the real model: SmolLM2, its int4 draft on the simulated card, gRPC between.

A few cells run with the other tests; the wide matrix is ``make exactness``.
"""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from support.engines import collect

from hetero.core import figures
from hetero.core.types import GenerationRequest, SamplingParams, SpeculativeParams
from hetero.services.engine_host import EngineHostConfig, open_engine

pytestmark = [pytest.mark.real_model, pytest.mark.processes]

QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about rain.",
    "def fibonacci(n):",
    "List three primary colours.",
)
VECTORS = Path(__file__).parent.parent / "vectors" / "smollm2_greedy_vectors.jsonl"


def one_request(prompt_ids, speculative, *, max_tokens, temperature):
    return GenerationRequest(
        request_id="r",
        prompt_token_ids=tuple(prompt_ids),
        sampling=SamplingParams(temperature=temperature, seed=7, max_tokens=max_tokens),
        speculative=speculative,
    )


async def answers(host, prompts_ids, speculative, *, together=True, **sampling):
    requests = [one_request(ids, speculative, **sampling) for ids in prompts_ids]
    if together:
        return await asyncio.gather(*(collect(host.engine, one) for one in requests))
    return [await collect(host.engine, one) for one in requests]


OFF = SpeculativeParams(enabled=False)


async def test_a_few_cells(real_model_dir):
    config = EngineHostConfig(drafters=("card", "ngram"), max_running=8)
    async with open_engine(config) as host:
        stats = []
        prompts = [host.tokenizer.apply_chat_template([("user", text)]) for text in QUESTIONS]
        for temperature in (0.0, 0.8):
            settings = dict(temperature=temperature, max_tokens=24)
            plain = await answers(host, prompts, OFF, **settings)
            for method, k in (("card", 4), ("ngram", 8)):
                wish = SpeculativeParams(method=method, num_speculative_tokens=k)
                drafted = await answers(host, prompts, wish, **settings)
                assert [a.token_ids for a in drafted] == [a.token_ids for a in plain]
                if method == "card":
                    stats += [a.finish.speculation for a in drafted]
                    assert all(a.finish.card.cycles > 0 for a in drafted)
                    assert all(a.finish.card.modelled_s > 0 for a in drafted)
        assert host.card is not None
        assert host.card.simulated
        assert host.engine.snapshot().fallbacks == {}
        usage = host.engine.snapshot().kv
        assert usage.free_blocks == usage.total_blocks
    assert figures.mean_acceptance_length(figures.add_up(stats)) > 2.0


@pytest.mark.exactness
@pytest.mark.timeout(7200)
async def test_the_wide_matrix(real_model_dir):
    """T x K x drafter x (alone, eight at once) on the prompts of the greedy vectors."""
    prompts = [json.loads(line)["prompt_token_ids"] for line in VECTORS.read_text().splitlines()]
    config = EngineHostConfig(drafters=("card", "ngram"), max_running=8)
    async with open_engine(config) as host:
        for temperature in (0.0, 0.8):
            settings = dict(temperature=temperature, max_tokens=64)
            plain = await answers(host, prompts, OFF, together=False, **settings)
            expected = [a.token_ids for a in plain]
            for method in ("card", "ngram"):
                for k in (1, 3, 8):
                    wish = SpeculativeParams(method=method, num_speculative_tokens=k)
                    for together in (False, True):
                        drafted = await answers(host, prompts, wish, together=together, **settings)
                        got = [a.token_ids for a in drafted]
                        assert got == expected, (temperature, method, k, together)


@pytest.mark.exactness
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_a_card_host_killed_and_frozen(real_model_dir, temperature):
    """Killed mid-answer, frozen mid-answer, back again: eight answers, not one token changed."""
    prompts = [json.loads(line)["prompt_token_ids"] for line in VECTORS.read_text().splitlines()]
    config = EngineHostConfig(drafters=("card",), max_running=8)
    async with open_engine(config) as host:
        settings = dict(temperature=temperature, max_tokens=64)
        expected = [a.token_ids for a in await answers(host, prompts, OFF, **settings)]
        wish = SpeculativeParams(method="card", num_speculative_tokens=4)
        for signum in (signal.SIGKILL, signal.SIGSTOP):
            drafted_before = host.engine.snapshot().num_draft_tokens
            running = asyncio.create_task(answers(host, prompts, wish, **settings))
            while host.engine.snapshot().num_draft_tokens < drafted_before + 100:
                await asyncio.sleep(0.05)
            pid = host.draft_child.pid
            os.kill(pid, signum)
            got = await running
            if signum == signal.SIGSTOP:
                os.kill(pid, signal.SIGCONT)
            assert [a.token_ids for a in got] == expected
            assert sum(sum(a.finish.fallbacks.values()) for a in got) > 0
            while not host.card_drafter.connected:
                await asyncio.sleep(0.1)
        again = await answers(host, prompts[:1], wish, **settings)
        assert again[0].token_ids == expected[0]
        assert again[0].finish.speculation.num_accepted_draft_tokens > 0
