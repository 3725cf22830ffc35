"""The RTL behind the card's registers, with the same face as sim.kernel.DraftKernel.

A start runs inside of the write that sets START, as in the functional kernel, and a soft reset
inside of the one that asks for it: hours on a wall clock would be no time at all for the driver. A
card that stops moving is left as it is, not done; the driver's own deadline then ends the wait.
"""

import logging
from typing import Final

from fpga.regmap import registers
from sim.rtl.model import Outcome, RtlModel

MAX_CYCLES: Final = 20_000_000_000
"""Longer than any start: 512 tokens and 64 drafts of the largest draft on one port."""
STALL_CYCLES: Final = 200_000
"""No unit works so long without touching memory, refresh and throttling included."""
DRAIN_CYCLES: Final = 5000
"""What is on its way when a soft reset begins has answered by then, or never will."""

_LOG: Final = logging.getLogger(__name__)


class RtlKernel:
    """One loaded bitstream. Not thread-safe, as no kernel is."""

    def __init__(self, model: RtlModel, *, stall_cycles: int = STALL_CYCLES) -> None:
        self.model = model
        self._stall_cycles = stall_cycles

    def read(self, offset: int) -> int:
        """A 32-bit register."""
        value = self.model.read(offset)
        self._check()
        return value

    def write(self, offset: int, value: int) -> None:
        """A 32-bit register; with START, all that follows from it.

        RuntimeError when the card breaks AXI or one of its own assertions: an error of the RTL.
        """
        self.model.write(offset, value)
        if offset == registers.CTRL and value & (registers.CTRL_START | registers.CTRL_CONTINUE):
            self._run()
        if offset == registers.RESET and value & registers.RESET_DRAIN:
            self.model.run(max_cycles=MAX_CYCLES, stall_cycles=DRAIN_CYCLES)
        self._check()

    def _run(self) -> None:
        """A start may have been kept until the last one was acknowledged."""
        if self.model.read(registers.CTRL) & (registers.CTRL_IDLE | registers.CTRL_DONE):
            return
        outcome = self.model.run(max_cycles=MAX_CYCLES, stall_cycles=self._stall_cycles)
        if outcome in (Outcome.STALLED, Outcome.LIMIT):
            _LOG.warning("rtl card: stands still since cycle %d", self.model.cycle)

    def _check(self) -> None:
        if complaint := self.model.complaint:
            raise RuntimeError(f"rtl: {complaint}")
