"""The one thread that computes. torch keeps its thread count per calling thread on CPU."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Result = TypeVar("Result")


class ComputeThread:
    """Runs calls one after the other on a thread whose torch uses ``threads`` cores."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._executor = ThreadPoolExecutor(
            max_workers=1,
            thread_name_prefix="hetero-verifier",
            initializer=torch.set_num_threads,
            initargs=(threads,),
        )

    def call(self, function: Callable[[], Result]) -> Result:
        """Run and wait, blocking."""
        return self._executor.submit(function).result()

    async def run(self, function: Callable[[], Result]) -> Result:
        """Run without blocking the event loop. Cancelling the wait does not stop the call."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)

    def close(self) -> None:
        """Let the current call end, drop the rest. Idempotent."""
        self._executor.shutdown(wait=True, cancel_futures=True)
