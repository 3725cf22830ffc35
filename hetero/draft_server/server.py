"""gRPC around a DraftHost: one handler, one ticker, one card."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator

import grpc

from hetero.core.errors import ConfigError
from hetero.core.ports import CardDriver, MonotonicClock
from hetero.draft_protocol.address import require_loopback, split_address
from hetero.draft_protocol.limits import (
    HEARTBEAT_INTERVAL_S,
    METHOD,
    SERVER_ONLY_OPTIONS,
    SERVICE,
    grpc_options,
)
from hetero.draft_protocol.messages import GoawayReason
from hetero.draft_protocol.response_codec import encode_response
from hetero.draft_server.config import DraftServerConfig
from hetero.draft_server.counters import ServerCounters
from hetero.draft_server.host import DraftHost
from hetero.draft_server.streams import ClientStream

logger = logging.getLogger(__name__)


class DraftServer:
    """Serves one card to any number of verifiers. Does not own the driver: the caller closes it."""

    def __init__(
        self,
        driver: CardDriver,
        config: DraftServerConfig | None = None,
        *,
        clock: MonotonicClock = time.monotonic,
    ) -> None:
        self._config = config or DraftServerConfig()
        self._host = DraftHost(driver, self._config, clock=clock)
        self._server: grpc.aio.Server | None = None
        self._ticker: asyncio.Task[None] | None = None

    @property
    def counters(self) -> ServerCounters:
        """Live counters; read, don't write."""
        return self._host.counters

    @property
    def num_sequences(self) -> int:
        """Sequences that have a card slot now."""
        return len(self._host.slots)

    @property
    def serving(self) -> bool:
        """False while the card fails."""
        return self._host.card.serving

    async def start(self, listen: str) -> int:
        """Listen on HOST:PORT (port 0: any free one) and return the port. Raises ConfigError."""
        require_loopback(
            listen,
            setting="listen",
            allow_remote=self._config.allow_insecure_remote,
            flag="--insecure-allow-remote",
        )
        _check_free(listen)
        config = self._config
        options = grpc_options(config.max_frame_bytes, silence_s=config.client_timeout_s)
        self._server = grpc.aio.server(options=(*options, *SERVER_ONLY_OPTIONS))
        # Bytes in, bytes out: our codec turns bad ones into counted errors, gRPC's own
        # deserialisation would end the stream.
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(
            self._draft
        )
        name = METHOD.rpartition("/")[2]
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {name: handler}),)
        )
        try:
            port = _bind(self._server, listen)
        except ConfigError:
            await self._server.stop(grace=None)
            raise
        self._host.card.start()
        self._ticker = asyncio.get_running_loop().create_task(self._tick())
        await self._server.start()
        return port

    async def stop(self, grace_s: float = 5.0) -> bool:
        """Say goodbye, finish the card's start in hand, end. Idempotent.

        False if the card did not come back within ``grace_s``: then don't touch the driver.
        """
        if self._server is None or self._ticker is None:
            return True
        self._host.drain()
        returned = await self._host.card.stop(grace_s)
        self._ticker.cancel()
        await self._server.stop(grace=min(grace_s, 0.5))
        self._server = None
        return returned

    async def _draft(
        self, requests: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[bytes, bytes]"
    ) -> AsyncIterator[bytes]:
        stream = self._host.connect()

        def done(context: object) -> None:
            del context
            self._host.disconnect(stream)

        # A handler that is cancelled while gRPC holds it suspended is finalised late; this is not.
        context.add_done_callback(done)  # type: ignore[arg-type] # a class in the stubs
        reader = asyncio.get_running_loop().create_task(self._read(requests, stream))
        try:
            while (frame := await stream.next_frame()) is not None:
                yield encode_response(frame)
        finally:
            reader.cancel()
            self._host.disconnect(stream)

    async def _read(self, requests: AsyncIterator[bytes], stream: ClientStream) -> None:
        try:
            async for data in requests:
                self._host.receive(stream, data)
            self._host.disconnect(stream)
        except Exception:  # our own bug: it may cost this stream, not the process
            logger.exception("stream %d: reading failed", stream.number)
            stream.end(GoawayReason.PROTOCOL, "internal error")
            self._host.disconnect(stream)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            self._host.tick()


def _check_free(listen: str) -> None:
    """Try the port with a plain socket first: gRPC would print its own lines about a taken one."""
    host, port = split_address(listen, setting="listen")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        # Python adds its own words to strerror here; names that don't resolve have no errno.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise _cannot_bind(listen, why) from error


def _bind(server: grpc.aio.Server, listen: str) -> int:
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise _cannot_bind(listen, str(error)) from error
    if not port:  # what older grpcio gives instead
        raise _cannot_bind(listen, "gRPC gives no reason")
    return port


def _cannot_bind(listen: str, why: str) -> ConfigError:
    return ConfigError(f"listen = {listen}: {why}. Name another port, or port 0 for any free one.")
