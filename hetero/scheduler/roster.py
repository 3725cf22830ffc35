"""The queue and the running sequences."""

from collections import deque
from collections.abc import Iterator

from hetero.core.errors import CapacityError
from hetero.core.ports import Verifier
from hetero.scheduler.config import EngineConfig
from hetero.scheduler.sequence import LiveSequence


class Roster:
    """First come, first served: a bounded queue before a bounded set of running sequences.

    A sequence starts to run when a place and KV room for its longest possible course are free,
    so that a running sequence never has to be put off.
    """

    def __init__(self, config: EngineConfig, verifier: Verifier) -> None:
        self._config = config
        self._verifier = verifier
        self.waiting: deque[LiveSequence] = deque()
        self.running: list[LiveSequence] = []

    @property
    def idle(self) -> bool:
        """Whether there is nobody to serve."""
        return not (self.waiting or self.running)

    def everyone(self) -> list[LiveSequence]:
        """A copy of all sequences, running ones first."""
        return [*self.running, *self.waiting]

    def enqueue(self, sequence: LiveSequence) -> None:
        """Put a sequence last in the queue; raises CapacityError when the queue is full."""
        if len(self.waiting) >= self._config.max_waiting:
            raise CapacityError(
                f"{len(self.waiting)} requests are waiting, engine.max_waiting = "
                f"{self._config.max_waiting}: try again later, or raise it."
            )
        self.waiting.append(sequence)

    def admit(self) -> Iterator[LiveSequence]:
        """Move sequences from the queue to the running ones while there is room."""
        while self.waiting and len(self.running) < self._config.max_running:
            head = self.waiting[0]
            num_tokens = head.num_prompt_tokens + head.max_new_tokens
            if not self._verifier.can_admit(num_tokens):
                return
            self._verifier.admit(head.sequence_id, num_tokens)
            self.running.append(self.waiting.popleft())
            yield head

    def remove(self, sequence: LiveSequence) -> bool:
        """Strike a sequence off; False if it was not on the list."""
        for group in (self.running, self.waiting):
            if sequence in group:
                group.remove(sequence)
                return True
        return False
