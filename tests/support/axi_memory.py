"""A fast AXI4 memory for benches: contents by address, latency, stalls, errors, and what it saw."""

import random
from collections import deque
from functools import cache

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

BEAT = 64
PAGE = 4096
OKAY, EXOKAY, SLVERR, DECERR = range(4)
PAYLOADS = {
    "ar": ("id", "addr", "len", "size", "burst"),
    "aw": ("id", "addr", "len", "size", "burst"),
    "w": ("data", "strb", "last"),
}
"""What a master must hold while its channel's valid waits for ready."""


@cache
def beat_at(address: int) -> int:
    """Contents of the 64-byte beat at a byte address: random bits, the same ones every time."""
    return random.Random(address).getrandbits(512)


def watch(dut, *channels: str) -> None:
    """Assert from now on what AXI4 asks of a master on these of "ar", "aw", "w"."""
    for channel in channels:
        cocotb.start_soon(_watch_waiting(dut, channel))
        if channel != "w":
            cocotb.start_soon(_watch_bursts(dut, channel))


async def _watch_waiting(dut, channel):
    """Valid stays up, and what it offers stays as it is, until ready."""
    valid, ready = (getattr(dut, f"m_axi_{channel}{end}") for end in ("valid", "ready"))
    payload = [getattr(dut, f"m_axi_{channel}{end}") for end in PAYLOADS[channel]]
    waiting = None
    while True:
        await RisingEdge(dut.clk)  # values as the flip-flops take them
        if dut.rst.value == 1:
            waiting = None
            continue
        offered = [str(signal.value) for signal in payload] if valid.value == 1 else None
        assert waiting in (None, offered), f"{channel}: {waiting} became {offered} unanswered"
        waiting = None if ready.value == 1 else offered


async def _watch_bursts(dut, channel):
    """INCR, the port's full width, whole 64-byte beats, no 4 KiB boundary inside."""
    signal = {end: getattr(dut, f"m_axi_{channel}{end}") for end in ("valid", *PAYLOADS[channel])}
    width = len(dut.m_axi_rdata if channel == "ar" else dut.m_axi_wdata) // 8
    while True:
        await RisingEdge(dut.clk)
        if dut.rst.value == 1 or signal["valid"].value != 1:
            continue
        address, size = int(signal["addr"].value), (int(signal["len"].value) + 1) * width
        assert int(signal["burst"].value) == 1
        assert 1 << int(signal["size"].value) == width
        assert address % BEAT == size % BEAT == 0
        assert address // PAGE == (address + size - 1) // PAGE, "a burst crosses 4 KiB"


class ReadMemory:
    """Answers the read channels of ``m_axi``; what AXI4 asks of a master is asserted.

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
        watch(dut, "ar")

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
        assert beats <= self.max_beats, f"a burst of {beats} beats"
        self.bursts.append((address, beats))
        for i in range(beats):
            self._queue.append((now + self.latency, address + i * self.width, i == beats - 1))
