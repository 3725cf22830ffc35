"""`hetero serve` as users run it: a real process with its own draft server, over HTTP and gRPC."""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from contextlib import asynccontextmanager

import grpc
import httpx
import openai
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.serve_process import serve

from hetero.api.grpc_api import SERVICE
from hetero.cli.main import main
from hetero.core.errors import ConfigError, HeteroError
from hetero.rpc.inference.v1 import inference_pb2 as pb
from hetero.rpc.inference.v1.inference_pb2_grpc import InferenceServiceStub
from hetero.services.api_host import ApiHostConfig, run_api_host
from hetero.services.engine_host import EngineHostConfig

pytestmark = [pytest.mark.processes]

PROMPT = "one two three one two three one two"


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def server(tiny_checkpoint, cache_dir):
    """The default: card and n-gram drafters, the card simulated in a child process."""
    with serve(tiny_checkpoint, cache_dir) as running:
        yield running


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


def open_client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def ask(client, speculative=None, **fields):
    extra = {"ignore_eos": True, **fields.pop("extra_body", {})}
    if speculative is not None:
        extra["speculative"] = speculative
    fields = {"max_tokens": 24, "seed": 7, **fields}
    messages = [{"role": "user", "content": PROMPT}]
    return client.chat.completions.create(
        model="model", messages=messages, extra_body=extra, **fields
    )


def text_of(answer):
    return answer.choices[0].message.content


def ready(server):
    return httpx.get(f"{server.url}/ready").json()


def blocks_in_use(server):
    kv = ready(server)["kv"]
    return kv["total_blocks"] - kv["free_blocks"]


def until(condition, timeout_s=60.0):
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


# ---- the same text, however it is drafted and asked for ---------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_speculation_changes_the_speed_and_not_the_text(client, temperature):
    plain = ask(client, {"enabled": False}, temperature=temperature)
    card = ask(client, {"method": "card"}, temperature=temperature)
    ngram = ask(client, {"method": "ngram", "num_speculative_tokens": 3}, temperature=temperature)
    assert text_of(plain) == text_of(card) == text_of(ngram)
    assert plain.usage == card.usage == ngram.usage
    assert plain.usage.completion_tokens == 24
    assert plain.metrics["speculative_decoding"]["num_draft_tokens"] == 0
    assert plain.metrics["speculative_decoding"]["mean_acceptance_length"] is None
    assert card.metrics["speculative_decoding"]["num_draft_tokens"] > 0
    assert card.metrics["speculative_decoding"]["mean_acceptance_length"] >= 1.0
    assert card.metrics["fallbacks"] == {}


def test_a_stream_gives_the_same_text(client):
    whole = ask(client, temperature=0.8)
    with ask(client, temperature=0.8, stream=True) as stream:
        streamed = "".join(c.choices[0].delta.content or "" for c in stream)
    assert streamed == text_of(whole)


def test_the_seed_decides(client):
    texts = {text_of(ask(client, temperature=1.0, seed=seed)) for seed in (1, 2, 3, 1)}
    assert len(texts) == 3


def test_several_choices(client):
    alone = ask(client, temperature=0.9)
    several = ask(client, temperature=0.9, n=3)
    texts = [choice.message.content for choice in several.choices]
    assert texts[0] == text_of(alone)
    assert len(set(texts)) == 3
    assert several.usage.completion_tokens == 3 * 24


def test_a_stop_string_ends_the_text_before_it(client):
    text = text_of(ask(client, temperature=0.8))
    stop = text[len(text) // 2 :][:3]
    answer = ask(client, temperature=0.8, stop=[stop])
    assert text_of(answer) == text[: text.index(stop)]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].stop_reason == stop


async def test_grpc_gives_the_same_text_and_tokens(server):
    def request(enabled):
        messages = [pb.ChatMessage(role="user", content=PROMPT)]
        return pb.GenerateRequest(
            chat=pb.ChatInput(messages=messages),
            sampling_params=pb.SamplingParams(
                temperature=0.8, seed=7, max_tokens=24, ignore_eos=True
            ),
            speculative=pb.SpeculativeParams(enabled=enabled),
            stream=True,
        )

    with open_client(server) as client:
        whole = await asyncio.to_thread(ask, client, temperature=0.8)
    async with grpc.aio.insecure_channel(server.grpc) as channel:
        stub = InferenceServiceStub(channel)
        drafted = [r async for r in stub.Generate(request(True))]
        plain = [r async for r in stub.Generate(request(False))]
        health = health_pb2_grpc.HealthStub(channel)
        status = await health.Check(health_pb2.HealthCheckRequest(service=SERVICE))
    assert drafted[-1].complete.text == plain[-1].complete.text == text_of(whole)
    assert drafted[-1].complete.output_ids == plain[-1].complete.output_ids
    assert drafted[-1].complete.spec_draft_tokens > plain[-1].complete.spec_draft_tokens == 0
    assert drafted[-1].complete.system_fingerprint == whole.system_fingerprint
    assert status.status == health_pb2.HealthCheckResponse.SERVING


async def test_requests_at_once_do_not_change_each_other(server):
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0
    ) as client:
        alone = [text_of(await ask(client, temperature=0.8, seed=s)) for s in range(4)]
        together = await asyncio.gather(*(ask(client, temperature=0.8, seed=s) for s in range(4)))
    assert [text_of(answer) for answer in together] == alone


# ---- state ------------------------------------------------------------------------------------


def test_ready_and_metrics_tell_of_the_card(server, client):
    ask(client, {"method": "card"})
    state = ready(server)
    assert {"name": "card", "state": "ready"} in state["drafters"]
    assert state["latency"]["ttft_s"]["p50"] > 0
    metrics = httpx.get(f"{server.url}/metrics").text
    drafted = [line for line in metrics.splitlines() if "_num_draft_tokens_total" in line]
    assert len([line for line in drafted if not line.startswith("#")]) == 2
    assert float(drafted[-1].rpartition(" ")[2]) > 0


def test_a_caller_that_leaves_frees_its_blocks_within_a_second(server, client):
    with ask(client, stream=True, max_tokens=900) as stream:
        next(iter(stream))
    until(lambda: blocks_in_use(server) == 0, timeout_s=1.0)


def test_bad_requests_leave_the_service_as_it_was(server, client):
    before = text_of(ask(client))
    for fields in ({"temperature": 9}, {"max_tokens": 0}, {"extra_body": {"nonsense": 1}}):
        with pytest.raises(openai.BadRequestError):
            ask(client, **fields)
    long_prompt = [{"role": "user", "content": "x y z " * 2000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="model", messages=long_prompt)
    assert caught.value.code == "context_length_exceeded"
    assert text_of(ask(client)) == before


# ---- starting and ending ----------------------------------------------------------------------


def test_sigterm_lets_answers_end_and_refuses_new_ones(tiny_checkpoint, cache_dir):
    with serve(tiny_checkpoint, cache_dir, "--drafter", "none") as server:
        with open_client(server) as client, ask(client, stream=True, max_tokens=300) as stream:
            chunks = iter(stream)
            next(chunks)
            server.signal(signal.SIGTERM)
            until(lambda: ready(server)["status"] == "draining")
            with pytest.raises(openai.InternalServerError) as caught:
                ask(client, max_tokens=1)
            rest = list(chunks)
        assert caught.value.status_code == 503
        assert rest[-1].choices[0].finish_reason == "length"
        assert server.wait() == 0


def test_a_second_signal_ends_at_once_and_takes_the_draft_server_along(tiny_checkpoint, cache_dir):
    with serve(tiny_checkpoint, cache_dir, "--drafter", "card") as server:
        children = psutil.Process(server.process.pid).children(recursive=True)
        assert len(children) == 1
        with open_client(server) as client, ask(client, stream=True, max_tokens=900) as stream:
            next(iter(stream))
            server.signal(signal.SIGINT)
            until(lambda: ready(server)["status"] == "draining")
            server.signal(signal.SIGINT)
            assert server.wait() == 128 + signal.SIGINT
        assert not psutil.wait_procs(children, timeout=5)[1]


@asynccontextmanager
async def in_this_process(target, cache_dir, **changes):
    """(addresses, what was said) of a service on this event loop, which SIGTERM ends."""
    said = []
    ready = asyncio.get_running_loop().create_future()
    engine = EngineHostConfig(target=str(target), drafters=("none",), cache_dir=cache_dir)
    config = ApiHostConfig(engine=engine, http="127.0.0.1:0", grpc="127.0.0.1:0", **changes)
    serving = asyncio.create_task(
        run_api_host(config, on_ready=ready.set_result, progress=said.append)
    )
    await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
    yield ready.result(), said
    await asyncio.wait_for(serving, 30)


async def test_sigterm_cuts_off_what_takes_too_long(tiny_checkpoint, cache_dir, caplog):
    service = in_this_process(tiny_checkpoint, cache_dir, drain_timeout_s=0.1)
    async with service as (addresses, said):
        client = openai.AsyncOpenAI(
            base_url=f"http://{addresses.http}/v1", api_key="none", max_retries=0
        )
        async with client, await ask(client, stream=True, max_tokens=900) as stream:
            chunks = aiter(stream)
            await anext(chunks)
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(openai.APIError, match="incomplete"):
                async for _ in chunks:
                    pass
    assert "1 answers under way have 0.1 s" in said[-1]
    assert "cut off" in caplog.text


async def test_sigterm_while_loading_ends_quietly(tiny_checkpoint, cache_dir):
    engine = EngineHostConfig(target=str(tiny_checkpoint), drafters=("none",), cache_dir=cache_dir)
    config = ApiHostConfig(engine=engine, http="127.0.0.1:0", grpc="127.0.0.1:0")

    def end_when_loading(message):
        if message.startswith("loading"):
            os.kill(os.getpid(), signal.SIGTERM)

    def never(addresses):
        pytest.fail("it became ready")

    await run_api_host(config, on_ready=never, progress=end_when_loading)


def test_a_port_in_use_ends_with_2_and_one_line(tiny_checkpoint, monkeypatch, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = ["--target", str(tiny_checkpoint), "--http", address, "--json"]
        monkeypatch.setattr(sys, "argv", ["hetero", "serve", *options])
        monkeypatch.setattr(logging.root, "handlers", [])  # the command brings its own
        monkeypatch.setattr(logging.root, "level", logging.INFO)
        with pytest.raises(SystemExit) as ended:
            main()
    captured = capsys.readouterr()
    assert ended.value.code == 2
    assert captured.out == ""
    assert captured.err.startswith(f"hetero: --http {address}: port")
    assert "is in use" in captured.err
    assert captured.err.count("\n") == 1


async def refusal(target, **changes):
    """What the service says instead of starting."""
    changes = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", **changes}
    config = ApiHostConfig(engine=EngineHostConfig(target=str(target)), **changes)
    with pytest.raises(HeteroError) as caught:
        await run_api_host(config, on_ready=lambda addresses: pytest.fail("it started"))
    return caught.value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_drain_timeout_is_a_time(value):
    """Click's float ranges let nan pass."""
    with pytest.raises(ConfigError, match="drain_timeout_s"):
        ApiHostConfig(drain_timeout_s=value)


async def test_a_grpc_port_in_use_is_one_clear_error(tiny_checkpoint):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        error = await refusal(tiny_checkpoint, grpc=address)
    assert isinstance(error, ConfigError)
    assert f"--grpc {address}: port" in str(error)


async def test_an_unknown_model_is_one_clear_error(tmp_path):
    error = await refusal(tmp_path / "nowhere")
    assert error.exit_code == 2
    assert "nowhere" in str(error)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:80", "[::]:0", "example.org:80"])
def test_a_public_address_needs_a_word_more(address):
    with pytest.raises(ConfigError, match="--insecure-allow-remote"):
        ApiHostConfig(http=address)
    assert ApiHostConfig(http=address, allow_insecure_remote=True).http == address
    for loopback in ("127.0.0.1:0", "[::1]:0", "localhost:0"):
        assert ApiHostConfig(http=loopback).http == loopback


@pytest.mark.parametrize("address", ["", "8000", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ConfigError, match="--grpc"):
        ApiHostConfig(grpc=address)
