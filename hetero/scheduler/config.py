"""Settings of the scheduler, validated once."""

from dataclasses import dataclass

from hetero.core.errors import ConfigError
from hetero.core.types import MAX_SPECULATIVE_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How many sequences and rows a round takes, and how it drafts unless a request says."""

    num_speculative_tokens: int = 4  # K: drafts a sequence gets in one round at most
    default_method: str = "none"  # name of the drafter for requests that name none
    max_batch_rows: int = 256  # rows of one verify step: committed tokens to read, and drafts
    max_running: int = 32  # sequences that share the rounds
    max_waiting: int = 256  # places in the queue behind them

    def __post_init__(self) -> None:
        _check_range(
            "num_speculative_tokens", self.num_speculative_tokens, 0, MAX_SPECULATIVE_TOKENS
        )
        _check_range("max_waiting", self.max_waiting, 1, 1_000_000)
        _check_range("max_batch_rows", self.max_batch_rows, 2, 65_536)
        # One row each is a running sequence's due; one more lets a prompt get through.
        _check_range("max_running", self.max_running, 1, self.max_batch_rows - 1)


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"engine.{name} = {value}: must be {low}..{high}. Choose a value in it.")
