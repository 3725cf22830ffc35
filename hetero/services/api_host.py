"""The inference service's process: engine, HTTP and gRPC on one event loop."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field

from hetero.api.grpc_api import bind, create_server
from hetero.api.http_api import create_app
from hetero.api.http_server import HttpServer, listen
from hetero.api.service import ApiLimits, Backend, InferenceService
from hetero.core.errors import ConfigError
from hetero.draft_client.client import CardDrafter
from hetero.draft_protocol.address import is_loopback, split_address
from hetero.models.registry import resolve_model
from hetero.services.engine_host import EngineHost, EngineHostConfig, open_engine
from hetero.services.progress import Progress, silent
from hetero.telemetry.snapshot import DrafterStatus

logger = logging.getLogger(__name__)

MAX_DRAIN_TIMEOUT_S = 86_400.0
GRPC_STOP_GRACE_S = 0.5
"""For health watchers, which never end by themselves; answers have ended before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiHostConfig:
    """Where to listen, what to load, and how to end. Validated here, once."""

    engine: EngineHostConfig = field(default_factory=EngineHostConfig)
    http: str = "127.0.0.1:8000"
    grpc: str = "127.0.0.1:50051"
    allow_insecure_remote: bool = False
    drain_timeout_s: float = 30.0
    vllm_metric_names: bool = True
    limits: ApiLimits = field(default_factory=ApiLimits)

    def __post_init__(self) -> None:
        if not 0 <= self.drain_timeout_s <= MAX_DRAIN_TIMEOUT_S:  # NaN as well
            raise ConfigError(
                f"drain_timeout_s = {self.drain_timeout_s}: use 0..{MAX_DRAIN_TIMEOUT_S:g}."
            )
        for setting, address in (("--http", self.http), ("--grpc", self.grpc)):
            host, _ = split_address(address, setting=setting)
            if not self.allow_insecure_remote and not is_loopback(host):
                raise ConfigError(
                    f"{setting} {address}: not a loopback address, and this version has no "
                    "authentication or encryption. Use 127.0.0.1, or give "
                    "--insecure-allow-remote on a network that you trust."
                )


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a running service listens, HOST:PORT each."""

    http: str
    grpc: str


async def run_api_host(
    cfg: ApiHostConfig, *, on_ready: Callable[[Addresses], None], progress: Progress = silent
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return. A second signal ends at once.

    Ports are taken before the model is loaded, and answer health checks meanwhile. Raises
    HeteroError for what can't be served: a port in use, an unknown model, a foreign draft.
    """
    model_dir = resolve_model(cfg.engine.target, cache_dir=cfg.engine.cache_dir)
    service = InferenceService(model_dir.name, limits=cfg.limits)
    with _stop_signal() as stop:
        async with _front_doors(cfg, service) as addresses, AsyncExitStack() as stack:
            progress(f"http://{addresses.http} and grpc {addresses.grpc} are open, not ready yet")
            opening = open_engine(cfg.engine, progress=progress, observer=service.metrics)
            host = await _enter_unless(stop, stack, opening)
            if host is None:
                return
            service.open(_backend(host, cfg))
            on_ready(addresses)
            await stop.wait()
            service.drain()
            await _drain(service, cfg.drain_timeout_s, progress)


async def _enter_unless(
    stop: asyncio.Event, stack: AsyncExitStack, opening: AbstractAsyncContextManager[EngineHost]
) -> EngineHost | None:
    """The open engine; None if the stop comes while it is still being loaded."""
    entering = asyncio.ensure_future(stack.enter_async_context(opening))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((entering, stopped), return_when=asyncio.FIRST_COMPLETED)
        return entering.result() if entering.done() else None
    finally:
        stopped.cancel()
        entering.cancel()
        await asyncio.gather(entering, stopped, return_exceptions=True)


async def _drain(service: InferenceService, timeout_s: float, progress: Progress) -> None:
    """Wait for the answers under way; leaving the engine ends those that take too long."""
    if service.num_active:
        progress(f"ending: {service.num_active} answers under way have {timeout_s:g} s")
    try:
        await asyncio.wait_for(service.idle(), timeout_s)
    except asyncio.TimeoutError:
        logger.warning("%d answers were cut off after %g s", service.num_active, timeout_s)


@asynccontextmanager
async def _front_doors(cfg: ApiHostConfig, service: InferenceService) -> AsyncIterator[Addresses]:
    """Both ports, open from before the model is loaded until after the engine has ended."""
    http_listener = listen(*split_address(cfg.http, setting="--http"), setting="--http")
    app = create_app(service, vllm_metric_names=cfg.vllm_metric_names)
    http_server = HttpServer(app, http_listener)
    grpc_server = create_server(service)
    try:
        grpc_host, grpc_port = split_address(cfg.grpc, setting="--grpc")
        grpc_port = bind(grpc_server, grpc_host, grpc_port, setting="--grpc")
        await grpc_server.start()
        await http_server.start()
        yield Addresses(_address(http_listener), _join(grpc_host, grpc_port))
    finally:
        await asyncio.gather(http_server.stop(), grpc_server.stop(GRPC_STOP_GRACE_S))


def _backend(host: EngineHost, cfg: ApiHostConfig) -> Backend:
    return Backend(
        engine=host.engine,
        tokenizer=host.tokenizer,
        snapshot=host.engine.snapshot,
        drafters=lambda: _drafter_statuses(host),
        methods=host.engine.methods,
        default_method=cfg.engine.drafters[0],
        num_speculative_tokens=cfg.engine.num_speculative_tokens,
    )


def _drafter_statuses(host: EngineHost) -> list[DrafterStatus]:
    statuses = [DrafterStatus(name, "ready") for name in host.engine.methods if name != "card"]
    if host.card_drafter is not None:
        statuses.insert(0, _card_status(host.card_drafter))
    return statuses


def _card_status(drafter: CardDrafter) -> DrafterStatus:
    trouble = "card_failed" if drafter.connected else "disconnected"
    state = "ready" if drafter.serving else trouble
    return DrafterStatus(drafter.name, state, drafter.counters.dropped)


@contextmanager
def _stop_signal() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set; the second signal ends the process on the spot."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def received(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)  # our draft server sees its parent go, and follows
        stop.set()

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, received, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return _join(host, port)


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
