"""grpc.health.v1 for grpc.aio: "" is liveness, the inference service's name is readiness.

The servicer that comes with grpcio-health-checking 1.64 drops the condition all watchers of a
service share when the first of them leaves (grpc_health/v1/_async.py, ``Watch``), so the others
never hear of a change; and its ``Watch`` uses ``context.write``, which OpenTelemetry's server
interceptor breaks (open-telemetry/opentelemetry-python-contrib#3066).
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

AnyContext: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # generic in the stubs only

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Check and Watch over statuses that ``set_status`` changes. One event loop."""

    def __init__(self) -> None:
        self._statuses: dict[str, int] = {"": SERVING}
        self._changed = asyncio.Event()

    def set_status(self, service: str, status: int) -> None:
        """Tell everyone who watches."""
        self._statuses[service] = status
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(  # noqa: N802
        self, request: Any, context: AnyContext
    ) -> Any:
        """The present status; NOT_FOUND for a service that is not here."""
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"service {request.service!r} is not served here"
            )
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(  # noqa: N802
        self, request: Any, context: AnyContext
    ) -> AsyncIterator[Any]:
        """The present status, then each new one."""
        del context
        told: int | None = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, SERVICE_UNKNOWN)
            if status != told:
                told = status
                yield health_pb2.HealthCheckResponse(status=status)
            await changed.wait()
