"""Runs a command's coroutine so that Ctrl-C and SIGTERM end it in order."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run; a signal cancels ``main``, and after its clean-up exits 128 + number."""
    received: list[int] = []

    async def guarded() -> T:
        task = asyncio.ensure_future(main)
        loop = asyncio.get_running_loop()

        def interrupt(number: int) -> None:
            received.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt, number)
        return await task

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        if not received:
            raise
        sys.exit(128 + received[0])
