"""port_reader: every beat once and in order, legal bursts, credits kept, gathers first, errors."""

import random
from collections import deque

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiRamRead, AxiReadBus
from support.axi_memory import BEAT, DECERR, SLVERR, ReadMemory, beat_at

PAGE = 4096


class Reader:
    """Drives commands and gathers, plays the beat FIFO, keeps what must come."""

    def __init__(self, dut, *, p_take=1.0, seed=1):
        self.dut, self.rng, self.p_take = dut, random.Random(seed), p_take
        self.size = int(dut.FIFO_BEATS.value)
        self.port_beats = BEAT // int(dut.PORT_BYTES.value)
        self.commands, self.gathers = deque(), deque()
        self.expected, self.gather_expected = deque(), deque()
        self.in_fifo = self.cycles = self.written = self.gathered = 0
        self.full = 0

    async def start(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        for name in ("clear", "stop", "cmd_valid", "g_valid", "taken"):
            getattr(dut, name).value = 0
        dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        dut.rst.value = 0

    def read(self, address, beats):
        self.commands.append((address, beats))
        self.expected.extend(address + BEAT * i for i in range(beats))

    def gather(self, address, beats):
        self.gathers.append((address, beats))
        self.gather_expected.extend((address + BEAT * i, i == beats - 1) for i in range(beats))

    async def cycle(self):
        dut = self.dut
        await FallingEdge(dut.clk)
        self._offer(dut.cmd_valid, dut.cmd_addr, dut.cmd_beats, self.commands)
        self._offer(dut.g_valid, dut.g_addr, dut.g_beats, self.gathers)
        take = sum(self.rng.random() < self.p_take for _ in range(2))
        take = min(take, self.in_fifo)
        dut.taken.value = take
        await RisingEdge(dut.clk)
        self.cycles += 1
        self.in_fifo -= take
        if self.commands and dut.cmd_ready.value:
            self.commands.popleft()
        if self.gathers and dut.g_ready.value:
            self.gathers.popleft()
        self._check()

    def _offer(self, valid, address, beats, queue):
        valid.value = bool(queue)
        if queue:
            address.value, beats.value = queue[0]

    def _check(self):
        dut = self.dut
        if dut.write_valid.value:
            assert self.expected, "a beat that nobody asked for"
            assert int(dut.write_data.value) == beat_at(self.expected.popleft())
            self.in_fifo += 1
            self.written += 1
            assert self.in_fifo <= self.size, "more beats than the FIFO holds"
            self.full = max(self.full, self.in_fifo)
        if dut.gr_valid.value:
            address, last = self.gather_expected.popleft()
            assert int(dut.gr_data.value) == beat_at(address)
            assert bool(dut.gr_last.value) == last
            self.gathered += 1

    async def drain(self, limit=4000):
        for _ in range(limit):
            if not self.expected and not self.gather_expected:
                return
            await self.cycle()
        raise AssertionError(f"{len(self.expected)} beats never came")


def memory(dut, **options):
    return ReadMemory(dut, max_beats=16 if int(dut.AXI3.value) else 256, **options)


@cocotb.test()
async def random_commands_with_stalls(dut):
    reader = Reader(dut, p_take=0.4)
    ram = memory(dut, latency=7, ar_ready=0.6, r_valid=0.8)
    await reader.start()
    rng = random.Random(5)
    for _ in range(25):
        near = rng.randrange(1 << 20) * PAGE - BEAT * rng.randrange(8)
        reader.read(near % (1 << 40), rng.choice([1, 2, 3, 7, 16, 17, 40]))
    for _ in range(60):
        if rng.random() < 0.2:
            reader.gather(rng.randrange(1 << 30) * BEAT, rng.choice([1, 1, 2, 20]))
        await reader.cycle()
    await reader.drain()
    assert ram.bursts
    total = reader.written + reader.gathered
    for _ in range(3):
        await reader.cycle()
    assert int(dut.beats_read.value) == total
    assert dut.idle.value
    assert not dut.error.value


@cocotb.test()
async def an_idle_consumer_stops_it_at_the_credits(dut):
    reader = Reader(dut, p_take=0.0)
    ram = memory(dut, latency=30)
    await reader.start()
    reader.read(BEAT * 5, 4 * reader.size)
    for _ in range(3 * reader.size * reader.port_beats + 80):
        await reader.cycle()
        assert ram.outstanding <= (reader.size - reader.in_fifo) * reader.port_beats
    assert reader.size - 16 <= reader.in_fifo <= reader.size
    reader.gather(BEAT * 77, 3)  # a full FIFO does not keep a gather waiting
    for _ in range(60 + 3 * reader.port_beats):
        await reader.cycle()
    assert not reader.gather_expected
    reader.p_take = 1.0
    await reader.drain()


@cocotb.test()
async def ideal_memory_is_kept_busy(dut):
    reader = Reader(dut)
    ram = memory(dut, latency=8)
    await reader.start()
    for i in range(30):  # short and long commands, one after the other
        reader.read(PAGE * 16 * i + BEAT * (i % 5), (1, 3, 16, 24)[i % 4])
    beats = len(reader.expected)
    await reader.drain()
    assert reader.cycles <= beats * reader.port_beats + 20
    assert ram.beats_sent == beats * reader.port_beats


@cocotb.test()
async def a_burst_of_gathers_goes_before_the_stream(dut):
    reader = Reader(dut)
    ram = memory(dut, latency=4, ar_ready=0.3)
    await reader.start()
    reader.read(0, 200)
    for _ in range(20):
        await reader.cycle()
    asked = len(ram.bursts)
    reader.gather(PAGE * 1000, 2)
    while reader.gather_expected:
        await reader.cycle()
    order = [address >= PAGE * 1000 for address, _ in ram.bursts]
    assert order.index(True) <= asked + 3
    await reader.drain()


@cocotb.test()
async def errors_stay_and_everything_is_drained(dut):
    reader = Reader(dut)
    ram = memory(dut, latency=4)
    await reader.start()
    reader.read(0, 20)
    ram.errors[BEAT * 7] = SLVERR
    ram.errors[BEAT * 9] = DECERR
    await reader.drain()
    assert dut.error.value
    assert int(dut.error_resp.value) == SLVERR
    await _clear(reader)
    assert not dut.error.value
    assert int(dut.beats_read.value) == 0
    ram.errors = {PAGE: DECERR}
    reader.gather(PAGE, 1)
    await reader.drain()
    assert int(dut.error_resp.value) == DECERR


async def _clear(reader):
    dut = reader.dut
    await FallingEdge(dut.clk)
    dut.clear.value, dut.cmd_valid.value, dut.g_valid.value, dut.taken.value = 1, 0, 0, 0
    await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.clear.value = 0
    reader.in_fifo = 0
    reader.expected.clear()
    reader.commands.clear()


@cocotb.test()
async def stop_then_clear_gives_a_fresh_reader(dut):
    reader = Reader(dut, p_take=0.1)
    memory(dut, latency=20, ar_ready=0.5)
    await reader.start()
    reader.read(PAGE, 500)
    for _ in range(30):
        await reader.cycle()
    dut.stop.value = 1
    waited = 0
    while not dut.idle.value:
        await reader.cycle()
        waited += 1
        assert waited < 2000
    written = reader.written
    for _ in range(40):
        await reader.cycle()
    assert reader.written - written <= 1  # the one on its way into the FIFO
    await _clear(reader)
    dut.stop.value = 0
    reader.p_take = 1.0
    reader.read(PAGE * 3, 40)
    await reader.drain()


@cocotb.test()
async def an_independent_memory_agrees(dut):
    """cocotbext-axi's memory: its handshakes, its checks."""
    ram = AxiRamRead(AxiReadBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=2**16)
    reader = Reader(dut, p_take=0.7)
    rng = random.Random(3)
    ram.ar_channel.set_pause_generator(iter(lambda: rng.random() < 0.3, None))
    ram.r_channel.set_pause_generator(iter(lambda: rng.random() < 0.3, None))
    for address in range(0, 2**16, BEAT):
        ram.write(address, beat_at(address).to_bytes(BEAT, "little"))
    await reader.start()
    for address, beats in ((PAGE - BEAT, 5), (BEAT * 3, 33), (PAGE * 7 - 3 * BEAT, 9)):
        reader.read(address, beats)
        reader.gather(PAGE * 2 - BEAT, 2)
    await reader.drain()
