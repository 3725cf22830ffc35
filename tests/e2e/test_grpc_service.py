"""The gRPC front door over loopback, with a scripted engine behind it."""

import asyncio
import time
from contextlib import asynccontextmanager

import grpc
import pytest
from google.protobuf.internal import encoder
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support.fake_engine import INFO, ScriptedEngine, backend_of, echo, ready_service

from hetero.api.grpc_api import SERVICE, bind, create_server
from hetero.api.service import InferenceService
from hetero.core.errors import CapacityError, ConfigError, HeteroError
from hetero.core.types import Finish
from hetero.rpc.inference.v1 import inference_pb2 as pb
from hetero.rpc.inference.v1.inference_pb2_grpc import InferenceServiceStub


@asynccontextmanager
async def serving(service):
    server = create_server(service)
    port = bind(server, "127.0.0.1", 0, setting="--grpc")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)


def chat(text="hi", **fields):
    messages = [pb.ChatMessage(role="user", content=text)]
    return pb.GenerateRequest(chat=pb.ChatInput(messages=messages), **fields)


async def ask(script=echo, request=None):
    """(responses, engine) of one call."""
    service, engine = ready_service(script)
    async with serving(service) as channel:
        call = InferenceServiceStub(channel).Generate(request or chat())
        return [response async for response in call], engine


async def refusal(request, script=echo):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(script, request)
    return caught.value


async def until(condition, timeout_s=5.0):
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s
        await asyncio.sleep(0.005)


# ---- answers ---------------------------------------------------------------------------------


async def test_one_whole_answer():
    params = pb.SamplingParams(seed=7)
    (response,), _ = await ask(request=chat(sampling_params=params))
    complete = response.complete
    text = "<user>hi\n<assistant>#0"
    assert complete.text == text
    assert bytes(complete.output_ids) == text.encode() + b"\0"
    assert complete.finish_reason == pb.FINISH_REASON_STOP
    assert complete.completion_tokens == len(text) + 1
    assert complete.prompt_tokens == len(text) - 2
    assert complete.seed == 7
    assert complete.system_fingerprint == INFO.system_fingerprint
    assert (complete.spec_accepted_tokens, complete.spec_draft_tokens) == (6, 9)
    assert complete.speculation.mean_acceptance_length == 3.0
    assert list(complete.speculation.accepted_per_position) == [3, 2, 1]
    assert dict(complete.speculation.fallbacks) == {"timeout": 1}
    assert complete.wall_times.ttft_s == 0.25


async def test_streaming_gives_chunks_and_then_the_whole():
    responses, _ = await ask(request=chat("grüße 🎉", stream=True))
    *chunks, last = responses
    text = "".join(r.chunk.text for r in chunks)
    assert text == last.complete.text == "<user>grüße 🎉\n<assistant>#0"
    assert [t for r in chunks for t in r.chunk.token_ids] == list(last.complete.output_ids)
    counts = [r.chunk.completion_tokens for r in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == last.complete.completion_tokens


async def test_choices_are_told_apart_and_share_a_drawn_seed():
    responses, engine = await ask(request=chat(sampling_params=pb.SamplingParams(n=3)))
    texts = {r.complete.index: r.complete.text[-2:] for r in responses}
    assert texts == {0: "#0", 1: "#1", 2: "#2"}
    assert {r.complete.seed for r in responses} == {engine.requests[0].sampling.seed}


async def test_tokens_and_plain_text_are_inputs_too():
    tokens = pb.GenerateRequest(tokenized=pb.TokenizedInput(input_ids=[104, 105]))
    for request in (tokens, pb.GenerateRequest(text="hi")):
        (response,), _ = await ask(request=request)
        assert response.complete.text == "hi#0"


async def test_every_parameter_reaches_the_engine():
    request = chat(
        request_id="mine",
        model=INFO.model_name,
        sampling_params=pb.SamplingParams(
            temperature=0.8,
            top_p=0.9,
            top_k=40,
            min_p=0.05,
            max_tokens=33,
            min_tokens=3,
            stop=["END"],
            stop_token_ids=[5],
            ignore_eos=True,
            seed=2**64 - 1,
        ),
        speculative=pb.SpeculativeParams(num_speculative_tokens=0, method="ngram"),
    )
    _, engine = await ask(request=request)
    (seen,) = engine.requests
    sampling = seen.sampling
    assert seen.request_id == "mine"
    # Exactly 0.8, not the nearest float32: the noise law must see what HTTP clients' JSON says.
    assert (sampling.temperature, sampling.top_p, sampling.min_p) == (0.8, 0.9, 0.05)
    assert (sampling.top_k, sampling.max_tokens, sampling.min_tokens) == (40, 33, 3)
    assert (sampling.stop, sampling.stop_token_ids) == (("END",), (5,))
    assert (sampling.ignore_eos, sampling.seed) == (True, 2**64 - 1)
    assert seen.speculative.num_speculative_tokens == 0
    assert (seen.speculative.method, seen.speculative.enabled) == ("ngram", True)


async def test_zeros_of_fields_without_presence_mean_off():
    _, engine = await ask(request=chat(sampling_params=pb.SamplingParams(temperature=0)))
    sampling = engine.requests[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.0, 1.0, 0)


async def test_what_matched_is_told():
    def script(request):
        return [Finish("stop", 1, 1, matched_stop=request.prompt_token_ids[0])]

    (response,), _ = await ask(script, pb.GenerateRequest(text="A"))
    assert response.complete.matched_token_id == 65
    (response,), _ = await ask(lambda r: [Finish("stop", 1, 1, matched_stop="END")])
    assert response.complete.matched_stop_str == "END"


# ---- refusals --------------------------------------------------------------------------------


def with_unknown_field(message, number):
    message.MergeFromString(encoder.TagBytes(number, 0) + b"\x01")
    return message


BAD = [
    (pb.GenerateRequest(), "input"),
    (pb.GenerateRequest(text=""), "prompt"),
    (pb.GenerateRequest(tokenized=pb.TokenizedInput()), "prompt"),
    (pb.GenerateRequest(tokenized=pb.TokenizedInput(input_ids=[256])), "prompt"),
    (pb.GenerateRequest(chat=pb.ChatInput()), "chat.messages"),
    (
        pb.GenerateRequest(chat=pb.ChatInput(messages=[pb.ChatMessage(role="robot")])),
        "chat.messages[0].role",
    ),
    (chat(sampling_params=pb.SamplingParams(temperature=-1)), "temperature"),
    (chat(sampling_params=pb.SamplingParams(temperature=float("nan"))), "temperature"),
    (chat(sampling_params=pb.SamplingParams(top_p=1.5)), "top_p"),
    (chat(sampling_params=pb.SamplingParams(max_tokens=0)), "max_tokens"),
    (chat(sampling_params=pb.SamplingParams(n=100)), "n"),
    (chat(sampling_params=pb.SamplingParams(stop=[""])), "stop"),
    (chat(speculative=pb.SpeculativeParams(method="magic")), "speculative.method"),
    (chat(request_id="x" * 129), "request_id"),
    (with_unknown_field(chat(), 99), "field 99"),
    (
        chat(sampling_params=with_unknown_field(pb.SamplingParams(), 5)),
        "sampling_params.frequency_penalty",
    ),
    (
        chat(sampling_params=with_unknown_field(pb.SamplingParams(), 30)),
        "sampling_params.field 30",
    ),
]


@pytest.mark.parametrize("request_, param", BAD, ids=[param for _, param in BAD])
async def test_bad_requests_are_refused_by_name(request_, param):
    error = await refusal(request_)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.trailing_metadata()["hetero-param"] == param
    assert "\n" not in error.details()


async def test_another_model_is_not_found():
    error = await refusal(chat(model="gpt-x"))
    assert error.code() == grpc.StatusCode.NOT_FOUND
    assert INFO.model_name in error.details()


@pytest.mark.parametrize(
    "kind, code",
    [
        (CapacityError, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (HeteroError, grpc.StatusCode.INTERNAL),
    ],
)
async def test_errors_of_the_engine_become_statuses(kind, code):
    seen = await refusal(chat(), lambda request: [kind("no more")])
    assert (seen.code(), seen.details()) == (code, "no more")


async def test_a_bug_of_ours_keeps_its_insides():
    error = await refusal(chat(), lambda request: [ZeroDivisionError("secret path")])
    assert error.code() == grpc.StatusCode.INTERNAL
    assert "secret" not in error.details()


async def test_an_answer_that_was_cut_off_is_abort_and_no_success():
    service, _ = ready_service(lambda r: ["ab", Finish("cancelled", 2, 2, error="shutting down")])
    async with serving(service) as channel:
        call = InferenceServiceStub(channel).Generate(chat())
        complete = (await call.read()).complete
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert (complete.finish_reason, complete.text) == (pb.FINISH_REASON_ABORT, "ab")
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert caught.value.details().startswith("shutting down")


async def test_a_message_beyond_the_limit_is_refused():
    error = await refusal(chat("x" * (5 << 20)))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


# ---- callers that leave ----------------------------------------------------------------------


async def test_cancel_ends_the_generation():
    service, engine = ready_service(lambda request: ["x"] * 10)
    async with serving(service) as channel:
        call = InferenceServiceStub(channel).Generate(chat(stream=True))
        await call.read()
        engine.gate.clear()
        start_s = time.monotonic()
        call.cancel()
        await until(lambda: engine.active == 0)
        assert time.monotonic() - start_s < 1.0
        assert engine.cancelled == 1
        await service.idle()


async def test_cancel_ends_a_generation_whose_caller_stopped_reading():
    """gRPC then holds the handler suspended in a send, where a cancel does not reach it."""
    service, engine = ready_service(lambda request: ["x" * 4000] * 5000)
    async with serving(service) as channel:
        call = InferenceServiceStub(channel).Generate(chat(stream=True))
        await call.read()
        await until(lambda: engine.totals.num_generation_tokens > 50_000)
        sent = -1
        while sent != engine.totals.num_generation_tokens:  # until flow control holds it
            sent = engine.totals.num_generation_tokens
            await asyncio.sleep(0.05)
        assert engine.active == 1
        start_s = time.monotonic()
        call.cancel()
        await until(lambda: engine.active == 0)
        assert time.monotonic() - start_s < 1.0


async def test_the_callers_deadline_reaches_the_engine_and_ends_it():
    service, engine = ready_service(lambda request: ["x"] * 10)
    async with serving(service) as channel:
        engine.gate.clear()
        before_s = time.monotonic()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in InferenceServiceStub(channel).Generate(chat(), timeout=0.2):
                pass
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: engine.active == 0)
    assert before_s < engine.requests[0].deadline_s < before_s + 1
    assert engine.cancelled == 1


async def test_without_a_deadline_there_is_none():
    _, engine = await ask()
    assert engine.requests[0].deadline_s is None


# ---- state -----------------------------------------------------------------------------------


async def test_health_follows_the_phase_for_every_watcher():
    service = InferenceService(INFO.model_name)
    async with serving(service) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        name = health_pb2.HealthCheckRequest(service=SERVICE)
        leaver, watcher = stub.Watch(name), stub.Watch(name)
        assert (await leaver.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert (await watcher.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        leaver.cancel()
        alive = await stub.Check(health_pb2.HealthCheckRequest())
        assert alive.status == health_pb2.HealthCheckResponse.SERVING
        engine = ScriptedEngine()
        service.open(backend_of(engine))
        assert (await watcher.read()).status == health_pb2.HealthCheckResponse.SERVING
        service.drain()
        assert (await watcher.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert (await stub.Check(name)).status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_health_of_an_unknown_service():
    service, _ = ready_service()
    async with serving(service) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="nobody"))
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="nobody"))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_reflection_lists_the_services():
    service, _ = ready_service()
    async with serving(service) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await call.read()
        await call.done_writing()
    names = {s.name for s in answer.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names


async def test_before_the_model_is_loaded():
    service = InferenceService(INFO.model_name)
    async with serving(service) as channel:
        stub = InferenceServiceStub(channel)
        health = await stub.HealthCheck(pb.HealthCheckRequest())
        info = await stub.GetServerInfo(pb.GetServerInfoRequest())
        with pytest.raises(grpc.aio.AioRpcError) as model:
            await stub.GetModelInfo(pb.GetModelInfoRequest())
        with pytest.raises(grpc.aio.AioRpcError) as answer:
            await stub.Generate(chat()).read()
    assert (health.healthy, health.message) == (False, "loading")
    assert info.phase == "loading"
    assert model.value.code() == answer.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_model_and_server_info():
    service, _ = ready_service()
    async with serving(service) as channel:
        stub = InferenceServiceStub(channel)
        model = await stub.GetModelInfo(pb.GetModelInfoRequest())
        server = await stub.GetServerInfo(pb.GetServerInfoRequest())
        health = await stub.HealthCheck(pb.HealthCheckRequest())
    assert (model.model_name, model.vocab_size) == (INFO.model_name, 256)
    assert model.system_fingerprint == INFO.system_fingerprint
    assert [(d.name, d.state) for d in server.drafters] == [("card", "ready")]
    assert health.healthy


async def test_a_port_in_use_is_one_clear_error():
    service, _ = ready_service()
    first, second = create_server(service), create_server(service)
    port = bind(first, "127.0.0.1", 0, setting="--grpc")
    await first.start()
    try:
        with pytest.raises(ConfigError, match=f"--grpc 127.0.0.1:{port}: port {port} is in use"):
            bind(second, "127.0.0.1", port, setting="--grpc")
    finally:
        await first.stop(None)
        await second.stop(None)
