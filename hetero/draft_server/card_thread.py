"""The one thread that touches the card, so that the event loop never waits for it."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Sequence

from hetero.core.ports import CardDriver
from hetero.core.types import CardRun, LaneWork


class CardThread:
    """Runs a CardDriver's starts one after another.

    A daemon thread: a card that hangs for ever must not keep the process from ending.
    """

    def __init__(self, driver: CardDriver) -> None:
        self._driver = driver
        self._jobs: queue.SimpleQueue[tuple[Sequence[LaneWork], asyncio.Future[CardRun]] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._work, name="card", daemon=True)
        self._thread.start()

    async def run(self, work: Sequence[LaneWork]) -> CardRun:
        """Start the card and wait without blocking. Raises what the driver raises."""
        future: asyncio.Future[CardRun] = asyncio.get_running_loop().create_future()
        self._jobs.put((work, future))
        return await future

    def stop(self) -> None:
        """Let the thread end after the start it is in."""
        self._jobs.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; False if the card still holds it. Blocks."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future = job
            try:
                outcome: CardRun | BaseException = self._driver.run(work)
            except Exception as error:  # handed to the awaiting side, which tells kinds apart
                outcome = error
            # The loop may be gone already, when a process ends with the card still busy.
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_settle, future, outcome)


def _settle(future: "asyncio.Future[CardRun]", outcome: CardRun | BaseException) -> None:
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
