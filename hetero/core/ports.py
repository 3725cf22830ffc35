"""Every arrow of the architecture drawing, as a Protocol. Implementers do not inherit.

client -> Engine -> scheduler -> Drafter        (card pool over gRPC, n-gram, none)
                              -> Verifier       (target model, paged KV)
          draft server        -> CardDriver     (PYNQ: a board, or the simulated card)
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Protocol

from hetero.core.types import (
    CardInfo,
    CardRun,
    Delta,
    DraftBatch,
    Drafts,
    GenerationRequest,
    KvUsage,
    LaneWork,
    SequenceId,
    Verdict,
    VerifierInfo,
    VerifyItem,
)


class MonotonicClock(Protocol):
    """Seconds that only grow. Injected, so that time-outs can be tested without waiting."""

    def __call__(self) -> float:
        """Now, in seconds since an arbitrary start."""
        ...


class Drafter(Protocol):
    """Proposes continuations. Nothing it answers can change the output, only the speed."""

    @property
    def name(self) -> str:
        """Short stable name for metrics: card, ngram, none."""
        ...

    async def propose(self, batch: DraftBatch) -> Drafts:
        """Draft for each query, at most ``max_draft_tokens``, often fewer, never for others.

        Returns within the drafter's own deadline whatever happens; never raises for a peer's
        fault. What could not be drafted is named in ``Drafts.fallbacks``.
        """
        ...

    def release(self, sequence_ids: Iterable[SequenceId]) -> None:
        """Forget sequences. Does not block; unknown ids are ignored."""
        ...

    async def close(self) -> None:
        """End background work. Idempotent."""
        ...


class Verifier(Protocol):
    """Owns the target model and its KV cache; the only source of committed tokens."""

    @property
    def info(self) -> VerifierInfo:
        """Fixed for the life of the process."""
        ...

    def can_admit(self, num_tokens: int) -> bool:
        """Whether a sequence that may grow to ``num_tokens`` positions fits right now."""
        ...

    def admit(self, sequence_id: SequenceId, num_tokens: int) -> None:
        """Reserve room for ``num_tokens`` positions; raises CapacityError when there is none."""
        ...

    async def verify(self, items: Sequence[VerifyItem]) -> list[Verdict]:
        """Run one forward pass over all rows; one Verdict for each item with ``sample``.

        Computed positions stay *allocated* until ``commit``. Calls never overlap.
        """
        ...

    def commit(self, sequence_id: SequenceId, num_tokens: int) -> None:
        """Keep the KV of the first ``num_tokens`` positions; what lies beyond is dead."""
        ...

    def release(self, sequence_id: SequenceId) -> None:
        """Free all blocks of a sequence. Unknown ids are ignored."""
        ...

    def kv_usage(self) -> KvUsage:
        """Block accounting, consistent between calls of ``verify``."""
        ...


class CardDriver(Protocol):
    """One card with a draft loaded. Blocking; called from one thread at a time."""

    @property
    def info(self) -> CardInfo:
        """Fixed once the artefact is loaded."""
        ...

    def run(self, work: Sequence[LaneWork]) -> CardRun:
        """One start: read and draft for up to ``max_lanes`` distinct slots.

        Raises CardError (CardTimeoutError) when the card fails; its KV is then unknown and every
        slot must be read again from position 0.
        """
        ...

    def close(self) -> None:
        """Free buffers and the device. Idempotent."""
        ...


class Tokenizer(Protocol):
    """Text to ids and back, with the target's own rules."""

    @property
    def sha256(self) -> str:
        """Identity of vocabulary, merges, pre-tokenisation, special tokens and chat template."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of plain text: text that looks like a special token stays text."""
        ...

    def apply_chat_template(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Ids of (role, content) messages plus the assistant's header. Content can't inject."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ids; incomplete UTF-8 becomes U+FFFD."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The raw bytes that one token adds to the text; empty for special tokens."""
        ...


class Engine(Protocol):
    """What the front doors (CLI, HTTP, gRPC) call."""

    @property
    def info(self) -> VerifierInfo:
        """The target behind this engine."""
        ...

    def generate(self, request: GenerationRequest) -> AsyncIterator[Delta]:
        """Stream one answer; the last Delta, and only it, carries ``finish``.

        Closing the iterator cancels the request; its blocks are free by the next round. Raises
        RequestError before the first Delta when the request can't run, CapacityError when the
        queue is full.
        """
        ...
