"""The official openai client, and raw sockets, against the HTTP front door over loopback."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import httpx
import openai
import pytest
from support.fake_engine import INFO, ready_service

from hetero.api.http_api import create_app
from hetero.api.http_server import HttpServer, listen
from hetero.core.errors import CapacityError, ConfigError

MESSAGES = [{"role": "user", "content": "grüße 🎉"}]
TEXT = "<user>grüße 🎉\n<assistant>#0"
CANCEL_LIMIT_S = 1.0


@asynccontextmanager
async def serving(service):
    listener = listen("127.0.0.1", 0, setting="--http")
    server = HttpServer(create_app(service), listener)
    port = listener.getsockname()[1]
    await server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop()


@asynccontextmanager
async def async_client(service):
    async with (
        serving(service) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


async def with_sync_client(service, work):
    """Run ``work(client)`` in a thread, as a script of a user would."""

    def run(url):
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            return work(client)

    async with serving(service) as url:
        return await asyncio.to_thread(run, url)


def ask(client, **fields):
    return client.chat.completions.create(model=INFO.model_name, messages=MESSAGES, **fields)


async def until(condition, timeout_s=5.0):
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s
        await asyncio.sleep(0.005)


async def assert_cancelled(engine, service):
    start_s = time.monotonic()
    await until(lambda: engine.active == 0)
    assert time.monotonic() - start_s < CANCEL_LIMIT_S
    assert engine.cancelled == 1
    await asyncio.wait_for(service.idle(), CANCEL_LIMIT_S)


# ---- the client works -------------------------------------------------------------------------


async def test_sync_client():
    service, _ = ready_service()
    answer = await with_sync_client(service, ask)
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == len(TEXT.encode()) + 1
    assert answer.system_fingerprint == INFO.system_fingerprint
    assert answer.metrics["speculative_decoding"]["num_draft_tokens"] == 9


async def test_sync_client_streams():
    def work(client):
        with ask(client, stream=True, stream_options={"include_usage": True}) as stream:
            return list(stream)

    service, _ = ready_service()
    chunks = await with_sync_client(service, work)
    texts = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(texts) == TEXT
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage.completion_tokens == len(TEXT.encode()) + 1
    assert chunks[-1].metrics["speculative_decoding"]["num_spec_steps"] == 3


async def test_async_client_and_our_extension():
    service, engine = ready_service()
    async with async_client(service) as client:
        answer = await ask(
            client,
            seed=7,
            extra_body={"top_k": 5, "speculative": {"enabled": False}},
        )
    assert answer.choices[0].message.content == TEXT
    assert engine.requests[0].sampling.top_k == 5
    assert engine.requests[0].speculative.enabled is False


async def test_async_client_streams_two_answers_at_once():
    """Each stream gets its own text, piece by piece, while the other is still under way."""
    service, engine = ready_service(lambda request: ["x", "y"] * 50)
    async with async_client(service) as client:
        first = await ask(client, stream=True)
        second = await ask(client, stream=True)
        assert engine.active == 2
        texts = await asyncio.gather(read_text(first), read_text(second))
    assert texts == ["xy" * 50, "xy" * 50]


async def read_text(stream):
    return "".join([c.choices[0].delta.content or "" async for c in stream])


async def test_completions_and_models():
    service, _ = ready_service()
    async with async_client(service) as client:
        models = await client.models.list()
        answer = await client.completions.create(model=INFO.model_name, prompt="hi")
        stream = await client.completions.create(model=INFO.model_name, prompt="hi", stream=True)
        streamed = "".join([chunk.choices[0].text async for chunk in stream])
    assert [model.id for model in models.data] == [INFO.model_name]
    assert answer.choices[0].text == streamed == "hi#0"


@pytest.mark.parametrize(
    "fields, error, code",
    [
        ({"temperature": 9}, openai.BadRequestError, "invalid_value"),
        ({"logprobs": True}, openai.BadRequestError, "unsupported_parameter"),
        ({"extra_body": {"tpo_p": 1}}, openai.BadRequestError, "unknown_parameter"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_raises_its_own_errors(fields, error, code, stream):
    service, _ = ready_service()
    async with async_client(service) as client:
        with pytest.raises(error) as caught:
            await ask(client, stream=stream, **fields)
    assert caught.value.code == code


async def test_errors_after_the_first_token_reach_the_client():
    service, _ = ready_service(lambda request: ["abc", CapacityError("no room left")])
    async with async_client(service) as client:
        stream = await ask(client, stream=True)
        with pytest.raises(openai.APIError, match="no room left"):
            await read_text(stream)


# ---- callers that leave (vllm-project/vllm#32439, ROCm/ATOM#1562) -------------------------------


async def test_closing_a_stream_ends_the_generation():
    service, engine = ready_service(lambda request: ["x"] * 10)
    async with async_client(service) as client:
        stream = await ask(client, stream=True)
        engine.gate.clear()
        await stream.close()
        await assert_cancelled(engine, service)


async def test_a_timeout_without_streaming_ends_the_generation():
    service, engine = ready_service()
    engine.gate.clear()
    async with async_client(service) as client:
        with pytest.raises(openai.APITimeoutError):
            await ask(client, timeout=0.2)
        await assert_cancelled(engine, service)


async def test_a_socket_closed_before_the_first_token_ends_the_generation():
    service, engine = ready_service()
    engine.gate.clear()
    async with serving(service) as url:
        writer = await open_stream(url)
        await until(lambda: engine.active == 1)
        writer.transport.abort()
        await assert_cancelled(engine, service)


async def test_a_reader_that_stopped_reading_and_left_ends_the_generation():
    service, engine = ready_service(lambda request: ["x" * 4000] * 100_000)
    async with serving(service) as url:
        writer = await open_stream(url)
        held = -1
        while held != engine.totals.num_generation_tokens:  # until its buffers are full
            held = engine.totals.num_generation_tokens
            await asyncio.sleep(0.1)
        assert engine.active == 1
        writer.transport.abort()
        await assert_cancelled(engine, service)


async def open_stream(url):
    """A raw connection that has asked for a stream and reads nothing."""
    host, port = url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1024)
    body = json.dumps({"model": INFO.model_name, "messages": MESSAGES, "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return writer


async def test_a_cut_request_body_is_nobodys_request():
    service, engine = ready_service()
    async with serving(service) as url:
        host, port = url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"
        )
        await writer.drain()
        writer.transport.abort()
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"{url}/health")).status_code == 200
    assert engine.requests == []


# ---- ports ------------------------------------------------------------------------------------


def test_a_port_in_use_is_one_clear_error():
    first = listen("127.0.0.1", 0, setting="--http")
    port = first.getsockname()[1]
    try:
        with pytest.raises(ConfigError, match=f"--http 127.0.0.1:{port}: port {port} is in use"):
            listen("127.0.0.1", port, setting="--http")
    finally:
        first.close()


def test_an_address_of_another_host_is_one_clear_error():
    with pytest.raises(ConfigError, match=r"--http 192\.0\.2\.1:0: .*address of this host"):
        listen("192.0.2.1", 0, setting="--http")
