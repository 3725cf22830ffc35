"""The gRPC front door: InferenceService, health and reflection."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

import hetero
from hetero.api.grpc_convert import ChoiceWriter, wish_of
from hetero.api.grpc_health import NOT_SERVING, SERVING, HealthServicer
from hetero.api.intake import requests_of
from hetero.api.service import InferenceService, Phase, check_model
from hetero.core.errors import ConfigError, HeteroError
from hetero.rpc.inference.v1 import inference_pb2 as pb
from hetero.rpc.inference.v1 import inference_pb2_grpc

logger = logging.getLogger(__name__)

SERVICE = pb.DESCRIPTOR.services_by_name["InferenceService"].full_name

KEEPALIVE_OPTIONS = (
    # Two servers on one port would share its connections in silence: let the second one fail.
    ("grpc.so_reuseport", 0),
    # Clients with common keepalive settings would be cut off for "too many pings" otherwise.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # keepalive_timeout_ms alone does not notice a frozen client.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
)

AnyContext: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # generic in the stubs only


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """Turns messages into requests of the shared service, and errors into statuses."""

    def __init__(self, service: InferenceService) -> None:
        self._service = service
        self._closing: set[asyncio.Task[None]] = set()

    async def Generate(  # noqa: N802
        self, request: pb.GenerateRequest, context: AnyContext
    ) -> AsyncIterator[pb.GenerateResponse]:
        """Stream one answer; ending the call ends the generation."""
        try:
            async with aclosing(self._answer(request, context)) as messages:
                async for message in messages:
                    yield message
        except HeteroError as error:
            await self._abort(context, error)
        except Exception:  # our own bug: its insides are for the log, not for the caller
            logger.exception("request failed")
            await self._abort(context, HeteroError("internal error; see the server's log"))

    async def HealthCheck(  # noqa: N802
        self, request: pb.HealthCheckRequest, context: AnyContext
    ) -> pb.HealthCheckResponse:
        """Whether requests can be taken."""
        del request, context
        phase = self._service.phase
        return pb.HealthCheckResponse(healthy=phase == "ready", message=phase)

    async def GetModelInfo(  # noqa: N802
        self, request: pb.GetModelInfoRequest, context: AnyContext
    ) -> pb.GetModelInfoResponse:
        """The target; UNAVAILABLE while it is being loaded."""
        del request
        try:
            info = self._service.backend().engine.info
        except HeteroError as error:
            await self._abort(context, error)
            raise  # abort has raised already
        return pb.GetModelInfoResponse(
            model_name=self._service.model_name,
            vocab_size=info.vocab_size,
            max_context_tokens=info.max_context_tokens,
            eos_token_ids=info.eos_token_ids,
            tokenizer_sha256=info.tokenizer_sha256,
            system_fingerprint=info.system_fingerprint,
            device=info.device,
            dtype=info.dtype,
        )

    async def GetServerInfo(  # noqa: N802
        self, request: pb.GetServerInfoRequest, context: AnyContext
    ) -> pb.GetServerInfoResponse:
        """Version, load and limits; load is 0 until there is an engine."""
        del request, context
        service, backend = self._service, self._service.loaded
        view = backend.snapshot() if backend else None
        drafters = backend.drafters() if backend else ()
        return pb.GetServerInfoResponse(
            version=hetero.__version__,
            phase=service.phase,
            uptime_s=service.clock() - service.started_s,
            num_requests_running=view.num_running if view else 0,
            num_requests_waiting=view.num_waiting if view else 0,
            drafters=[pb.DrafterInfo(name=d.name, state=d.state) for d in drafters],
            max_choices=service.limits.max_choices,
            default_max_tokens=service.limits.default_max_tokens,
        )

    async def _answer(
        self, message: pb.GenerateRequest, context: AnyContext
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        service = self._service
        check_model(service, message.model or None)
        backend = service.backend()
        remaining_s = context.time_remaining()
        deadline_s = None if remaining_s is None else service.clock() + remaining_s
        wish = wish_of(message, request_id=f"gen-{secrets.token_hex(12)}", deadline_s=deadline_s)
        requests = await requests_of(wish, backend, service.limits)
        fingerprint = backend.engine.info.system_fingerprint
        writers = [
            ChoiceWriter(index, request, fingerprint, message.stream)
            for index, request in enumerate(requests)
        ]
        deltas = service.answer(requests)
        self._close_with(context, deltas)
        async with aclosing(deltas):
            async for index, delta in deltas:
                for response in writers[index].messages(delta):
                    yield response

    def _close_with(self, context: AnyContext, deltas: AsyncGenerator[Any, None]) -> None:
        """End the generation with the call, even while gRPC holds this handler suspended."""

        def done(context: object) -> None:
            del context
            task = asyncio.get_running_loop().create_task(_close_quietly(deltas))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

        context.add_done_callback(done)  # type: ignore[arg-type]  # a class in the stubs

    async def _abort(self, context: AnyContext, error: HeteroError) -> None:
        self._service.refuse(error)
        param = getattr(error, "param", None)
        metadata = (("hetero-param", param),) if param else ()
        await context.abort(grpc.StatusCode[error.grpc_status], str(error), metadata)


async def _close_quietly(deltas: AsyncGenerator[Any, None]) -> None:
    # "already running": then its reader is being cancelled, which closes it just as well.
    with contextlib.suppress(RuntimeError):
        await deltas.aclose()


def create_server(service: InferenceService) -> grpc.aio.Server:
    """A server with our service, health and reflection; not started, no port yet."""
    max_bytes = service.limits.max_body_bytes
    options = (*KEEPALIVE_OPTIONS, ("grpc.max_receive_message_length", max_bytes))
    server = grpc.aio.server(options=options)
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(InferenceServicer(service), server)
    health_pb2_grpc.add_HealthServicer_to_server(_health_of(service), server)
    health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
    reflection.enable_server_reflection((SERVICE, health_name, reflection.SERVICE_NAME), server)
    return server


def _health_of(service: InferenceService) -> HealthServicer:
    health = HealthServicer()

    def tell(phase: Phase) -> None:
        health.set_status(SERVICE, SERVING if phase == "ready" else NOT_SERVING)

    service.listen(tell)
    return health


def bind(server: grpc.aio.Server, host: str, port: int, *, setting: str) -> int:
    """Take HOST:PORT (port 0: any free one) and return the port. Raises ConfigError."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    bound = 0
    with contextlib.suppress(RuntimeError):  # newer grpcio raises, older returns 0
        bound = server.add_insecure_port(address)
    if not bound:
        raise ConfigError(
            f"{setting} {address}: port {port} is in use, or {host} is not this host's. Stop what "
            f"listens there, or choose another one with {setting}."
        )
    return bound
