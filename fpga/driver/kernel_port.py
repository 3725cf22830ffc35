"""The card's registers, through pynq's IP object: identity, arguments, start and wait."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fpga.driver.buffers import CardLimits
from fpga.driver.faults import card_errors
from fpga.program import isa, tables
from fpga.regmap import registers
from hetero.core.errors import CardError, CardTimeoutError
from hetero.core.ports import MonotonicClock

ALL_ONES: Final = 0xFFFFFFFF
"""What reads of a PCIe device give that is no longer there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitPolicy:
    """How to wait for a start. ``poll_s`` is slept between two looks, after the first few.

    ``drain_s``: how long a soft reset may take to drain the memory ports.
    """

    timeout_s: float = 10.0
    drain_s: float = 1.0
    poll_s: float = 20e-6
    clock: MonotonicClock = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Build(NamedTuple):
    """What the card says it was built with."""

    limits: CardLimits
    vector_words: int
    clock_hz: int
    build_hash: bytes


class KernelPort:
    """Register access. ``ip``: what an overlay gives for the kernel (pynq DefaultIP)."""

    def __init__(self, ip: Any, wait: WaitPolicy) -> None:
        self._ip = ip
        self._wait = wait

    def identify(self) -> Build:
        """Check that this is our kernel, in our version, and read its build parameters."""
        wanted = {
            "type": (registers.TYPE, registers.TYPE_ID),
            "interface version": (registers.VERSION, registers.INTERFACE_VERSION),
            "instruction set": (registers.ISA_VERSION, isa.ISA_VERSION),
            "arithmetic": (registers.ARITHMETIC_VERSION, tables.ARITHMETIC_VERSION),
        }
        for name, (offset, want) in wanted.items():
            got = self.read(offset)
            if got != want:
                raise CardError(
                    f"bitstream: {name} is {got:#x}, this hetero drives {want:#x}. Load the "
                    "bitstream that was built from this version."
                )
        limits = CardLimits(
            num_ports=self.read(registers.NUM_PORTS),
            max_lanes=self.read(registers.MAX_LANES),
            max_read_tokens=self.read(registers.MAX_READ_TOKENS),
            max_draft_tokens=self.read(registers.MAX_DRAFT_TOKENS),
        )
        words = [
            self.read(registers.BUILD_HASH + i * registers.BUILD_HASH_STRIDE)
            for i in range(registers.BUILD_HASH_COUNT)
        ]
        return Build(
            limits=limits,
            vector_words=self.read(registers.VECTOR_WORDS),
            clock_hz=self.read(registers.CLOCK_HZ),
            build_hash=b"".join(word.to_bytes(4, "little") for word in words),
        )

    def read(self, offset: int) -> int:
        """A 32-bit register."""
        with card_errors(f"reading register {offset:#x}"):
            return int(self._ip.read(offset))

    def write(self, offset: int, value: int) -> None:
        """A 32-bit register."""
        with card_errors(f"writing register {offset:#x}"):
            self._ip.write(offset, value)

    def write_address(self, offset: int, address: int) -> None:
        """A 64-bit argument, as two words."""
        self.write(offset, address & 0xFFFFFFFF)
        self.write(offset + 4, address >> 32)

    def start_and_wait(self) -> None:
        """One start. CardTimeoutError when it is not done in time.

        Then a soft reset has given it up; the error says whether the card can be used again.
        """
        self._expect_idle()
        self.write(registers.CTRL, registers.CTRL_START)
        deadline = self._wait.clock() + self._wait.timeout_s
        while not self._control() & registers.CTRL_DONE:
            if self._wait.clock() > deadline:
                raise CardTimeoutError(
                    f"card: not done {self._wait.timeout_s:g} s after its start. {self._give_up()}"
                )
            self._wait.sleep(self._wait.poll_s)
        self.write(registers.CTRL, registers.CTRL_CONTINUE)

    def _give_up(self) -> str:
        """A soft reset: the card asks memory for nothing more and waits for what it asked for.

        Returns what became of it. Resetting a kernel with answers on their way would leave its
        memory port, which the shell shares, unusable.
        """
        self.write(registers.RESET, registers.RESET_DRAIN)
        deadline = self._wait.clock() + self._wait.drain_s
        while not self.read(registers.RESET) & registers.RESET_DRAINED:
            if self._wait.clock() > deadline:
                return (
                    f"A soft reset did not drain its memory ports in {self._wait.drain_s:g} s: the "
                    "card must be reset (xbutil reset, or load the bitstream again) and reopened."
                )
            self._wait.sleep(self._wait.poll_s)
        return "A soft reset has drained its memory ports: it can be used again."

    def _expect_idle(self) -> None:
        control = self._control()
        if control & registers.CTRL_DONE:
            # A start that was given up has finished after all; nobody wants its result.
            self.write(registers.CTRL, registers.CTRL_CONTINUE)
        elif not control & registers.CTRL_IDLE:
            raise CardError(
                "card: busy with a start that is not ours, or hung. End the other process that "
                "uses it, or reset the card."
            )

    def _control(self) -> int:
        control = self.read(registers.CTRL)
        if control == ALL_ONES:
            raise CardError(
                "card: its registers read all ones, so it is gone from the bus. Look at dmesg; a "
                "warm reboot brings it back."
            )
        return control
