"""Work for an HTTP client that ends when the client goes away."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive


async def run_until_disconnect(receive: Receive, work: Coroutine[Any, Any, None]) -> bool:
    """Await ``work``, or cancel it once the client has closed the connection.

    The request's body must have been read. Returns whether the work was finished; what it raises
    is raised here. When this call itself is cancelled, so is the work.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        finished = working.done()
        if finished:
            working.result()
        return finished
    finally:
        working.cancel()
        leaving.cancel()
        # Both must have ended before the caller goes on: cancelled work frees its resources here.
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
