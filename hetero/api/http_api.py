"""The HTTP front door: OpenAI's chat and text completions, models, health and metrics."""

import secrets
from typing import Any, TypeVar

import pydantic
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

import hetero
from hetero.api.http_answer import StreamedAnswer, WholeAnswer, error_response
from hetero.api.intake import ChatPrompt, Prompt, Wish, requests_of
from hetero.api.openai_body import parse_body
from hetero.api.openai_json import AnswerHead, Kind
from hetero.api.openai_schema import ChatCompletionRequest, CompletionRequest, Speculative
from hetero.api.readiness import readiness
from hetero.api.service import InferenceService, check_model
from hetero.core.errors import HeteroError, RequestCancelledError, RequestError
from hetero.core.types import SpeculativeParams
from hetero.core.validation import SamplingWishes
from hetero.telemetry.exposition import CONTENT_TYPE

Body = TypeVar("Body", bound=pydantic.BaseModel)
AnyBody = ChatCompletionRequest | CompletionRequest


class BodyTooLargeError(RequestError):
    """The request's body is larger than the server takes."""

    http_status = 413


def create_app(service: InferenceService, *, vllm_metric_names: bool = True) -> FastAPI:
    """Wire the routes to ``service``, which may still be loading."""
    app = FastAPI(title="hetero", version=hetero.__version__, docs_url="/docs", redoc_url=None)
    _add_answers(app, service)
    _add_status(app, service, vllm_metric_names=vllm_metric_names)
    _add_error_handlers(app, service)
    return app


def _add_answers(app: FastAPI, service: InferenceService) -> None:
    @app.post("/v1/chat/completions", openapi_extra=_documented(ChatCompletionRequest))
    async def chat_completions(request: Request) -> Response:
        """OpenAI's chat completions: see docs/api.md for what is taken and refused."""
        body = await _read(service, request, ChatCompletionRequest)
        turns = [message.as_turn() for message in body.messages]
        return await _answer(service, body, "chat", ChatPrompt(turns))

    @app.post("/v1/completions", openapi_extra=_documented(CompletionRequest))
    async def completions(request: Request) -> Response:
        """OpenAI's text completions, for one prompt."""
        body = await _read(service, request, CompletionRequest)
        return await _answer(service, body, "text", body.prompt)


def _add_status(app: FastAPI, service: InferenceService, *, vllm_metric_names: bool) -> None:
    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The one model that is served."""
        return {"object": "list", "data": [_model_json(service)]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        """The model, or 404."""
        check_model(service, name)
        return _model_json(service)

    @app.get("/health")
    async def health() -> Response:
        """Alive: 200 with an empty body while the process can answer at all."""
        return Response()

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """Whether requests can be taken, and what stands behind that."""
        status_code = 200 if service.phase == "ready" else 503
        return JSONResponse(readiness(service), status_code=status_code)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Prometheus text format."""
        text = service.metrics.render(vllm_names=vllm_metric_names)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    @app.get("/version")
    async def version() -> dict[str, str]:
        """The server's version."""
        return {"version": hetero.__version__}


def _add_error_handlers(app: FastAPI, service: InferenceService) -> None:
    @app.exception_handler(HeteroError)
    async def refused(request: Request, error: HeteroError) -> Response:
        del request
        return error_response(service, error)

    @app.exception_handler(HTTPException)
    async def no_such_route(request: Request, error: HTTPException) -> Response:
        message = f"{error.detail}: {request.method} {request.url.path}"
        body = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        return JSONResponse({"error": body}, status_code=error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def our_bug(request: Request, error: Exception) -> Response:
        del request, error  # uvicorn logs it with its traceback
        return error_response(service, HeteroError("internal error; see the server's log"))


async def _answer(
    service: InferenceService, body: AnyBody, kind: Kind, prompt: Prompt
) -> WholeAnswer | StreamedAnswer:
    check_model(service, body.model)
    backend = service.backend()
    wish = _wish(body, prompt, request_id=f"{_PREFIXES[kind]}-{secrets.token_hex(12)}")
    requests = await requests_of(wish, backend, service.limits)
    head = AnswerHead(
        kind=kind,
        id=wish.request_id,
        created_s=int(service.wall_clock()),
        model=service.model_name,
        system_fingerprint=backend.engine.info.system_fingerprint,
        seed=requests[0].sampling.seed,
        num_spec_tokens=backend.num_spec_tokens(requests[0].speculative),
    )
    if not body.stream:
        return WholeAnswer(service, head, requests)
    include_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    return StreamedAnswer(service, head, requests, include_usage=include_usage)


_PREFIXES: dict[Kind, str] = {"chat": "chatcmpl", "text": "cmpl"}


def _wish(body: AnyBody, prompt: Prompt, request_id: str) -> Wish:
    asked = body.speculative or Speculative()
    return Wish(
        request_id=request_id,
        prompt=prompt,
        num_choices=body.n,
        sampling=SamplingWishes(
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            min_p=body.min_p,
            seed=body.seed,
            max_tokens=_max_tokens(body),
            min_tokens=body.min_tokens,
            stop=body.stop,
            stop_token_ids=body.stop_token_ids,
            ignore_eos=body.ignore_eos,
        ),
        speculative=SpeculativeParams(
            enabled=asked.enabled is not False,
            num_speculative_tokens=asked.num_speculative_tokens,
            method=asked.method,
        ),
    )


def _max_tokens(body: AnyBody) -> int | None:
    """OpenAI renamed max_tokens for chat; both names are taken, but not two values."""
    newer = body.max_completion_tokens if isinstance(body, ChatCompletionRequest) else None
    if newer is None or body.max_tokens in (None, newer):
        return body.max_tokens if newer is None else newer
    raise RequestError(
        f"max_tokens = {body.max_tokens} and max_completion_tokens = {newer}: they mean the same. "
        "Send one of them.",
        param="max_tokens",
    )


async def _read(service: InferenceService, request: Request, schema: type[Body]) -> Body:
    """The checked body; raises RequestError for one that is too large or wrong."""
    limit_bytes = service.limits.max_body_bytes
    raw = bytearray()
    try:
        async for part in request.stream():
            raw += part
            if len(raw) > limit_bytes:
                raise BodyTooLargeError(
                    f"the body is larger than {limit_bytes} bytes. Send a shorter prompt."
                )
    except ClientDisconnect as error:  # nobody's fault, and no news for the log
        raise RequestCancelledError("the caller left before the body was complete.") from error
    return parse_body(schema, bytes(raw))


def _model_json(service: InferenceService) -> dict[str, Any]:
    backend = service.loaded
    return {
        "id": service.model_name,
        "object": "model",
        "created": service.created_s,
        "owned_by": "hetero",
        "max_model_len": backend and backend.engine.info.max_context_tokens,
    }


def _documented(schema: type[pydantic.BaseModel]) -> dict[str, Any]:
    """The body's schema for /docs: bodies are read by hand, so FastAPI can't know it."""
    content = {"application/json": {"schema": schema.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}
