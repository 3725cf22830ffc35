"""One answer as it grows: where it ends, and which text may already go out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from hetero.core.types import FinishReason, SamplingParams


class Detokenizer(Protocol):
    """Ids to text, one at a time, holding back incomplete characters."""

    def push(self, token_id: int) -> str:
        """Text that this token completes."""
        ...

    def flush(self) -> str:
        """What is left; incomplete UTF-8 becomes U+FFFD."""
        ...


class StopScanner(Protocol):
    """Finds stop strings in text that comes in pieces."""

    def push(self, text: str) -> tuple[str, str | None]:
        """Text that can't be part of a stop string any more, and the stop string found, if any.

        The text ends where the found stop string begins.
        """
        ...

    def flush(self) -> str:
        """What was held back as a possible beginning of a stop string."""
        ...


@dataclass(frozen=True, slots=True)
class TextTools:
    """Makes the text machinery of one answer; wired in ``hetero.services``."""

    detokenizer: Callable[[], Detokenizer]
    stop_scanner: Callable[[tuple[str, ...]], StopScanner]


@dataclass(frozen=True, slots=True)
class Taken:
    """What of a verdict became part of the answer, and how it ended, if it did."""

    token_ids: tuple[int, ...]
    text: str
    reason: FinishReason | None = None
    matched_stop: str | int | None = None


class Answer:
    """Takes tokens one by one and stops at the first that ends the answer.

    A token ends it by being an EOS or stop id (its text is not delivered), by completing a stop
    string (which is not delivered), or by being the last allowed; in this order when one token
    does several. Text of the first ``min_tokens`` tokens takes no part in a stop string.
    """

    def __init__(
        self,
        sampling: SamplingParams,
        text_tools: TextTools,
        *,
        eos_token_ids: Iterable[int],
        max_new_tokens: int,
    ) -> None:
        eos = () if sampling.ignore_eos else tuple(eos_token_ids)
        self._ending_ids = frozenset(eos)
        self._stop_ids = frozenset(sampling.stop_token_ids)
        self._min_tokens = sampling.min_tokens
        self._max_new_tokens = max_new_tokens
        self._detokenizer = text_tools.detokenizer()
        self._scanner = text_tools.stop_scanner(sampling.stop) if sampling.stop else None
        self.num_tokens = 0

    def take(self, token_ids: Iterable[int]) -> Taken:
        """Append tokens up to and including the one that ends the answer."""
        kept: list[int] = []
        text: list[str] = []
        for token_id in token_ids:
            kept.append(token_id)
            self.num_tokens += 1
            reason, matched, piece = self._take_one(token_id)
            text.append(piece)
            if reason is not None:
                return Taken(tuple(kept), "".join(text), reason, matched)
        return Taken(tuple(kept), "".join(text))

    def flush(self) -> str:
        """Deliver what was held back; for an answer that ends without a stop string.

        The U+FFFD of a character cut off by the end is no text of the model's, so it is not
        looked at for stop strings: one would swallow it and yet not be what ended the answer.
        """
        held = "" if self._scanner is None else self._scanner.flush()
        return held + self._detokenizer.flush()

    def _take_one(self, token_id: int) -> tuple[FinishReason | None, str | int | None, str]:
        """How this token ends the answer, what it matched, and the text it sets free."""
        if token_id in self._ending_ids or token_id in self._stop_ids:
            matched = token_id if token_id in self._stop_ids else None
            return "stop", matched, self.flush()
        piece, found = self._scan(self._detokenizer.push(token_id))
        if found is not None:
            return "stop", found, piece
        if self.num_tokens >= self._max_new_tokens:
            return "length", None, piece + self.flush()
        return None, None, piece

    def _scan(self, text: str) -> tuple[str, str | None]:
        if self._scanner is None or self.num_tokens <= self._min_tokens:
            return text, None
        return self._scanner.push(text)
