"""PagedVerifier: the Verifier port over a target model and its paged KV cache.

One ``verify`` is one forward pass. Planning (checks, blocks) happens on the caller's thread, the
pass and the sampling on the compute thread; the block book is only ever touched by the caller.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_verifier.attention.plan import SequenceRows
from gpu_verifier.compute_thread import ComputeThread
from gpu_verifier.kv.cache import PagedCache
from gpu_verifier.kv.pool import BlockPool
from gpu_verifier.model.target import StepRows, TargetModel
from gpu_verifier.sampling.acceptance import accept_coupled
from gpu_verifier.sampling.filters import Logits
from gpu_verifier.sampling.sampler import TokenRules, target_token
from hetero.core.errors import CapacityError, ContextOverflowError, RequestError
from hetero.core.types import KvUsage, SequenceId, Verdict, VerifierInfo, VerifyItem


@dataclass(frozen=True, slots=True)
class VerifierParts:
    """What ``load_verifier`` builds and PagedVerifier runs."""

    target: TargetModel
    cache: PagedCache
    pool: BlockPool
    info: VerifierInfo
    row_buckets: tuple[int, ...]  # ascending; the last one is the largest step
    compute: ComputeThread


class PagedVerifier:
    """See ``hetero.core.ports.Verifier``. Made by ``gpu_verifier.load.load_verifier``."""

    def __init__(self, parts: VerifierParts) -> None:
        self._target = parts.target
        self._cache = parts.cache
        self._pool = parts.pool
        self._info = parts.info
        self._row_buckets = parts.row_buckets
        self._compute = parts.compute
        self._rules = TokenRules(parts.info.vocab_size, parts.info.eos_token_ids)
        self._model_vocab = int(parts.target.config.vocab_size)
        self._busy = False

    @property
    def info(self) -> VerifierInfo:
        """Fixed for the life of the process."""
        return self._info

    @property
    def max_batch_rows(self) -> int:
        """Most rows (committed tokens and drafts, over all items) that one ``verify`` takes."""
        return self._row_buckets[-1]

    @property
    def threads(self) -> int:
        """CPU threads that a pass uses."""
        return self._compute.threads

    def can_admit(self, num_tokens: int) -> bool:
        """Whether a sequence that may grow to ``num_tokens`` positions fits right now."""
        return num_tokens <= self._info.max_context_tokens and self._pool.can_reserve(num_tokens)

    def admit(self, sequence_id: SequenceId, num_tokens: int) -> None:
        """Reserve ``num_tokens`` positions. Raises CapacityError, or ContextOverflowError."""
        limit = self._info.max_context_tokens
        if num_tokens > limit:
            raise ContextOverflowError(
                f"prompt and answer may take {num_tokens} positions, the target has {limit}. "
                "Shorten the prompt or lower max_tokens.",
                param="max_tokens",
            )
        self._pool.reserve(sequence_id, num_tokens)

    async def verify(self, items: Sequence[VerifyItem]) -> list[Verdict]:
        """One forward pass over the rows of all items; a Verdict for each with ``sample``.

        A row's result depends on its own sequence only. Raises CapacityError when the rows exceed
        ``max_batch_rows`` or a reservation; ValueError for an item that does not continue what is
        committed; ModelError when the target's logits are not numbers.
        """
        if not items:
            return []
        if self._busy:
            raise RuntimeError("verify is already running; calls must not overlap")
        self._busy = True
        try:
            for item in items:
                self._check(item)
            step = self._plan(items)
            return await self._compute.run(lambda: self._run(items, step))
        finally:
            self._busy = False

    def commit(self, sequence_id: SequenceId, num_tokens: int) -> None:
        """Keep the KV of the first ``num_tokens`` positions; what lies beyond is dead."""
        self._pool.commit(sequence_id, num_tokens)
        self._pool.rollback(sequence_id)

    def release(self, sequence_id: SequenceId) -> None:
        """Free all blocks of a sequence. Unknown ids are ignored."""
        self._pool.release(sequence_id)

    def kv_usage(self) -> KvUsage:
        """Block accounting, consistent between calls of ``verify``."""
        return self._pool.usage()

    def check(self) -> None:
        """Raise AssertionError if the block book does not balance."""
        self._pool.check()

    def close(self) -> None:
        """Wait for the pass in flight and end the compute thread. Idempotent."""
        self._compute.close()

    # ---- planning, on the caller's thread -----------------------------------------------------

    def _check(self, item: VerifyItem) -> None:
        committed = self._pool.committed_len(item.sequence_id)
        if item.start != committed:
            raise ValueError(
                f"sequence {item.sequence_id}: rows start at {item.start}, "
                f"but {committed} positions are committed"
            )
        if not item.token_ids or (item.draft_token_ids and not item.sample):
            raise ValueError(
                f"sequence {item.sequence_id}: an item needs a committed token to read, "
                "and drafts only where it samples"
            )
        if not all(0 <= token < self._model_vocab for token in item.token_ids):
            raise RequestError(
                f"sequence {item.sequence_id}: token ids must be in 0..{self._model_vocab - 1}",
                param="prompt_token_ids",
            )

    def _plan(self, items: Sequence[VerifyItem]) -> StepRows:
        """Take blocks for every row and lay the rows out in order."""
        token_ids: list[int] = []
        sequences: list[SequenceRows] = []
        logit_rows: list[int] = []
        for item in items:
            rows = [*item.token_ids, *self._readable_drafts(item)]
            self._pool.allocate(item.sequence_id, item.start + len(rows))
            if item.sample:
                first = len(token_ids) + len(item.token_ids) - 1
                logit_rows.extend(range(first, len(token_ids) + len(rows)))
            token_ids.extend(rows)
            blocks = self._pool.block_ids(item.sequence_id)
            sequences.append(SequenceRows(item.start, len(rows), blocks))
        return StepRows(
            tuple(token_ids), tuple(sequences), tuple(logit_rows), self._bucket(len(token_ids))
        )

    def _readable_drafts(self, item: VerifyItem) -> tuple[int, ...]:
        """Drafts up to the first that is no token of the model: a drafter is not trusted."""
        drafts = item.draft_token_ids
        for i, token_id in enumerate(drafts):
            if not 0 <= token_id < self._model_vocab:
                return drafts[:i]
        return drafts

    def _bucket(self, num_rows: int) -> int:
        for bucket in self._row_buckets:
            if num_rows <= bucket:
                return bucket
        raise CapacityError(
            f"a verify step of {num_rows} rows exceeds max_batch_rows = {self.max_batch_rows}. "
            "Split the prefill into smaller chunks, or raise max_batch_rows."
        )

    # ---- computing, on the compute thread -----------------------------------------------------

    def _run(self, items: Sequence[VerifyItem], step: StepRows) -> list[Verdict]:
        logits_nv: Logits = self._target.forward(step, self._cache).cpu().numpy()
        verdicts = []
        first = 0
        for item in items:
            if item.sample:
                drafts = self._readable_drafts(item)
                rows_nv = logits_nv[first : first + len(drafts) + 1]
                verdicts.append(self._judge(item, drafts, rows_nv))
                first += len(drafts) + 1
        return verdicts

    def _judge(self, item: VerifyItem, drafts: tuple[int, ...], rows_nv: Logits) -> Verdict:
        """``rows_nv``: logits after the last committed token, then after each draft."""
        output_index = item.start + len(item.token_ids) - item.num_prompt_tokens
        accepted = accept_coupled(
            drafts,
            lambda i: target_token(rows_nv[i], item.sampling, output_index + i, self._rules),
        )
        return Verdict(
            item.sequence_id,
            num_drafted=len(item.draft_token_ids),
            num_accepted=accepted.num_accepted,
            next_token_id=accepted.next_token_id,
        )
