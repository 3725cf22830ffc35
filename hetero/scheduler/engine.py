"""The engine: pick, propose, verify, commit, and the requests around it."""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, Mapping

from hetero.core.errors import CapacityError
from hetero.core.ports import Drafter, MonotonicClock, Verifier
from hetero.core.types import (
    Delta,
    DraftBatch,
    DraftQuery,
    Drafts,
    Finish,
    FinishReason,
    GenerationRequest,
    VerifierInfo,
    VerifyItem,
)
from hetero.scheduler.answer import Taken, TextTools
from hetero.scheduler.config import EngineConfig
from hetero.scheduler.intake import Intake
from hetero.scheduler.observer import EngineObserver, EngineSnapshot, NullObserver, StepReport
from hetero.scheduler.planner import Round, lay_out_rows, num_rows, plan_round
from hetero.scheduler.roster import Roster
from hetero.scheduler.screening import fault_of
from hetero.scheduler.sequence import LiveSequence
from hetero.scheduler.tally import EngineTally

logger = logging.getLogger(__name__)

DEADLINE_PASSED = "the request's deadline passed"
SHUTTING_DOWN = "the engine is shutting down"

LOW_ACCEPTANCE_RATE = 0.1
LOW_ACCEPTANCE_MIN_DRAFTS = 64
"""A finished request with fewer accepted drafts than this share, of this many, is warned of."""


class SpeculativeEngine:
    """Serves requests in rounds that all running sequences share. Implements ``ports.Engine``.

    Everything happens on one event loop; the verifier computes on its own thread. A round is not
    interruptible: cancelling, deadlines and closing take effect between rounds. Once accepted, a
    request ends with a ``Finish``, whatever happens: ``cancelled`` when its reader left or its
    deadline passed, ``error`` when the verifier failed, both with ``error`` saying why.
    """

    def __init__(
        self,
        verifier: Verifier,
        drafters: Mapping[str, Drafter],
        text_tools: TextTools,
        config: EngineConfig,
        *,
        observer: EngineObserver | None = None,
        clock: MonotonicClock = time.monotonic,
    ) -> None:
        self._verifier = verifier
        self._drafters = dict(drafters)
        self._config = config
        self._intake = Intake(config, verifier.info, text_tools, self._drafters)
        self._observer: EngineObserver = observer or NullObserver()
        self._clock = clock
        self._roster = Roster(config, verifier)
        self._tally = EngineTally()
        self._round_ids = itertools.count(1)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._fault: str | None = None

    # ---- what front doors call ----------------------------------------------------------------

    @property
    def info(self) -> VerifierInfo:
        """The target behind this engine."""
        return self._verifier.info

    @property
    def methods(self) -> tuple[str, ...]:
        """Names a request may give as ``speculative.method``."""
        return self._intake.methods

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        """Stream one answer; the last Delta, and only it, carries ``finish``.

        Closing the iterator cancels the request; its blocks are free by the next round. Raises
        RequestError before the first Delta when the request can't run, CapacityError when the
        queue is full or the request is larger than the whole KV cache.
        """
        sequence = self._submit(request)
        try:
            while True:
                delta = await sequence.outbox.get()
                yield delta
                if delta.finish is not None:
                    return
        finally:
            sequence.cancelled = True
            self._wake.set()

    def snapshot(self) -> EngineSnapshot:
        """Totals and present state, for metrics and health."""
        tally, speculation = self._tally, self._tally.speculation
        return EngineSnapshot(
            num_waiting=len(self._roster.waiting),
            num_running=len(self._roster.running),
            kv=self._verifier.kv_usage(),
            num_steps=tally.num_steps,
            num_prompt_tokens=tally.num_prompt_tokens,
            num_generation_tokens=tally.num_generation_tokens,
            num_spec_steps=speculation.num_spec_steps,
            num_draft_tokens=speculation.num_draft_tokens,
            num_accepted_draft_tokens=speculation.num_accepted_draft_tokens,
            drafted_per_position=tuple(speculation.drafted_per_position),
            accepted_per_position=tuple(speculation.accepted_per_position),
            finished=dict(tally.finished),
            fallbacks=dict(tally.fallbacks),
            fault=self._fault,
        )

    async def close(self) -> None:
        """End the round that runs, cancel every request, close the drafters. Idempotent."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        for sequence in self._roster.everyone():
            self._end(sequence, "cancelled", error=SHUTTING_DOWN)
        for drafter in self._drafters.values():
            await drafter.close()

    # ---- the round ----------------------------------------------------------------------------

    async def step(self) -> int:
        """Advance every running sequence by one round; return output tokens committed."""
        self._reap()
        round_ = self._pick()
        await self._propose(round_)
        await self._verify(round_)
        return self._commit(round_)

    def _reap(self) -> None:
        """End sequences whose reader left or whose deadline passed."""
        now_s = self._clock()
        for sequence in self._roster.everyone():
            deadline_s = sequence.request.deadline_s
            if sequence.cancelled:
                self._end(sequence, "cancelled")
            elif deadline_s is not None and now_s >= deadline_s:
                self._end(sequence, "cancelled", error=DEADLINE_PASSED)

    def _pick(self) -> Round:
        """Let waiting sequences in, and share out the rows."""
        for sequence in self._roster.admit():
            queued_s = self._clock() - sequence.arrived_s
            self._observer.request_started(sequence.request, queued_s=queued_s)
        self._refuse_hopeless()
        return plan_round(self._roster.running, self._config.max_batch_rows)

    async def _propose(self, round_: Round) -> None:
        """Ask all drafters at once; keep the drafts that are fit to be verified."""
        if not round_.queries:
            return
        started_s = self._clock()
        round_id = next(self._round_ids)
        answers = await asyncio.gather(
            *(
                self._ask(name, DraftBatch(round_id, tuple(queries)))
                for name, queries in round_.queries.items()
            )
        )
        round_.draft_s = self._clock() - started_s
        sequences = round_.sequences
        for queries, answer in zip(round_.queries.values(), answers, strict=True):
            for query in queries:
                self._sift(round_, query, answer, sequences[query.sequence_id])

    async def _verify(self, round_: Round) -> None:
        """Run the target over committed tokens, drafts and prompt chunks."""
        round_.items = lay_out_rows(
            [s for s in round_.decoding if not s.cancelled],
            [s for s in round_.reading if not s.cancelled],
            round_.drafts,
            self._config.max_batch_rows,
        )
        if not round_.items:
            return
        started_s = self._clock()
        verdicts = await self._verifier.verify(round_.items)
        round_.verify_s = self._clock() - started_s
        round_.verdicts = {verdict.sequence_id: verdict for verdict in verdicts}
        self._fault = None

    def _commit(self, round_: Round) -> int:
        """Make verdicts permanent: trim stops, keep KV, count, deliver. In this order."""
        sequences = round_.sequences
        num_committed = 0
        for item in round_.items:
            sequence = sequences[item.sequence_id]
            sequence.tally.draft_s += round_.draft_s
            sequence.tally.verify_s += round_.verify_s
            if not sequence.cancelled:
                num_committed += self._commit_one(sequence, item, round_)
        self._report(round_, num_committed)
        return num_committed

    # ---- parts of the round -------------------------------------------------------------------

    async def _ask(self, drafter_name: str, batch: DraftBatch) -> Drafts:
        """Propose, holding a drafter to its promise not to raise."""
        try:
            return await self._drafters[drafter_name].propose(batch)
        except Exception:
            logger.exception("drafter %s broke its contract and raised", drafter_name)
            return Drafts(fallbacks={q.sequence_id: "drafter_error" for q in batch.queries})

    def _sift(
        self, round_: Round, query: DraftQuery, answer: Drafts, sequence: LiveSequence
    ) -> None:
        """Take one sequence's draft out of an answer, or count why there is none."""
        draft = answer.drafts.get(query.sequence_id)
        reason = answer.fallbacks.get(query.sequence_id)
        if draft is not None:
            sequence.tally.card += draft.card
            reason = fault_of(draft, query, self.info.vocab_size)
            if reason is None:
                round_.drafts[query.sequence_id] = draft
        if reason is not None:
            sequence.tally.fallbacks[reason] += 1
            self._tally.fallbacks[reason] += 1

    def _commit_one(self, sequence: LiveSequence, item: VerifyItem, round_: Round) -> int:
        if not item.sample:
            sequence.num_cached += len(item.token_ids)
            self._verifier.commit(sequence.sequence_id, sequence.num_cached)
            self._tally.num_prompt_tokens += len(item.token_ids)
            return 0
        verdict = round_.verdicts[item.sequence_id]
        accepted_ids = item.draft_token_ids[: verdict.num_accepted]
        taken = sequence.answer.take([*accepted_ids, verdict.next_token_id])
        sequence.token_ids.extend(taken.token_ids)
        sequence.num_cached = len(sequence.token_ids) - 1
        self._verifier.commit(sequence.sequence_id, sequence.num_cached)
        self._count(sequence, item, len(taken.token_ids))
        self._deliver(sequence, taken)
        return len(taken.token_ids)

    def _count(self, sequence: LiveSequence, item: VerifyItem, num_emitted: int) -> None:
        first = sequence.ttft_s is None
        now_s = self._clock()
        if first:
            sequence.ttft_s = now_s - sequence.arrived_s
            self._tally.num_prompt_tokens += len(item.token_ids)
        for speculation in (sequence.tally.speculation, self._tally.speculation):
            speculation.add_step(num_drafted=len(item.draft_token_ids), num_emitted=num_emitted)
        self._tally.num_generation_tokens += num_emitted
        gap_s = now_s - sequence.last_growth_s
        sequence.last_growth_s = now_s
        self._observer.tokens_committed(
            sequence.request, num_tokens=num_emitted, gap_s=gap_s, first=first
        )

    def _deliver(self, sequence: LiveSequence, taken: Taken) -> None:
        if taken.reason is None:
            sequence.outbox.put(taken.text, taken.token_ids)
        else:
            self._end(sequence, taken.reason, last=taken)

    def _report(self, round_: Round, num_committed: int) -> None:
        if not round_.items:
            return
        self._tally.num_steps += 1
        report = StepReport(
            num_sequences=len(round_.items),
            num_rows=num_rows(round_.items),
            num_draft_tokens=sum(len(item.draft_token_ids) for item in round_.items),
            num_committed_tokens=num_committed,
            draft_s=round_.draft_s,
            verify_s=round_.verify_s,
        )
        self._observer.step_finished(report)

    # ---- requests come and go -----------------------------------------------------------------

    def _submit(self, request: GenerationRequest) -> LiveSequence:
        if self._closing:
            raise CapacityError(f"{SHUTTING_DOWN}: send the request elsewhere.")
        sequence = self._intake.new_sequence(request, now_s=self._clock())
        self._roster.enqueue(sequence)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="hetero-engine")
        self._wake.set()
        return sequence

    def _refuse_hopeless(self) -> None:
        """Turn away requests that even an empty engine has no room for."""
        while not self._roster.running and self._roster.waiting:
            sequence = self._roster.waiting.popleft()
            num_tokens = sequence.num_prompt_tokens + sequence.max_new_tokens
            usage = self._verifier.kv_usage()
            sequence.outbox.fail(
                CapacityError(
                    f"prompt and answer may take {num_tokens} tokens: more than the whole KV "
                    f"cache of {usage.total_blocks} blocks holds. Lower max_tokens, or give the "
                    "engine more blocks."
                )
            )

    def _end(
        self,
        sequence: LiveSequence,
        reason: FinishReason,
        *,
        last: Taken | None = None,
        error: str | None = None,
    ) -> None:
        """Strike a sequence off, free what it holds, tell its reader."""
        self._roster.remove(sequence)
        self._free(sequence)
        last = last or Taken((), sequence.answer.flush(), reason)
        finish = sequence.finish(reason, self._clock(), matched_stop=last.matched_stop, error=error)
        self._tally.finished[reason] += 1
        sequence.outbox.put(last.text, last.token_ids, finish)
        self._observer.request_finished(sequence.request, finish)
        _warn_of_low_acceptance(sequence, finish)

    def _free(self, sequence: LiveSequence) -> None:
        try:
            self._verifier.release(sequence.sequence_id)
            if sequence.num_speculative_tokens:
                self._drafters[sequence.drafter_name].release([sequence.sequence_id])
        except Exception as error:
            logger.exception("sequence %d could not be freed", sequence.sequence_id)
            self._fault = f"{type(error).__name__}: {error}"

    # ---- the loop -----------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._closing:
            if self._roster.idle:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self.step()
            except Exception as error:
                self._fail(error)
            await asyncio.sleep(0)  # let readers and cancels have their turn

    def _fail(self, error: Exception) -> None:
        """A round broke: end the requests it had, or the next to start; the engine goes on."""
        logger.error("engine step failed", exc_info=error)
        self._fault = f"{type(error).__name__}: {error}"
        for sequence in self._roster.running.copy() or list(self._roster.waiting)[:1]:
            self._end(sequence, "error", error=self._fault)


def _warn_of_low_acceptance(sequence: LiveSequence, finish: Finish) -> None:
    drafted = finish.speculation.num_draft_tokens
    accepted = finish.speculation.num_accepted_draft_tokens
    if drafted >= LOW_ACCEPTANCE_MIN_DRAFTS and accepted < LOW_ACCEPTANCE_RATE * drafted:
        logger.warning(
            "request %s: %d of %d drafts by %s accepted; another method, fewer speculative "
            "tokens or none would be faster",
            sequence.request.request_id,
            accepted,
            drafted,
            sequence.drafter_name,
        )
