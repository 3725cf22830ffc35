"""A fast AXI4 memory for benches: contents by address, latency, stalls, errors, and what it saw."""

import random
from collections import deque
from functools import cache

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

BEAT = 64
OKAY, EXOKAY, SLVERR, DECERR = range(4)


@cache
def beat_at(address: int) -> int:
    """Contents of the 64-byte beat at a byte address: random bits, the same ones every time."""
    return random.Random(address).getrandbits(512)


class ReadMemory:
    """Answers the read channels of ``m_axi``; all of a burst's rules are asserted.

    ``latency``: cycles from AR to the first beat. ``ar_ready``, ``r_valid``: how often each is up.
    ``errors``: response by byte address of an AXI beat. ``bursts``: (address, AXI beats) seen.
    """

    def __init__(self, dut, *, latency=20, ar_ready=1.0, r_valid=1.0, max_beats=256, seed=1):
        self.dut, self.latency, self.max_beats = dut, latency, max_beats
        self.ar_ready, self.r_valid = ar_ready, r_valid
        self.width = len(dut.m_axi_rdata) // 8
        self.errors: dict[int, int] = {}
        self.bursts: list[tuple[int, int]] = []
        self.beats_sent = 0
        self._queue: deque = deque()
        self._random = random.Random(seed)
        dut.m_axi_rvalid.value = 0
        dut.m_axi_arready.value = 0
        cocotb.start_soon(self._run())

    @property
    def outstanding(self) -> int:
        """AXI beats asked for and not sent."""
        return len(self._queue)

    async def _run(self):
        dut, now = self.dut, 0
        while True:
            await FallingEdge(dut.clk)
            dut.m_axi_arready.value = self._random.random() < self.ar_ready
            sends = bool(self._queue) and self._queue[0][0] <= now
            sends = sends and self._random.random() < self.r_valid
            dut.m_axi_rvalid.value = sends
            if sends:
                _, address, last = self._queue[0]
                word = beat_at(address // BEAT * BEAT) >> 8 * (address % BEAT)
                dut.m_axi_rdata.value = word & ((1 << 8 * self.width) - 1)
                dut.m_axi_rlast.value = last
                dut.m_axi_rresp.value = self.errors.get(address, OKAY)
                dut.m_axi_rid.value = 0
            await RisingEdge(dut.clk)
            now += 1
            if sends and dut.m_axi_rready.value:
                self._queue.popleft()
                self.beats_sent += 1
            if dut.m_axi_arvalid.value and dut.m_axi_arready.value:
                self._take_burst(now)

    def _take_burst(self, now):
        dut = self.dut
        address, beats = int(dut.m_axi_araddr.value), int(dut.m_axi_arlen.value) + 1
        size = beats * self.width
        assert int(dut.m_axi_arburst.value) == 1
        assert 1 << int(dut.m_axi_arsize.value) == self.width
        assert beats <= self.max_beats, f"a burst of {beats} beats"
        assert address % BEAT == 0
        assert size % BEAT == 0
        assert address // 4096 == (address + size - 1) // 4096, "a burst crosses 4 KiB"
        self.bursts.append((address, beats))
        for i in range(beats):
            self._queue.append((now + self.latency, address + i * self.width, i == beats - 1))
