"""hetero.client against the gRPC front door, with a scripted engine behind it."""

import asyncio
import time
from contextlib import aclosing, asynccontextmanager

import pytest
from support.fake_engine import INFO, ready_service

from hetero.api.grpc_api import bind, create_server
from hetero.client import Answer, Asked, InferenceClient, Prompt
from hetero.core.errors import (
    CapacityError,
    ConfigError,
    HeteroError,
    NotReadyError,
    RequestDeadlineError,
    RequestError,
)
from hetero.core.types import SpeculativeParams
from hetero.core.validation import SamplingWishes

CHAT = Prompt(messages=[("user", "grüße 🎉")])
TEXT = "<user>grüße 🎉\n<assistant>#0"


@asynccontextmanager
async def client_of(service):
    server = create_server(service)
    port = bind(server, "127.0.0.1", 0, setting="--grpc")
    await server.start()
    try:
        async with InferenceClient(f"127.0.0.1:{port}") as client:
            yield client
    finally:
        await server.stop(None)


async def test_a_whole_answer():
    service, engine = ready_service()
    asked = Asked(
        sampling=SamplingWishes(temperature=0.8, top_k=5, seed=7, max_tokens=99, stop="END"),
        speculative=SpeculativeParams(num_speculative_tokens=2, method="ngram"),
    )
    async with client_of(service) as client:
        answer = await client.generate(CHAT, asked)
    assert answer == Answer(
        text=TEXT,
        token_ids=(*TEXT.encode(), 0),
        finish_reason="stop",
        num_prompt_tokens=len(TEXT.encode()) - 2,
        num_completion_tokens=len(TEXT.encode()) + 1,
        seed=7,
        system_fingerprint=INFO.system_fingerprint,
        num_draft_tokens=9,
        num_accepted_draft_tokens=6,
        mean_acceptance_length=3.0,
    )
    sampling = engine.requests[0].sampling
    assert (sampling.temperature, sampling.top_k, sampling.max_tokens) == (0.8, 5, 99)
    assert sampling.stop == ("END",)
    assert engine.requests[0].speculative.method == "ngram"


async def test_a_stream_ends_with_the_answer():
    service, _ = ready_service()
    async with client_of(service) as client:
        *pieces, answer = [piece async for piece in client.stream(CHAT)]
    assert "".join(pieces) == answer.text == TEXT
    assert len(pieces) > 1


async def test_other_prompts_and_no_drafts():
    service, _ = ready_service()
    plain = Asked(speculative=SpeculativeParams(enabled=False))
    async with client_of(service) as client:
        for prompt in (Prompt(text="hi"), Prompt(token_ids=[104, 105])):
            answer = await client.generate(prompt, plain)
            assert answer.text == "hi#0"
            assert answer.mean_acceptance_length is None


async def test_closing_a_stream_ends_the_generation():
    service, engine = ready_service(lambda request: ["x"] * 10)
    async with client_of(service) as client:
        async with aclosing(client.stream(CHAT)) as pieces:
            await anext(pieces)
            engine.gate.clear()
        end_s = time.monotonic() + 1.0
        while engine.active:
            assert time.monotonic() < end_s
            await asyncio.sleep(0.005)
    assert engine.cancelled == 1


async def test_errors_are_ours():
    service, engine = ready_service()
    async with client_of(service) as client:
        with pytest.raises(RequestError) as caught:
            await client.generate(CHAT, Asked(sampling=SamplingWishes(temperature=9)))
        assert caught.value.param == "temperature"
        engine.script = lambda request: [CapacityError("full")]
        with pytest.raises(CapacityError, match="full"):
            await client.generate(CHAT)
        engine.script = lambda request: [HeteroError("broke")]
        with pytest.raises(HeteroError, match="broke"):
            await client.generate(CHAT)
        engine.gate.clear()
        with pytest.raises(RequestDeadlineError):
            await client.generate(CHAT, Asked(timeout_s=0.05))
        service.drain()
        with pytest.raises(NotReadyError):
            await client.generate(CHAT)


@pytest.mark.parametrize("prompt", [{}, {"text": "a", "token_ids": [1]}, {"messages": []}])
def test_a_prompt_is_one_thing(prompt):
    with pytest.raises(ConfigError):
        Prompt(**prompt)


async def test_what_the_wire_cannot_say_is_refused():
    service, _ = ready_service()
    async with client_of(service) as client:
        with pytest.raises(RequestError, match="top_p"):
            await client.generate(CHAT, Asked(sampling=SamplingWishes(top_p=0)))
        with pytest.raises(ConfigError, match="choice_index"):
            await client.generate(CHAT, Asked(sampling=SamplingWishes(choice_index=1)))
