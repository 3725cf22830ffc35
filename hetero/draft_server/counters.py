"""What a draft server counts. Plain numbers that only grow, except where said."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class ServerCounters:
    """Counters of one server since its start."""

    streams_opened: int = 0
    streams_refused: int = 0
    streams_silent: int = 0  # given up because the client sent nothing for too long
    streams_lost: int = 0  # ended without a goodbye
    frames_received: int = 0
    frames_malformed: int = 0
    frames_unknown: int = 0  # kinds or features that were not agreed on
    commits_stale: int = 0
    asks: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    draft_tokens_dropped: int = 0  # from the first id outside the vocabulary on
    card_starts: int = 0
    card_failures: int = 0
    tokens_read: int = 0
    errors: dict[str, int] = field(default_factory=dict)  # by lower-case ErrorCode name

    def count_error(self, name: str) -> None:
        """One sequence error sent."""
        self.errors[name] = self.errors.get(name, 0) + 1
