"""uvicorn as a part of our process: our port, our signals, our end."""

import asyncio
import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from hetero.core.errors import ConfigError

STOP_TIMEOUT_S = 3
"""How long connections may take to end once the answers are complete."""


class _Uvicorn(uvicorn.Server):
    """uvicorn, without its signal handlers: the process has its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves one ASGI app on one address. One event loop."""

    def __init__(self, app: Any, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
        )
        self._server = _Uvicorn(config)
        self._listener = listener
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return once connections are accepted."""
        self._task = asyncio.create_task(
            self._server.serve(sockets=[self._listener]), name="hetero-http"
        )
        while not self._server.started:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Close the port, let connections end, cut those that don't. Idempotent."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._listener.close()


def listen(host: str, port: int, *, setting: str) -> socket.socket:
    """Take HOST:PORT (port 0: any free one). Raises ConfigError naming ``setting``."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise ConfigError(f"{setting} {host}:{port}: unknown host: {error.strerror}.") from error
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Already now: another process that binds the same port must fail before it loads a model.
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(f"{setting} {host}:{port}: {_why(error, port, setting)}") from error
    return listener


def _why(error: OSError, port: int, setting: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} is in use. Stop what listens there, or choose another one with {setting}."
        )
    if error.errno == errno.EACCES:
        return f"port {port} needs more rights. Choose one above 1023 with {setting}."
    return f"{error.strerror}. Choose an address of this host with {setting}."
