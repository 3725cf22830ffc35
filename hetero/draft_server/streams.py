"""One client's stream as the server sees it: outbox, credits, pulse."""

import asyncio
from collections.abc import Iterable

from hetero.draft_protocol.liveness import Pulse
from hetero.draft_protocol.messages import (
    ClientHello,
    DraftReply,
    Goaway,
    GoawayReason,
    ResponseFrame,
    RoundReply,
    SequenceError,
)


class ClientStream:
    """What is owed to one client. Lives on the event loop; nothing here blocks."""

    def __init__(self, number: int, pulse: Pulse, *, round_credits: int) -> None:
        self.number = number
        self.pulse = pulse
        self.hello: ClientHello | None = None
        self.num_malformed = 0
        self.said_goodbye = False
        self.closed = False
        self._credits = round_credits
        self._owed: dict[int, int] = {}  # round -> asks not yet answered
        self._outbox: asyncio.Queue[ResponseFrame | None] = asyncio.Queue()

    async def next_frame(self) -> ResponseFrame | None:
        """The next frame to send; None when the stream is over."""
        return await self._outbox.get()

    def send(self, frame: ResponseFrame) -> None:
        """Queue a frame. Replies are bounded by credits, so the queue is too."""
        if not self.closed:
            self._outbox.put_nowait(frame)

    def send_heartbeat(self, *, serving: bool) -> None:
        """Queue a heartbeat, unless others already wait for a client that does not read."""
        if self._outbox.empty():
            self.send(self.pulse.beat(serving=serving))

    def end(
        self, reason: GoawayReason, detail: str = "", *, versions: tuple[int, int] = (0, 0)
    ) -> None:
        """Queue a goaway as the last frame."""
        self.send(Goaway(reason, detail, *versions))
        self.hang_up()

    def hang_up(self) -> None:
        """Send what is queued, then end."""
        if not self.closed:
            self.closed = True
            self._outbox.put_nowait(None)

    def take_credit(self, round_id: int, num_asks: int) -> bool:
        """Pay for a round with asks; False if the client has overdrawn or reuses a round."""
        if not self._credits or round_id in self._owed:
            return False
        self._credits -= 1
        self._owed[round_id] = num_asks
        return True

    def answer(
        self,
        round_id: int,
        drafts: Iterable[DraftReply] = (),
        errors: Iterable[SequenceError] = (),
        *,
        num_asks: int,
    ) -> None:
        """Answer ``num_asks`` asks of a round; its last answer gives the credit back."""
        round_credits = 0
        if num_asks:
            self._owed[round_id] -= num_asks
            if not self._owed[round_id]:
                del self._owed[round_id]
                self._credits += 1
                round_credits = 1
        self.send(
            RoundReply(
                round_id=round_id,
                drafts=tuple(drafts),
                errors=tuple(errors),
                round_credits=round_credits,
            )
        )
