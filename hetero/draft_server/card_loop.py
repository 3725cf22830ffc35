"""Keeps the card busy: plan a start, run it on the card's thread, hand out what came back."""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Sequence

from hetero.core.errors import CardError
from hetero.core.ports import CardDriver, MonotonicClock
from hetero.core.types import CardRun, CardUsage, LaneResult
from hetero.draft_protocol.breaker import Breaker
from hetero.draft_protocol.messages import DraftReply, ErrorCode, Nodes, SequenceError
from hetero.draft_server.card_thread import CardThread
from hetero.draft_server.counters import ServerCounters
from hetero.draft_server.planner import Lane, PendingAsk, Planner
from hetero.draft_server.slots import SlotTable

logger = logging.getLogger(__name__)

FAILURES_TO_GIVE_UP = 3
RETRY_CARD_AFTER_S = 1.0


class CardLoop:
    """Turns queued asks into starts of the card, one at a time, for as long as it runs.

    A failed start loses the card's KV: every sequence is read again from position 0 and asks stay
    queued. After three failures in a row asks are answered with CARD_FAILED at once, and the card
    is tried again after a pause that doubles.
    """

    def __init__(
        self,
        driver: CardDriver,
        slots: SlotTable,
        *,
        counters: ServerCounters,
        clock: MonotonicClock,
    ) -> None:
        self.planner = Planner(driver.info)
        self._info = driver.info
        self._driver = driver
        self._slots = slots
        self._counters = counters
        self._clock = clock
        self._breaker = Breaker(clock, threshold=FAILURES_TO_GIVE_UP, cooloff_s=RETRY_CARD_AFTER_S)
        self._wake = asyncio.Event()
        self._thread: CardThread | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def serving(self) -> bool:
        """False while the card fails."""
        return not self._breaker.tripped

    def start(self) -> None:
        """Begin; needs a running event loop."""
        self._thread = CardThread(self._driver)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self, grace_s: float) -> bool:
        """Finish the start in hand and end; False if the card did not return in time."""
        if self._task is None or self._thread is None:
            return True
        self._stopping = True
        self._wake.set()
        self._thread.stop()
        await asyncio.wait({self._task}, timeout=grace_s)
        self._task.cancel()
        return self._thread.join(timeout_s=0.1)

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def refuse(self, pending: PendingAsk, code: ErrorCode, detail: str = "") -> None:
        """Answer an ask with an error."""
        self._counters.count_error(code.name.lower())
        error = SequenceError(pending.ask.sequence_id, code, detail)
        pending.stream.answer(pending.round_id, errors=(error,), num_asks=1)

    async def _run(self) -> None:
        while not self._stopping:
            lanes = self._next_start()
            if lanes:
                await self._start(lanes)
            else:
                self._wake.clear()
                await self._wake.wait()

    def _next_start(self) -> list[Lane]:
        for pending in self.planner.remove_expired(self._clock()):
            self.refuse(pending, ErrorCode.DEADLINE_EXPIRED)
        if not self._breaker.allows:
            for pending in self.planner.remove_all():
                self.refuse(pending, ErrorCode.CARD_FAILED, "the card failed repeatedly")
            return []
        return self.planner.plan(self._slots)

    async def _start(self, lanes: list[Lane]) -> None:
        assert self._thread is not None
        held = [_take_history(lane) for lane in lanes]
        for lane in lanes:
            if lane.pending is not None:
                self.planner.remove(lane.sequence.key)
        try:
            self._counters.card_starts += 1
            run = await self._thread.run([lane.work for lane in lanes])
            self._check(lanes, run)
        except Exception as error:  # whatever a driver raises, the server lives on
            self._failed(lanes, error)
            return
        self._breaker.succeeded()
        self._settle(lanes, held, run)

    def _check(self, lanes: list[Lane], run: CardRun) -> None:
        asked = [(lane.work.slot, lane.work.num_draft_tokens) for lane in lanes]
        got = [(lane.slot, len(lane.token_ids)) for lane in run.lanes]
        slots_match = [slot for slot, _ in asked] == [slot for slot, _ in got]
        if not slots_match or any(g > a for (_, a), (_, g) in zip(asked, got, strict=True)):
            raise CardError(f"the card answered {got} (slot, tokens) to {asked}")

    def _failed(self, lanes: list[Lane], error: Exception) -> None:
        self._counters.card_failures += 1
        self._breaker.failed()
        trace = None if isinstance(error, CardError) else error
        logger.error("card start failed: %s", error, exc_info=trace)
        self._slots.card_lost_all()
        for lane in lanes:
            self._requeue(lane)

    def _requeue(self, lane: Lane) -> None:
        pending = lane.pending
        if pending is None:
            return
        if self._is_current(lane) and not self.planner.has(pending.key):
            self.planner.add(pending)
        else:
            self.refuse(pending, ErrorCode.SUPERSEDED)

    def _is_current(self, lane: Lane) -> bool:
        """Whether the sequence is still open and asks for what was drafted."""
        sequence = self._slots.get(lane.sequence.key)
        return (
            sequence is lane.sequence
            and lane.pending is not None
            and sequence.epoch == lane.pending.ask.epoch
        )

    def _settle(self, lanes: list[Lane], held: list[list[int]], run: CardRun) -> None:
        weights = [_num_tokens(*pair) for pair in zip(lanes, run.lanes, strict=True)]
        usages = split_usage(run.usage, weights)
        for lane, result, tokens, usage in zip(lanes, run.lanes, held, usages, strict=True):
            self._counters.tokens_read += len(lane.work.token_ids)
            # The last drafted token has not been read back.
            lane.sequence.slot.history = tokens + list(result.token_ids[:-1])
            lane.sequence.unreported += usage
        for sequence in self._slots:
            sequence.roll_back()
        self._answer(lanes, run.lanes)

    def _answer(self, lanes: list[Lane], results: Sequence[LaneResult]) -> None:
        drafts: dict[tuple[int, int], list[DraftReply]] = defaultdict(list)
        streams = {}
        for lane, result in zip(lanes, results, strict=True):
            pending = lane.pending
            if pending is None:
                continue
            if not self._is_current(lane):
                self.refuse(pending, ErrorCode.SUPERSEDED)
                continue
            streams[pending.stream.number] = pending.stream
            drafts[pending.stream.number, pending.round_id].append(
                self._reply(lane, pending, result)
            )
        for (number, round_id), replies in drafts.items():
            streams[number].answer(round_id, replies, num_asks=len(replies))

    def _reply(self, lane: Lane, pending: PendingAsk, result: LaneResult) -> DraftReply:
        sequence = lane.sequence
        usage, sequence.unreported = sequence.unreported, CardUsage()
        reply = DraftReply(
            sequence_id=pending.ask.sequence_id,
            epoch=pending.ask.epoch,
            base_len=pending.ask.base_len,
            nodes=self._nodes(result),
            usage=usage,
            simulated=self._info.simulated,
            valid_tokens=pending.valid_tokens,
        )
        sequence.last_draft = reply
        self._counters.drafts += 1
        self._counters.draft_tokens += len(reply.nodes.ids)
        return reply

    def _nodes(self, result: LaneResult) -> Nodes:
        """The draft up to the first id that no vocabulary holds."""
        tokens, vocab_size = result.token_ids, self._info.vocab_size
        good = next((i for i, t in enumerate(tokens) if not 0 <= t < vocab_size), len(tokens))
        self._counters.draft_tokens_dropped += len(tokens) - good
        confidence = result.confidence[:good]
        usable = len(confidence) == good and all(
            math.isfinite(c) and 0.0 <= c <= 1.0 for c in confidence
        )
        return Nodes.chain(tokens[:good], confidence if usable else ())


def _take_history(lane: Lane) -> list[int]:
    """What the slot will hold once the start has read its tokens.

    The slot itself keeps only what lies before: from now on the rest is being overwritten.
    """
    history = lane.sequence.slot.history
    del history[lane.work.start :]
    return history + list(lane.work.token_ids)


def _num_tokens(lane: Lane, result: LaneResult) -> int:
    return len(lane.work.token_ids) + len(result.token_ids)


def split_usage(usage: CardUsage, weights: Sequence[int]) -> list[CardUsage]:
    """Share a start's cycles among its lanes by their tokens; the shares add up exactly."""
    shares, taken, total = [], 0, sum(weights)
    for weight in weights[:-1]:
        cycles = usage.cycles * weight // total
        taken += cycles
        part = weight / total
        shares.append(CardUsage(cycles, usage.modelled_s * part, usage.host_s * part))
    rest_s = usage.modelled_s - math.fsum(share.modelled_s for share in shares)
    host_s = usage.host_s - math.fsum(share.host_s for share in shares)
    return [*shares, CardUsage(usage.cycles - taken, max(rest_s, 0.0), max(host_s, 0.0))]
