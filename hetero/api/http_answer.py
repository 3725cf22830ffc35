"""One generation as an HTTP answer: whole or streamed, ended when the client goes away."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from hetero.api.disconnect import run_until_disconnect
from hetero.api.openai_json import (
    AnswerHead,
    chunk_json,
    completion_json,
    error_json,
    role_chunk_json,
    usage_chunk_json,
)
from hetero.api.service import InferenceService
from hetero.core.errors import CapacityError, HeteroError, NotReadyError
from hetero.core.types import Finish, GenerationRequest

EVENT_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would otherwise collect the events
]


def error_response(service: InferenceService, error: HeteroError) -> JSONResponse:
    """OpenAI's error object with the error's status; counted as a refusal."""
    service.refuse(error)
    headers = {"retry-after": "1"} if isinstance(error, CapacityError | NotReadyError) else None
    return JSONResponse(error_json(error), status_code=error.http_status, headers=headers)


class WholeAnswer(Response):
    """Runs the requests, then sends one JSON body. Nothing is sent to a client that left."""

    def __init__(
        self, service: InferenceService, head: AnswerHead, requests: Sequence[GenerationRequest]
    ) -> None:
        self._service = service
        self._head = head
        self._requests = requests
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI wants it."""
        await run_until_disconnect(receive, self._run(scope, receive, send))

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response: Response = JSONResponse(await self._collect())
        except HeteroError as error:
            response = error_response(self._service, error)
        await response(scope, receive, send)

    async def _collect(self) -> dict[str, Any]:
        texts: list[list[str]] = [[] for _ in self._requests]
        finishes: dict[int, Finish] = {}
        async with aclosing(self._service.answer(self._requests)) as deltas:
            async for index, delta in deltas:
                texts[index].append(delta.text)
                if delta.finish is not None:
                    finishes[index] = delta.finish
        ordered = [finishes[index] for index in range(len(texts))]
        return completion_json(self._head, ["".join(parts) for parts in texts], ordered)


class StreamedAnswer(Response):
    """Runs the requests and sends server-sent events as tokens come.

    Headers go out with the first token, so that a request that can't run still gets its status;
    an error after that is one ``error`` event. The stream ends with ``[DONE]`` in both cases.
    """

    def __init__(
        self,
        service: InferenceService,
        head: AnswerHead,
        requests: Sequence[GenerationRequest],
        *,
        include_usage: bool,
    ) -> None:
        self._service = service
        self._head = head
        self._requests = requests
        self._include_usage = include_usage
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI wants it."""
        await run_until_disconnect(receive, self._run(scope, receive, send))

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        try:
            async with aclosing(self._events()) as events:
                async for event in events:
                    if not started:
                        started = True
                        await _start(send)
                    await _send_event(send, json.dumps(event))
        except HeteroError as error:
            if not started:
                await error_response(self._service, error)(scope, receive, send)
                return
            await _send_event(send, json.dumps(error_json(error)))
        await _send_event(send, "[DONE]")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncGenerator[dict[str, Any], None]:
        finishes: dict[int, Finish] = {}
        opened: set[int] = set()
        async with aclosing(self._service.answer(self._requests)) as deltas:
            async for index, delta in deltas:
                if self._head.kind == "chat" and index not in opened:
                    opened.add(index)
                    yield self._with_usage(role_chunk_json(self._head, index))
                if delta.text or delta.finish is not None:
                    chunk = chunk_json(self._head, index, delta.text, delta.finish)
                    yield self._with_usage(chunk)
                if delta.finish is not None:
                    finishes[index] = delta.finish
        if self._include_usage:
            yield usage_chunk_json(self._head, [finishes[i] for i in sorted(finishes)])

    def _with_usage(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """Where usage was asked for, OpenAI's chunks before the last carry a null."""
        return {**chunk, "usage": None} if self._include_usage else chunk


async def _start(send: Send) -> None:
    await send(
        {"type": "http.response.start", "status": 200, "headers": list(EVENT_STREAM_HEADERS)}
    )


async def _send_event(send: Send, data: str) -> None:
    # json.dumps escapes everything beyond ASCII, so no reader can take a part of the text for a
    # line end.
    body = f"data: {data}\n\n".encode()
    await send({"type": "http.response.body", "body": body, "more_body": True})
