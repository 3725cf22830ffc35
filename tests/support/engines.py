"""Run requests through an engine and keep what came out."""

import asyncio
import itertools
from contextlib import asynccontextmanager
from dataclasses import dataclass

from support.text_tools import text_tools

from hetero.core.ports import Drafter
from hetero.core.types import (
    Delta,
    Finish,
    GenerationRequest,
    SamplingParams,
    SpeculativeParams,
)
from hetero.scheduler.config import EngineConfig
from hetero.scheduler.engine import SpeculativeEngine

_numbers = itertools.count()


@dataclass
class Answer:
    text: str
    token_ids: list[int]
    deltas: list[Delta]
    finish: Finish


def request(
    prompt=(5, 6, 7), *, k=None, method=None, enabled=True, deadline_s=None, **sampling
) -> GenerationRequest:
    return GenerationRequest(
        request_id=f"r{next(_numbers)}",
        prompt_token_ids=tuple(prompt),
        sampling=SamplingParams(**{"max_tokens": 32, "seed": 7, **sampling}),
        speculative=SpeculativeParams(enabled=enabled, num_speculative_tokens=k, method=method),
        deadline_s=deadline_s,
    )


@asynccontextmanager
async def open_engine(verifier, *drafters: Drafter, texts=None, observer=None, **config):
    """An engine whose default method is the first drafter given, or none."""
    named = {drafter.name: drafter for drafter in drafters}
    config.setdefault("default_method", next(iter(named), "none"))
    kwargs = {k: config.pop(k) for k in ("clock",) if k in config}
    engine = SpeculativeEngine(
        verifier,
        named,
        texts or text_tools(),
        EngineConfig(**config),
        observer=observer,
        **kwargs,
    )
    try:
        yield engine
    finally:
        await engine.close()


async def collect(engine, one: GenerationRequest) -> Answer:
    deltas = [delta async for delta in engine.generate(one)]
    assert all(delta.finish is None for delta in deltas[:-1])
    answer = Answer(
        text="".join(delta.text for delta in deltas),
        token_ids=[token_id for delta in deltas for token_id in delta.token_ids],
        deltas=deltas,
        finish=deltas[-1].finish,
    )
    assert answer.finish.num_completion_tokens == len(answer.token_ids)
    return answer


async def collect_all(engine, requests) -> list[Answer]:
    return list(await asyncio.gather(*(collect(engine, one) for one in requests)))


async def run(verifier, *drafters, requests, texts=None, **config) -> list[Answer]:
    """All requests at once; nothing may be left in the cache afterwards."""
    async with open_engine(verifier, *drafters, texts=texts, **config) as engine:
        answers = await collect_all(engine, requests)
        assert_all_free(verifier)
    return answers


def assert_all_free(verifier) -> None:
    usage = verifier.kv_usage()
    assert usage.free_blocks == usage.total_blocks
    assert usage.num_sequences == 0
