"""Units that travel between parts, as types, with the one place that converts them."""

from dataclasses import dataclass
from typing import NewType

Cycles = NewType("Cycles", int)
Micros = NewType("Micros", int)


@dataclass(frozen=True, slots=True)
class CardClock:
    """A card's kernel clock: turns virtual cycles into virtual time."""

    freq_hz: int

    def to_us(self, cycles: Cycles) -> Micros:
        """Round up: a partly used microsecond is still spent."""
        return Micros(-(-cycles * 1_000_000 // self.freq_hz))

    def to_s(self, cycles: Cycles) -> float:
        """Seconds of card time; virtual unless the card is real."""
        return cycles / self.freq_hz
