"""The card pool behind the Drafter port: asks over gRPC, survives whatever the server does."""

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from collections.abc import Iterable

from hetero.core.errors import DraftUnavailableError, HeteroError, PairError, VersionError
from hetero.core.ports import MonotonicClock
from hetero.core.types import CardInfo, DraftBatch, Drafts, SequenceId
from hetero.draft_client.config import DraftClientConfig, TargetIdentity
from hetero.draft_client.counters import ClientCounters
from hetero.draft_client.ledger import Ledger
from hetero.draft_client.link import Link, open_link
from hetero.draft_client.rounds import PendingRound, to_draft, verdict_on
from hetero.draft_protocol.address import require_loopback
from hetero.draft_protocol.breaker import Breaker
from hetero.draft_protocol.messages import DraftReply, Round, RoundReply

logger = logging.getLogger(__name__)


class CardDrafter:
    """A ports.Drafter for one card host. Lives on one event loop.

    A background task keeps one stream up, reconnecting for ever. While it is down, proposals come
    back at once without drafts; when it is up again, sequences are opened anew as they ask.
    """

    name = "card"

    def __init__(
        self,
        address: str,
        identity: TargetIdentity,
        config: DraftClientConfig | None = None,
        *,
        clock: MonotonicClock = time.monotonic,
    ) -> None:
        self._config = config or DraftClientConfig()
        require_loopback(
            address,
            setting="drafters",
            allow_remote=self._config.allow_insecure_remote,
            flag="--insecure-allow-remote",
        )
        self._address = address
        self._identity = identity
        self._clock = clock
        self._client_id = secrets.randbits(64)
        self._counters = ClientCounters()
        self._ledger = Ledger(clock, no_slot_retry_s=self._config.no_slot_retry_s)
        self._breaker = Breaker(
            clock,
            threshold=self._config.breaker_timeouts,
            cooloff_s=self._config.breaker_cooloff_s,
        )
        self._rounds: dict[int, PendingRound] = {}
        self._round_ids = itertools.count(1)
        self._last_round_id = 0
        self._link: Link | None = None
        self._card: CardInfo | None = None
        self._problem: HeteroError | None = None
        self._attempted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    # ---- what the wiring asks -------------------------------------------------------------------

    @property
    def counters(self) -> ClientCounters:
        """A snapshot for metrics."""
        return self._counters.snapshot()

    @property
    def card(self) -> CardInfo | None:
        """The card behind the server, as of the latest hello."""
        return self._card

    @property
    def connected(self) -> bool:
        """Whether the stream is up."""
        return self._link is not None

    @property
    def serving(self) -> bool:
        """Whether the stream is up and the card works."""
        return self._link is not None and self._link.serving

    @property
    def num_sequences(self) -> int:
        """Sequences we know of: each was asked for and not yet released."""
        return len(self._ledger)

    async def connect(self) -> CardInfo:
        """Start, and wait for the first connection.

        Raises VersionError, PairError at once, DraftUnavailableError when the server cannot be
        reached within ``connect_timeout_s``.
        """
        self._ensure_started()
        give_up_at = time.monotonic() + self._config.connect_timeout_s
        while self._link is None:
            if isinstance(self._problem, VersionError | PairError):
                raise self._problem
            remaining_s = give_up_at - time.monotonic()
            if remaining_s <= 0:
                raise self._problem or DraftUnavailableError(f"draft server {self._address}: gone")
            self._attempted.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._attempted.wait(), remaining_s)
        assert self._card is not None
        return self._card

    # ---- the Drafter port -----------------------------------------------------------------------

    async def propose(self, batch: DraftBatch) -> Drafts:
        """Draft for each query. A query for 0 tokens only tells the server what to read ahead."""
        self._ensure_started()
        link = self._link
        if link is None or (reason := self._not_now(link)):
            why = self._down_reason() if link is None else reason
            return Drafts(
                fallbacks={q.sequence_id: why for q in batch.queries if q.max_draft_tokens}
            )
        plan = self._ledger.plan(
            batch.queries, link.server, deadline_us=round(self._config.deadline_s * 1e6)
        )
        round_id = self._last_round_id = next(self._round_ids)
        for frame in plan.frames(round_id, link.server.max_frame_bytes):
            link.send(frame)
        pending = PendingRound(plan.asks, plan.fallbacks)
        if plan.asks:
            link.round_credits -= 1
            await self._answers(round_id, pending, num_asks=len(plan.asks))
        return pending.result()

    def release(self, sequence_ids: Iterable[SequenceId]) -> None:
        """Forget sequences and free their slots on the card host."""
        ids = list(sequence_ids)
        closes = self._ledger.release(ids)
        for pending in self._rounds.values():
            for sequence_id in ids:
                pending.release(sequence_id)
        if closes and self._link is not None:
            self._link.send(Round(round_id=0, closes=tuple(closes)))

    async def close(self) -> None:
        """Say goodbye and end the background task. Idempotent."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    # ---- rounds ---------------------------------------------------------------------------------

    def _not_now(self, link: Link) -> str:
        if not self._breaker.allows:
            return "breaker_open"
        return "" if link.round_credits > 0 else "no_credit"

    def _down_reason(self) -> str:
        if isinstance(self._problem, VersionError):
            return "version"
        return "pair" if isinstance(self._problem, PairError) else "disconnected"

    async def _answers(self, round_id: int, pending: PendingRound, *, num_asks: int) -> None:
        self._counters.rounds += 1
        self._counters.asks += num_asks
        self._rounds[round_id] = pending
        try:
            num_late = await pending.wait(self._config.deadline_s)
        finally:
            self._rounds.pop(round_id, None)
        for _ in range(num_late):
            self._counters.drop("timeout")
        if num_late:
            self._breaker.failed()
            pending.fall_back_all("timeout")
        else:
            self._breaker.succeeded()

    def _on_reply(self, reply: RoundReply) -> None:
        pending = self._rounds.get(reply.round_id)
        for draft in reply.drafts:
            self._on_draft(pending, reply.round_id, draft)
        for error in reply.errors:
            reason = self._ledger.failed(SequenceId(error.sequence_id), error.code)
            if pending is not None:
                pending.fall_back(SequenceId(error.sequence_id), reason)
        for bad in reply.malformed:
            self._counters.drop("malformed")
            if pending is not None:
                pending.fall_back(SequenceId(bad.sequence_id), "malformed")

    def _on_draft(self, pending: PendingRound | None, round_id: int, reply: DraftReply) -> None:
        sequence_id = SequenceId(reply.sequence_id)
        ask = pending.ask_of(sequence_id) if pending is not None else None
        if pending is None or ask is None:
            # A round we made and gave up, or one that nobody made.
            self._counters.drop("stale" if 0 < round_id <= self._last_round_id else "unknown")
            return
        if reason := verdict_on(reply, ask):
            self._counters.drop(reason)
            pending.fall_back(sequence_id, reason)
            return
        draft = to_draft(reply)
        self._counters.drafts += 1
        self._counters.draft_tokens += len(draft.token_ids)
        self._ledger.drafted(draft)
        pending.take(draft)

    # ---- the stream -----------------------------------------------------------------------------

    def _ensure_started(self) -> None:
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._keep_connected())

    async def _keep_connected(self) -> None:
        backoff_s = self._config.reconnect_min_s
        while True:
            link = await self._try_to_connect()
            if link is not None:
                backoff_s = self._config.reconnect_min_s
                await self._carry(link)
            self._attempted.set()
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, self._config.reconnect_max_s)

    async def _try_to_connect(self) -> Link | None:
        try:
            link = await open_link(
                self._address,
                self._identity,
                self._config,
                client_id=self._client_id,
                counters=self._counters,
                clock=self._clock,
            )
        except HeteroError as error:
            if str(error) != str(self._problem):
                logger.warning("%s", error)
            self._problem = error
            return None
        self._problem = None
        return link

    async def _carry(self, link: Link) -> None:
        self._counters.connects += 1
        self._card = link.server.card
        self._link = link
        self._attempted.set()
        cause = "closed"
        try:
            cause = await link.run(self._on_reply)
        except Exception:  # our own bug must cost speed, not the drafter
            logger.exception("draft server %s: the link failed", self._address)
            cause = "internal"
        finally:
            self._link = None
            self._counters.lost(cause)
            self._ledger.stream_lost()
            for pending in list(self._rounds.values()):
                pending.fall_back_all("disconnected")
        logger.warning("draft server %s: stream lost (%s)", self._address, cause)
