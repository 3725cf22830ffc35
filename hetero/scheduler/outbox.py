"""Where one request's deltas wait for their reader."""

import asyncio

from hetero.core.types import Delta, Finish


class Outbox:
    """Holds at most one delta: what the reader hasn't taken yet grows by merging.

    So a slow reader never blocks a round, gets everything in order, and costs no more memory
    than its own answer. One writer, one reader, one event loop.
    """

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._text: list[str] = []
        self._token_ids: list[int] = []
        self._finish: Finish | None = None
        self._error: Exception | None = None
        self._ready = asyncio.Event()

    def put(self, text: str, token_ids: tuple[int, ...], finish: Finish | None = None) -> None:
        """Add to what the reader gets next. Nothing may follow a ``finish``."""
        assert self._finish is None, f"{self._request_id}: delta after finish"
        self._text.append(text)
        self._token_ids.extend(token_ids)
        self._finish = finish
        self._ready.set()

    def fail(self, error: Exception) -> None:
        """Make the reader raise instead; for requests that never began."""
        self._error = error
        self._ready.set()

    async def get(self) -> Delta:
        """Wait for something, and take all there is."""
        await self._ready.wait()
        if self._error is not None:
            raise self._error
        delta = Delta(self._request_id, "".join(self._text), tuple(self._token_ids), self._finish)
        self._text.clear()
        self._token_ids.clear()
        self._ready.clear()
        return delta
