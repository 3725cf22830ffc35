"""What a draft client counts, for metrics."""

import dataclasses
from dataclasses import dataclass, field


@dataclass(slots=True)
class ClientCounters:
    """Counters since the start of one client; they only grow, except ``rtt_s``.

    ``dropped``: drafts not used, by reason: ``stale`` (made for another round, epoch or length),
    ``malformed``, ``unknown`` (nobody asked), ``timeout`` (asks whose answer did not come in
    time; if it comes later it counts as stale as well).
    """

    rounds: int = 0
    asks: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    frames_malformed: int = 0
    frames_unknown: int = 0
    connects: int = 0
    losses: dict[str, int] = field(default_factory=dict)  # of an established stream, by cause
    rtt_s: float | None = None  # latest heartbeat round trip

    @property
    def reconnects(self) -> int:
        """Connections after the first."""
        return max(0, self.connects - 1)

    def drop(self, reason: str) -> None:
        """Count one draft that was not used."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def lost(self, cause: str) -> None:
        """Count one lost stream."""
        self.losses[cause] = self.losses.get(cause, 0) + 1

    def snapshot(self) -> "ClientCounters":
        """A copy that no longer changes."""
        return dataclasses.replace(self, dropped=dict(self.dropped), losses=dict(self.losses))
