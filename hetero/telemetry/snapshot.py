"""What metrics and ``/ready`` read from an engine and its drafters, as they see it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hetero.core.types import KvUsage


class EngineView(Protocol):
    """Totals since the engine started, which never decrease, and what it is doing now.

    Speculation counters are taken after stop trimming, as in ``core.types.SpeculationStats``.
    """

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        ...

    @property
    def num_running(self) -> int:
        """Requests that share the rounds."""
        ...

    @property
    def kv(self) -> KvUsage:
        """Block accounting of the target's cache."""
        ...

    @property
    def num_prompt_tokens(self) -> int:
        """Prompt tokens read by the target."""
        ...

    @property
    def num_generation_tokens(self) -> int:
        """Output tokens committed."""
        ...

    @property
    def num_spec_steps(self) -> int:
        """Verifications with at least one draft token."""
        ...

    @property
    def num_draft_tokens(self) -> int:
        """Tokens drafted and verified."""
        ...

    @property
    def num_accepted_draft_tokens(self) -> int:
        """Drafted tokens that the target accepted."""
        ...

    @property
    def drafted_per_position(self) -> Sequence[int]:
        """Drafted, by draft position."""
        ...

    @property
    def accepted_per_position(self) -> Sequence[int]:
        """Accepted, by draft position."""
        ...

    @property
    def finished(self) -> Mapping[str, int]:
        """Requests ended, by finish reason."""
        ...

    @property
    def fallbacks(self) -> Mapping[str, int]:
        """Rounds that went undrafted although a draft was wanted, by reason."""
        ...

    @property
    def fault(self) -> str | None:
        """Why the last step failed; None once a step has succeeded since."""
        ...


@dataclass(frozen=True, slots=True)
class DrafterStatus:
    """One source of drafts: ``state`` is ``ready``, or why it does not draft just now.

    ``discarded`` counts drafts that came and were dropped, since start, by reason.
    """

    name: str
    state: str
    discarded: Mapping[str, int] = field(default_factory=dict)


EngineProbe = Callable[[], EngineView]
"""Answers at once, without stopping the engine."""

DrafterProbe = Callable[[], Sequence[DrafterStatus]]
"""Answers at once, without asking the card."""
