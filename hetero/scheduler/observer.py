"""What the engine tells of itself: events as they happen, totals whenever asked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hetero.core.types import Finish, GenerationRequest, KvUsage


@dataclass(frozen=True, slots=True)
class StepReport:
    """One round that ran the verifier. Wall-clock seconds."""

    num_sequences: int
    num_rows: int  # prefill, committed and drafted tokens in the verify step
    num_draft_tokens: int
    num_committed_tokens: int  # new output tokens, after stop trimming
    draft_s: float
    verify_s: float


class EngineObserver(Protocol):
    """Receives events on the engine's event loop; must not block and must not raise."""

    def request_started(self, request: GenerationRequest, *, queued_s: float) -> None:
        """A request left the queue after ``queued_s`` seconds."""
        ...

    def tokens_committed(
        self, request: GenerationRequest, *, num_tokens: int, gap_s: float, first: bool
    ) -> None:
        """Output grew. ``gap_s``: since the previous growth, or since arrival when ``first``."""
        ...

    def request_finished(self, request: GenerationRequest, finish: Finish) -> None:
        """A request ended, whatever the reason."""
        ...

    def step_finished(self, report: StepReport) -> None:
        """A round ended."""
        ...


class NullObserver:
    """Looks away."""

    def request_started(self, request: GenerationRequest, *, queued_s: float) -> None:
        """Ignore."""

    def tokens_committed(
        self, request: GenerationRequest, *, num_tokens: int, gap_s: float, first: bool
    ) -> None:
        """Ignore."""

    def request_finished(self, request: GenerationRequest, finish: Finish) -> None:
        """Ignore."""

    def step_finished(self, report: StepReport) -> None:
        """Ignore."""


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """Totals since the engine started, and what it is doing now. Totals never decrease.

    Speculation counters are taken after stop trimming, as in ``SpeculationStats``.
    """

    num_waiting: int
    num_running: int
    kv: KvUsage
    num_steps: int
    num_prompt_tokens: int  # read by the target
    num_generation_tokens: int
    num_spec_steps: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int
    drafted_per_position: tuple[int, ...]
    accepted_per_position: tuple[int, ...]
    finished: Mapping[str, int]  # by finish reason
    fallbacks: Mapping[str, int]  # by reason
    fault: str | None  # why the last step failed; None once a step has succeeded since
