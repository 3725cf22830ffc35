"""The HTTP front door over a scripted engine, without sockets."""

import json
import logging

import httpx
import pytest
from support.fake_engine import INFO, ScriptedEngine, backend_of, echo, ready_service

from hetero.api.http_api import create_app
from hetero.api.service import ApiLimits, InferenceService
from hetero.core.errors import CapacityError, ContextOverflowError, HeteroError
from hetero.core.types import Finish
from hetero.telemetry.snapshot import DrafterStatus

CHAT = {"model": INFO.model_name, "messages": [{"role": "user", "content": "hi"}]}


def client_of(service):
    transport = httpx.ASGITransport(app=create_app(service), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


async def post(service, body, path="/v1/chat/completions"):
    async with client_of(service) as client:
        return await client.post(path, json=body)


def events_of(response):
    """The JSON of every event but the last, which must be [DONE]."""
    lines = response.content.split(b"\n\n")
    assert lines[-1] == b""
    assert lines[-2] == b"data: [DONE]"
    return [json.loads(line.removeprefix(b"data: ")) for line in lines[:-2]]


# ---- whole answers -------------------------------------------------------------------------------


async def test_chat_completion_has_openai_shape():
    service, engine = ready_service()
    response = await post(service, {**CHAT, "seed": 7})
    body = response.json()
    assert response.status_code == 200
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == INFO.model_name
    assert body["system_fingerprint"] == "fp_test"
    assert body["seed"] == 7
    (choice,) = body["choices"]
    assert choice["message"]["content"] == "<user>hi\n<assistant>#0"
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "stop"
    tokens = len("<user>hi\n<assistant>")
    assert body["usage"] == {
        "prompt_tokens": tokens,
        "completion_tokens": tokens + 3,
        "total_tokens": 2 * tokens + 3,
    }
    assert engine.active == engine.cancelled == 0


async def test_speculation_counters_are_at_the_root_as_vllm_writes_them():
    """With the rates per position that ggml-org/llama.cpp#24536 asks for."""
    service, _ = ready_service()
    spec = (await post(service, CHAT)).json()["metrics"]["speculative_decoding"]
    assert spec == {
        "mean_acceptance_length": 3.0,
        "draft_acceptance_rate": 6 / 9,
        "acceptance_histogram": [0, 1, 1, 1, 0],
        "num_spec_steps": 3,
        "num_accepted_draft_tokens": 6,
        "num_draft_tokens": 9,
        "num_spec_tokens": 4,
        "acceptance_per_position": [1.0, 2 / 3, 1 / 3, None],
    }


async def test_speculation_can_be_switched_off_and_ratios_are_null_then():
    service, engine = ready_service()
    body = (await post(service, {**CHAT, "speculative": {"enabled": False}})).json()
    spec = body["metrics"]["speculative_decoding"]
    assert engine.requests[0].speculative.enabled is False
    assert spec["mean_acceptance_length"] is None
    assert spec["draft_acceptance_rate"] is None
    assert spec["num_spec_tokens"] == 0


async def test_k_is_told_where_a_request_drafts_although_the_default_does_not():
    service, engine = InferenceService(INFO.model_name), ScriptedEngine(echo)
    service.open(backend_of(engine, default_method="none"))
    for speculative, k in (({}, 0), ({"method": "ngram"}, 4), ({"method": "none"}, 0)):
        answer = (await post(service, {**CHAT, "speculative": speculative})).json()
        spec = answer["metrics"]["speculative_decoding"]
        assert spec["num_spec_tokens"] == k
        assert len(spec["acceptance_histogram"]) == 1 + max(k, 3)  # the script accepts up to 3


async def test_n_answers_share_seed_and_prompt_and_add_up():
    """vllm-project/vllm#6137: n > 1 failed."""
    service, engine = ready_service()
    body = (await post(service, {**CHAT, "n": 4})).json()
    assert [c["message"]["content"][-2:] for c in body["choices"]] == ["#0", "#1", "#2", "#3"]
    assert [r.sampling.choice_index for r in engine.requests] == [0, 1, 2, 3]
    assert {r.sampling.seed for r in engine.requests} == {body["seed"]}
    assert len({r.request_id for r in engine.requests}) == 4
    assert body["usage"]["completion_tokens"] == 4 * (body["usage"]["prompt_tokens"] + 3)
    assert body["metrics"]["speculative_decoding"]["num_draft_tokens"] == 36


async def test_a_missing_seed_is_drawn_anew_and_returned():
    service, engine = ready_service()
    seeds = [(await post(service, CHAT)).json()["seed"] for _ in range(2)]
    assert seeds == [r.sampling.seed for r in engine.requests]
    assert seeds[0] != seeds[1]


async def test_every_parameter_reaches_the_engine():
    service, engine = ready_service()
    body = {
        **CHAT,
        "max_completion_tokens": 33,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "seed": 2**64 - 1,
        "stop": ["\n\n", "END"],
        "stop_token_ids": [5],
        "min_tokens": 3,
        "ignore_eos": True,
        "user": "someone",
        "speculative": {"num_speculative_tokens": 2, "method": "ngram"},
    }
    assert (await post(service, body)).status_code == 200
    (request,) = engine.requests
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.min_tokens, sampling.ignore_eos) == (33, 3, True)
    assert (sampling.temperature, sampling.top_p) == (0.5, 0.9)
    assert (sampling.top_k, sampling.min_p, sampling.seed) == (40, 0.05, 2**64 - 1)
    assert (sampling.stop, sampling.stop_token_ids) == (("\n\n", "END"), (5,))
    assert request.speculative.num_speculative_tokens == 2
    assert request.speculative.method == "ngram"


async def test_content_parts_and_roles_are_laid_out():
    service, engine = ready_service()
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [
        {"role": "developer", "content": "rules"},
        {"role": "assistant", "content": "x", "tool_calls": None, "refusal": None},
        {"role": "user", "content": parts},
    ]
    assert (await post(service, {**CHAT, "messages": messages})).status_code == 200
    prompt = bytes(engine.requests[0].prompt_token_ids).decode()
    assert prompt == "<system>rules\n<assistant>x\n<user>ab\n<assistant>"


async def test_text_completion_takes_text_or_ids():
    service, _ = ready_service()
    for prompt in ("hi", [104, 105]):
        body = {"model": INFO.model_name, "prompt": prompt}
        answer = (await post(service, body, "/v1/completions")).json()
        assert answer["object"] == "text_completion"
        assert answer["choices"][0]["text"] == "hi#0"


# ---- streams -------------------------------------------------------------------------------------


async def test_stream_opens_with_the_role_and_ends_with_done():
    service, _ = ready_service()
    response = await post(service, {**CHAT, "stream": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = events_of(response)
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(d.get("content", "") for d in deltas) == "<user>hi\n<assistant>#0"
    assert [e["choices"][0]["finish_reason"] for e in events][-2:] == [None, "stop"]
    assert len({event["id"] for event in events}) == 1
    assert all("usage" not in event for event in events)


async def test_stream_gives_usage_where_asked():
    service, _ = ready_service()
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    *events, last = events_of(await post(service, body))
    whole = (await post(service, CHAT)).json()
    assert all(event["usage"] is None for event in events)
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    assert last["metrics"] == whole["metrics"]


async def test_streamed_choices_are_told_apart_by_index():
    service, _ = ready_service()
    texts = {0: "", 1: ""}
    for event in events_of(await post(service, {**CHAT, "n": 2, "stream": True})):
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == {0: "<user>hi\n<assistant>#0", 1: "<user>hi\n<assistant>#1"}


@pytest.mark.parametrize(
    "text", ["grüße 🎉 日本", "a\u2028b\u0085c\r\nd\x00", "  \n\n data: x\n\n"]
)
async def test_any_text_survives_the_event_framing(text):
    service, _ = ready_service(lambda request: list(text))
    events = events_of(await post(service, {**CHAT, "stream": True}))
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == text
    assert (await post(service, CHAT)).json()["choices"][0]["message"]["content"] == text


async def test_text_stream_has_no_role():
    service, _ = ready_service()
    body = {"model": INFO.model_name, "prompt": "hi", "stream": True}
    events = events_of(await post(service, body, "/v1/completions"))
    assert "".join(event["choices"][0]["text"] for event in events) == "hi#0"
    assert {event["object"] for event in events} == {"text_completion"}


# ---- what is refused -----------------------------------------------------------------------------

BAD_CHAT = [
    ({"temperature": "hot"}, "temperature", "invalid_value"),
    ({"temperature": True}, "temperature", "invalid_value"),
    ({"temperature": -0.1}, "temperature", "invalid_value"),
    ({"temperature": 3}, "temperature", "invalid_value"),
    ({"top_p": 0}, "top_p", "invalid_value"),
    ({"top_p": 1.5}, "top_p", "invalid_value"),
    ({"top_k": -2}, "top_k", "invalid_value"),
    ({"min_p": 2}, "min_p", "invalid_value"),
    ({"seed": -1}, "seed", "invalid_value"),
    ({"seed": 2**64}, "seed", "invalid_value"),
    ({"seed": 1.5}, "seed", "invalid_value"),
    ({"max_tokens": 0}, "max_tokens", "invalid_value"),
    ({"max_tokens": 1.5}, "max_tokens", "invalid_value"),
    ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "invalid_value"),
    ({"max_tokens": 2, "min_tokens": 3}, "min_tokens", "invalid_value"),
    ({"n": 0}, "n", "invalid_value"),
    ({"n": 9}, "n", "invalid_value"),
    ({"stop": [""]}, "stop", "invalid_value"),
    ({"stop": ["x"] * 17}, "stop", "invalid_value"),
    ({"stop": [1]}, "stop[0]", "invalid_value"),
    ({"stop_token_ids": [256]}, "stop_token_ids", "invalid_value"),
    ({"stream": "yes"}, "stream", "invalid_value"),
    ({"stream_options": {"x": 1}}, "stream_options.x", "unknown_parameter"),
    ({"speculative": {"method": "magic"}}, "speculative.method", "invalid_value"),
    (
        {"speculative": {"num_speculative_tokens": 65}},
        "speculative.num_speculative_tokens",
        "invalid_value",
    ),
    ({"speculative": {"k": 1}}, "speculative.k", "unknown_parameter"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": None}, "messages", "invalid_value"),
    ({"messages": "hi"}, "messages", "invalid_value"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "invalid_value"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].type",
        "invalid_value",
    ),
    (
        {"messages": [{"role": "user", "content": "x", "name": "bob"}]},
        "messages[0].name",
        "unsupported_parameter",
    ),
    ({"temprature": 1}, "temprature", "unknown_parameter"),
    ({"logprobs": True}, "logprobs", "unsupported_parameter"),
    ({"top_logprobs": 5}, "top_logprobs", "unsupported_parameter"),
    ({"tools": [{"type": "function"}]}, "tools", "unsupported_parameter"),
    ({"response_format": {"type": "json_object"}}, "response_format", "unsupported_parameter"),
    ({"frequency_penalty": 0.5}, "frequency_penalty", "unsupported_parameter"),
    ({"presence_penalty": -2}, "presence_penalty", "unsupported_parameter"),
    ({"repetition_penalty": 1.1}, "repetition_penalty", "unsupported_parameter"),
    ({"logit_bias": {"5": 1}}, "logit_bias", "unsupported_parameter"),
    ({"prediction": {"type": "content", "content": "x"}}, "prediction", "unsupported_parameter"),
    ({"lora": "adapter"}, "lora", "unsupported_parameter"),
]


@pytest.mark.parametrize("change, param, code", BAD_CHAT, ids=lambda v: str(v)[:40])
@pytest.mark.parametrize("stream", [False, True])
async def test_bad_parameters_are_refused_by_name(change, param, code, stream):
    """Elsewhere ignored: NVIDIA/TensorRT-LLM#17701, vllm-project/vllm#18902 and #4872."""
    service, engine = ready_service()
    response = await post(service, {**CHAT, "stream": stream, **change})
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["param"], error["code"]) == (param, code)
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(param.partition("[")[0])
    assert "\n" not in error["message"]
    assert engine.requests == []


NEUTRAL = {
    "logprobs": False,
    "top_logprobs": None,
    "tools": [],
    "tool_choice": "none",
    "frequency_penalty": 0.0,
    "presence_penalty": 0,
    "repetition_penalty": 1.0,
    "logit_bias": {},
    "response_format": {"type": "text"},
    "temperature": None,
    "stop": None,
    "whatever": None,
}


async def test_parameters_that_ask_for_nothing_are_taken():
    service, _ = ready_service()
    assert (await post(service, {**CHAT, **NEUTRAL})).status_code == 200


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"\xff\xfe", b"NaN", b"[" * 5000, b'{"model": "x", "messages": "\\ud800"}'],
    ids=["empty", "cut", "list", "not utf-8", "nan", "deep", "lone surrogate"],
)
async def test_what_is_not_a_json_object_is_refused(raw):
    service, _ = ready_service()
    async with client_of(service) as client:
        response = await client.post("/v1/chat/completions", content=raw)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("the body is")


@pytest.mark.parametrize("prompt", ["", [], [-1], [256], [1.5], [True], ["a"], None, 5, {}])
async def test_bad_prompts_are_refused(prompt):
    """vLLM answers empty prompts so, too: 400 "prompt cannot be empty"."""
    service, engine = ready_service()
    body = {"model": INFO.model_name, "prompt": prompt}
    response = await post(service, body, "/v1/completions")
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("prompt")
    assert engine.requests == []


async def test_another_model_is_not_found():
    service, _ = ready_service()
    response = await post(service, {**CHAT, "model": "gpt-x"})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert INFO.model_name in response.json()["error"]["message"]


LONG = "\n" * 300_000


@pytest.mark.parametrize(
    "change",
    [
        {"model": LONG},
        {LONG: 1},
        {"speculative": {"method": LONG}},
        {"speculative": {LONG: 1}},
        {"stream": LONG},
        {"messages": [{"role": LONG, "content": "x"}]},
        {"n": 10**4000},
        {"seed": -(10**4000)},
        {"temperature": 10**4000},
        {"stop": 10**4000},
    ],
    ids=lambda change: next(iter(change))[:20],
)
async def test_an_error_is_one_short_line_whatever_was_sent(change):
    service, _ = ready_service()
    response = await post(service, {**CHAT, **change})
    assert response.status_code in (400, 404)
    assert len(response.content) < 700
    assert "\n" not in response.json()["error"]["message"]


async def test_a_prompt_beyond_the_context_is_refused():
    service, _ = ready_service()
    messages = [{"role": "user", "content": "x" * INFO.max_context_tokens}]
    error = (await post(service, {**CHAT, "messages": messages})).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert str(INFO.max_context_tokens) in error["message"]


async def test_a_body_beyond_the_limit_is_refused():
    service, _ = ready_service(limits=ApiLimits(max_body_bytes=1000))
    messages = [{"role": "user", "content": "x" * 1000}]
    response = await post(service, {**CHAT, "messages": messages})
    assert response.status_code == 413
    assert "1000 bytes" in response.json()["error"]["message"]


async def test_a_caller_that_leaves_while_sending_is_no_error_of_ours(caplog):
    service, engine = ready_service()
    received = iter(
        [
            {"type": "http.request", "body": b'{"model": ', "more_body": True},
            {"type": "http.disconnect"},
        ]
    )
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "query_string": b"",
        "headers": [],
    }
    sent = []

    async def receive():
        return next(received)

    async def send(message):
        sent.append(message)

    await create_app(service)(scope, receive, send)
    assert sent[0]["status"] == 499
    assert engine.requests == []
    assert [r.levelname for r in caplog.records if r.levelno > logging.INFO] == []


async def test_unknown_routes_and_methods_keep_the_error_shape():
    service, _ = ready_service()
    async with client_of(service) as client:
        missing = await client.get("/v1/embeddings")
        wrong = await client.get("/v1/chat/completions")
    assert (missing.status_code, wrong.status_code) == (404, 405)
    assert "/v1/embeddings" in missing.json()["error"]["message"]
    assert "error" in wrong.json()


# ---- what goes wrong behind the door -------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "error, status, code",
    [
        (CapacityError("queue full"), 503, "server_overloaded"),
        (ContextOverflowError("too long", param="prompt"), 400, "context_length_exceeded"),
        (HeteroError("engine broke"), 500, None),
    ],
)
async def test_errors_before_the_first_token_give_their_status(error, status, code, stream):
    service, _ = ready_service(lambda request: [error])
    response = await post(service, {**CHAT, "stream": stream})
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert response.json()["error"]["message"] == str(error)
    assert (response.headers.get("retry-after") == "1") == (status == 503)


async def test_an_error_after_the_first_token_is_an_event():
    service, _ = ready_service(lambda request: ["abc", HeteroError("engine broke")])
    response = await post(service, {**CHAT, "stream": True})
    events = events_of(response)
    assert response.status_code == 200
    assert events[-1]["error"]["message"] == "engine broke"
    assert events[-2]["choices"][0]["delta"]["content"] == "abc"


@pytest.mark.parametrize("reason, status", [("error", 500), ("cancelled", 503)])
async def test_an_answer_that_was_cut_off_is_no_success(reason, status):
    finish = Finish(reason, 5, 2, error="the step failed")
    service, _ = ready_service(lambda request: ["abc", finish])
    response = await post(service, CHAT)
    assert response.status_code == status
    assert response.json()["error"]["message"].startswith("the step failed")


async def test_one_failing_choice_ends_the_others():
    def script(request):
        if request.sampling.choice_index == 1:
            return ["a", HeteroError("engine broke")]
        return ["x"] * 1000

    service, engine = ready_service(script)
    response = await post(service, {**CHAT, "n": 3})
    assert response.status_code == 500
    assert engine.active == 0
    assert engine.cancelled == 3


async def test_a_bug_of_ours_is_a_500_without_its_insides():
    service, _ = ready_service(lambda request: [ZeroDivisionError("secret path")])
    response = await post(service, CHAT)
    assert response.status_code == 500
    assert "secret" not in response.text
    assert response.json()["error"]["type"] == "server_error"


# ---- state ---------------------------------------------------------------------------------------


async def test_before_the_model_is_loaded_only_life_is_reported():
    service = InferenceService(INFO.model_name)
    async with client_of(service) as client:
        health = await client.get("/health")
        ready = await client.get("/ready")
        chat = await client.post("/v1/chat/completions", json=CHAT)
        metrics = await client.get("/metrics")
    assert (health.status_code, health.content) == (200, b"")
    assert ready.status_code == 503
    assert ready.json()["status"] == "loading"
    assert ready.json()["model"]["loaded"] is False
    assert chat.status_code == 503
    assert chat.json()["error"]["code"] == "server_not_ready"
    assert metrics.status_code == 200


async def test_ready_tells_load_drafters_and_latencies():
    service, _ = ready_service()
    await post(service, CHAT)
    async with client_of(service) as client:
        ready = (await client.get("/ready")).json()
    assert ready["status"] == "ready"
    assert ready["drafters"] == [{"name": "card", "state": "ready"}]
    assert ready["degraded"] is False
    assert ready["queue"] == {"running": 0, "waiting": 0}
    assert ready["latency"]["ttft_s"] == {"p50": 0.25, "p90": 0.25, "p99": 0.25}


async def test_a_drafter_that_is_gone_degrades_and_keeps_ready():
    gone = (DrafterStatus("card", "disconnected"), DrafterStatus("ngram", "ready"))
    service = InferenceService(INFO.model_name)
    service.open(backend_of(ScriptedEngine(), drafters=lambda: gone))
    async with client_of(service) as client:
        ready = await client.get("/ready")
    assert (ready.status_code, ready.json()["degraded"]) == (200, True)


async def test_draining_refuses_new_requests_and_says_so():
    service, _ = ready_service()
    service.drain()
    async with client_of(service) as client:
        ready = await client.get("/ready")
        chat = await client.post("/v1/chat/completions", json=CHAT)
    assert (ready.status_code, ready.json()["status"]) == (503, "draining")
    assert chat.status_code == 503
    await service.idle()


async def test_models_and_version():
    service, _ = ready_service()
    async with client_of(service) as client:
        models = (await client.get("/v1/models")).json()
        one = await client.get(f"/v1/models/{INFO.model_name}")
        other = await client.get("/v1/models/a/b")
        version = (await client.get("/version")).json()
    assert [m["id"] for m in models["data"]] == [INFO.model_name]
    assert one.json() == models["data"][0]
    assert other.status_code == 404
    assert version["version"]


async def test_answers_under_way_are_counted():
    service, engine = ready_service()
    assert service.num_active == 0
    await post(service, {**CHAT, "n": 2})
    assert service.num_active == 0
    assert isinstance(engine, ScriptedEngine)
    assert backend_of(engine).num_spec_tokens(engine.requests[0].speculative) == 4
