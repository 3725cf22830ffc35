"""Settings of a draft client."""

from dataclasses import dataclass

from hetero.core.errors import ConfigError
from hetero.draft_protocol.limits import MAX_FRAME_BYTES, MAX_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetIdentity:
    """What a draft must fit: the target's tokenizer and the number of its token ids."""

    tokenizer_sha256: str
    vocab_size: int
    model_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftClientConfig:
    """How a verifier treats its draft server.

    ``deadline_s``: longest wait for the drafts of one round. The default suits a simulated card;
    a real one answers in milliseconds. ``heartbeat_timeout_s``: silence after which the server is
    dead and its rounds end at once; 0.15 on a quiet machine, more under load. After
    ``breaker_timeouts`` late rounds in a row nothing is asked for ``breaker_cooloff_s``, doubling.
    """

    deadline_s: float = 5.0
    heartbeat_timeout_s: float = 1.0
    connect_timeout_s: float = 10.0
    reconnect_min_s: float = 0.05
    reconnect_max_s: float = 2.0
    breaker_timeouts: int = 3
    breaker_cooloff_s: float = 1.0
    no_slot_retry_s: float = 0.5
    max_frame_bytes: int = MAX_FRAME_BYTES
    allow_insecure_remote: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.deadline_s <= MAX_TIMEOUT_S:
            raise ConfigError(
                f"deadline_s = {self.deadline_s}: must be above 0, and at most {MAX_TIMEOUT_S:g}."
            )
        if not 0.15 <= self.heartbeat_timeout_s <= MAX_TIMEOUT_S:
            raise ConfigError(
                f"heartbeat_timeout_s = {self.heartbeat_timeout_s}: heartbeats come every 0.05 s, "
                f"so at least 0.15, and at most {MAX_TIMEOUT_S:g}."
            )
