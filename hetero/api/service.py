"""What the HTTP and the gRPC front door share: the engine, its state, and answers in flight."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal, cast

from hetero.core.errors import (
    HeteroError,
    NotReadyError,
    RequestDeadlineError,
    RequestError,
)
from hetero.core.ports import Engine, MonotonicClock, Tokenizer
from hetero.core.types import Delta, Finish, GenerationRequest, SpeculativeParams
from hetero.core.validation import shown
from hetero.telemetry.metrics import ServingMetrics
from hetero.telemetry.snapshot import DrafterProbe, EngineProbe

logger = logging.getLogger(__name__)

Phase = Literal["loading", "ready", "draining"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLimits:
    """What one request may ask for."""

    max_body_bytes: int = 4 << 20
    max_choices: int = 8
    max_messages: int = 1024
    default_max_tokens: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A loaded engine with what the front doors need besides ``generate``."""

    engine: Engine
    tokenizer: Tokenizer
    snapshot: EngineProbe
    drafters: DrafterProbe
    methods: tuple[str, ...]  # values for speculative.method
    default_method: str  # where a request names none
    num_speculative_tokens: int  # where a request does not say

    def num_spec_tokens(self, speculative: SpeculativeParams) -> int:
        """Draft tokens per round that a request may get: 0 is plain decoding."""
        method = self.default_method if speculative.method is None else speculative.method
        if not speculative.enabled or method == "none":
            return 0
        wanted = speculative.num_speculative_tokens
        return self.num_speculative_tokens if wanted is None else wanted


class InferenceService:
    """Knows whether requests can be taken, and which are under way. One event loop.

    The phase goes loading -> ready -> draining; listeners are told of each change.
    """

    def __init__(
        self,
        model_name: str,
        *,
        limits: ApiLimits | None = None,
        clock: MonotonicClock = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.model_name = model_name
        self.limits = limits or ApiLimits()
        self.metrics = ServingMetrics(model_name)
        self.clock = clock
        self.wall_clock = wall_clock
        self.started_s = clock()
        self.phase: Phase = "loading"
        self.created_s = int(wall_clock())
        self._backend: Backend | None = None
        self._num_active = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._listeners: list[Callable[[Phase], None]] = []

    # ---- state --------------------------------------------------------------------------------

    def open(self, backend: Backend) -> None:
        """The model is loaded: take requests."""
        self._backend = backend
        self.metrics.attach(
            backend.snapshot,
            backend.drafters,
            num_speculative_tokens=backend.num_spec_tokens(SpeculativeParams()),
        )
        self._change("ready")

    def drain(self) -> None:
        """Refuse what comes from now on; what runs goes on."""
        self._change("draining")

    async def idle(self) -> None:
        """Wait until no answer is under way."""
        await self._idle.wait()

    def listen(self, listener: Callable[[Phase], None]) -> None:
        """Call ``listener`` with the present phase, and again after each change."""
        self._listeners.append(listener)
        listener(self.phase)

    @property
    def num_active(self) -> int:
        """Answers under way; a request for n counts n times."""
        return self._num_active

    @property
    def loaded(self) -> Backend | None:
        """The backend once there is one, also while draining."""
        return self._backend

    def backend(self) -> Backend:
        """The backend for a new request; raises NotReadyError unless the phase is ready."""
        if self.phase == "ready" and self._backend is not None:
            return self._backend
        why = {
            "loading": "the model is still being loaded. Try again when /ready says 200.",
            "draining": "the server is shutting down. Try another one.",
            "ready": "no model is loaded.",
        }[self.phase]
        raise NotReadyError(why)

    def _change(self, phase: Phase) -> None:
        self.phase = phase
        for listener in self._listeners:
            listener(phase)

    # ---- answers ------------------------------------------------------------------------------

    async def answer(
        self, requests: Sequence[GenerationRequest]
    ) -> AsyncGenerator[tuple[int, Delta], None]:
        """Run all requests at once; yield (position in ``requests``, delta) as they come.

        Closing cancels all of them. The first error ends all and is raised. A Finish that is
        not an answer (``error``, ``cancelled``) is yielded, then raised as what it stands for.
        """
        backend = self.backend()
        self._num_active += len(requests)
        self._idle.clear()
        try:
            async with aclosing(_merge([_stream(backend.engine, r) for r in requests])) as merged:
                async for index, delta in merged:
                    yield index, delta
                    if delta.finish is not None:
                        _log_end(requests[index], delta.finish)
                        self._raise_if_failed(delta.finish, requests[index])
        finally:
            self._num_active -= len(requests)
            if not self._num_active:
                self._idle.set()

    def refuse(self, error: HeteroError) -> None:
        """Count and log an error that a caller gets instead of an answer."""
        self.metrics.request_refused(error.grpc_status)
        level = logging.INFO if error.http_status < 500 else logging.WARNING
        logger.log(level, "request refused: %s", error, extra={"status": error.grpc_status})

    def _raise_if_failed(self, finish: Finish, request: GenerationRequest) -> None:
        if finish.reason == "error":
            raise HeteroError(finish.error or "the engine failed while answering this request.")
        if finish.reason == "cancelled":
            late = request.deadline_s is not None and self.clock() >= request.deadline_s
            why = finish.error or "the engine ended this request"
            kind = RequestDeadlineError if late else NotReadyError
            raise kind(f"{why}. The answer is incomplete.")


def _log_end(request: GenerationRequest, finish: Finish) -> None:
    fields = {
        "request_id": request.request_id,
        "finish_reason": finish.reason,
        "prompt_tokens": finish.num_prompt_tokens,
        "completion_tokens": finish.num_completion_tokens,
        "spec_steps": finish.speculation.num_spec_steps,
        "accepted_tokens": finish.speculation.num_accepted_draft_tokens,
        "total_s": round(finish.latency.total_s, 4),
    }
    logger.info("request ended", extra=fields)


def _stream(engine: Engine, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
    # The port promises that closing the iterator cancels, so it is a generator or closes like one.
    return cast("AsyncGenerator[Delta, None]", engine.generate(request))


async def _merge(
    streams: Sequence[AsyncGenerator[Delta, None]],
) -> AsyncGenerator[tuple[int, Delta], None]:
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for delta in only:
                yield 0, delta
        return
    queue: asyncio.Queue[tuple[int, Delta | BaseException | None]] = asyncio.Queue(len(streams))
    tasks = [asyncio.ensure_future(_pump(i, s, queue)) for i, s in enumerate(streams)]
    try:
        async for item in _drain(queue, len(tasks)):
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    index: int,
    stream: AsyncGenerator[Delta, None],
    queue: "asyncio.Queue[tuple[int, Delta | BaseException | None]]",
) -> None:
    """Move one stream into the queue, its end as None, its error as itself."""
    end: BaseException | None = None
    try:
        async with aclosing(stream) as deltas:
            async for delta in deltas:
                await queue.put((index, delta))
    except Exception as error:  # raised by the reader of the queue
        end = error
    await queue.put((index, end))


async def _drain(
    queue: "asyncio.Queue[tuple[int, Delta | BaseException | None]]", num_streams: int
) -> AsyncIterator[tuple[int, Delta]]:
    while num_streams:
        index, item = await queue.get()
        if item is None:
            num_streams -= 1
        elif isinstance(item, BaseException):
            raise item
        else:
            yield index, item


def check_model(service: InferenceService, name: str | None) -> None:
    """Raise RequestError unless ``name`` is the served model or left out."""
    if name is not None and name != service.model_name:
        raise ModelNotServedError(
            f"model {shown(name)} is not served here. This server has {service.model_name!r}.",
            param="model",
        )


class ModelNotServedError(RequestError):
    """The request names another model than the one behind this service."""

    grpc_status = "NOT_FOUND"
    http_status = 404
