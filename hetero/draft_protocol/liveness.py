"""Heartbeats: is the peer alive, and how far away is it? Same code at both ends."""

from hetero.core.ports import MonotonicClock
from hetero.draft_protocol.messages import Heartbeat

_US = 1_000_000


class Pulse:
    """One peer's signs of life on an injected clock. Call ``tick`` at the heartbeat interval.

    Silence is only counted while we ourselves were awake: between two ticks at most two intervals.
    A process that was stopped, or kept its event loop busy, has no ground to call others dead
    before it has read what they sent meanwhile.
    """

    def __init__(self, clock: MonotonicClock, *, interval_s: float, timeout_s: float) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._silent_s = 0.0
        self._counted_to = clock()
        self._peer_sent_us = 0
        self._peer_beat_at = 0.0
        self.rtt_s: float | None = None

    def heard(self) -> None:
        """Any frame counts as a sign of life."""
        self._silent_s = 0.0
        self._counted_to = self._clock()

    def received(self, beat: Heartbeat) -> None:
        """Take a heartbeat: remember what to echo, and measure the round trip."""
        self._peer_sent_us = beat.sent_us
        self._peer_beat_at = self._clock()
        if beat.echo_us:
            rtt_us = self._now_us() - beat.echo_us - beat.echo_delay_us
            # A peer can echo nonsense; a negative or absurd time is no measurement.
            if 0 <= rtt_us < 60 * _US:
                self.rtt_s = rtt_us / _US

    def beat(self, *, serving: bool = True) -> Heartbeat:
        """The heartbeat to send now."""
        delay_s = self._clock() - self._peer_beat_at if self._peer_sent_us else 0.0
        return Heartbeat(self._now_us(), self._peer_sent_us, int(delay_s * _US), serving)

    def tick(self) -> bool:
        """Count silence up to now; True once the peer has to be taken for dead."""
        now = self._clock()
        # The margin keeps three intervals from summing to a hair below the timeout.
        self._silent_s += min(now - self._counted_to, 2 * self._interval_s)
        self._counted_to = now
        return self._silent_s >= self._timeout_s - 1e-9

    def _now_us(self) -> int:
        return int(self._clock() * _US)
