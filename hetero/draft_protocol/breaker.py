"""A circuit breaker: stop trying what keeps failing, try again now and then."""

from hetero.core.ports import MonotonicClock


class Breaker:
    """Opens after ``threshold`` failures in a row, for ``cooloff_s``, doubled by each further one.

    When the time is over, attempts are let through again; the first success closes it for good.
    """

    def __init__(
        self,
        clock: MonotonicClock,
        *,
        threshold: int,
        cooloff_s: float,
        max_cooloff_s: float = 30.0,
    ) -> None:
        self._clock = clock
        self._threshold = threshold
        self._first_cooloff_s = cooloff_s
        self._max_cooloff_s = max_cooloff_s
        self._cooloff_s = cooloff_s
        self._failures = 0
        self._open_until = clock()

    @property
    def allows(self) -> bool:
        """Whether an attempt may be made now."""
        return not self.tripped or self._clock() >= self._open_until

    @property
    def tripped(self) -> bool:
        """Whether the last ``threshold`` attempts all failed."""
        return self._failures >= self._threshold

    def failed(self) -> None:
        """Record a failure."""
        self._failures += 1
        if self.tripped:
            self._open_until = self._clock() + self._cooloff_s
            self._cooloff_s = min(2 * self._cooloff_s, self._max_cooloff_s)

    def succeeded(self) -> None:
        """Record a success."""
        self._failures = 0
        self._cooloff_s = self._first_cooloff_s
