"""Settings of a draft server."""

from dataclasses import dataclass

from hetero.core.errors import ConfigError
from hetero.draft_protocol.limits import MAX_FRAME_BYTES, MAX_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftServerConfig:
    """How a draft server treats its clients.

    ``client_timeout_s``: silence after which a client is dead and its slots are free; on a quiet
    machine 0.15 is enough, a loaded one needs more. ``round_credits``: rounds that one client may
    have unanswered.
    """

    client_timeout_s: float = 1.0
    round_credits: int = 4
    max_streams: int = 64
    max_frame_bytes: int = MAX_FRAME_BYTES
    allow_insecure_remote: bool = False

    def __post_init__(self) -> None:
        if not 0.15 <= self.client_timeout_s <= MAX_TIMEOUT_S:
            raise ConfigError(
                f"client_timeout_s = {self.client_timeout_s}: heartbeats come every 0.05 s, so at "
                f"least 0.15, and at most {MAX_TIMEOUT_S:g}."
            )
        if not 1 <= self.round_credits <= 1_024:
            raise ConfigError(f"round_credits = {self.round_credits}: use 1..1024.")
