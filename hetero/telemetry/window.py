"""Percentiles over the latest observations, for people who ask without a Prometheus."""

import math
from collections import deque

PERCENTILES = (50, 90, 99)


class LatencyWindow:
    """Keeps the newest ``size`` values, in seconds. One thread."""

    def __init__(self, size: int = 1024) -> None:
        self._values_s: deque[float] = deque(maxlen=size)

    def add(self, value_s: float) -> None:
        """Take one observation; the oldest leaves when the window is full."""
        self._values_s.append(value_s)

    def percentiles_s(self) -> dict[str, float | None]:
        """Nearest-rank p50, p90 and p99 in seconds; None where nothing was observed."""
        ordered = sorted(self._values_s)
        return {f"p{p}": _nearest_rank(ordered, p) for p in PERCENTILES}


def _nearest_rank(ordered: list[float], percent: int) -> float | None:
    if not ordered:
        return None
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]
