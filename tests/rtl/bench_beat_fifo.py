"""beat_fifo: beats in order whatever is taken, capacity kept, two beats a cycle."""

import random
from collections import deque

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge


class Fifo:
    """Drives a beat_fifo and keeps the beats it must hold."""

    def __init__(self, dut, seed):
        self.dut, self.rng = dut, random.Random(seed)
        self.held, self.size = deque(), int(dut.FIFO_BEATS.value)
        self.taken = self.number = 0

    async def start(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        dut.rst.value, dut.clear.value, dut.write_valid.value, dut.take.value = 1, 0, 0, 0
        for _ in range(3):
            await RisingEdge(dut.clk)

    async def cycle(self, p_write, p_take):
        """One cycle; takes up to what is there."""
        dut, rng = self.dut, self.rng
        await FallingEdge(dut.clk)
        dut.rst.value = 0
        writes = len(self.held) < self.size and rng.random() < p_write
        beat = self.number << 480 | rng.getrandbits(480)
        dut.write_valid.value = writes
        dut.write_data.value = beat
        count = int(dut.count.value)
        take = min(count, (rng.random() < p_take) + (rng.random() < p_take))
        assert count <= len(self.held), "more beats to see than were written"
        seen = str(dut.data.value)  # the high half is undefined when there is one beat
        beats = [int(seen[1024 - 512 * (i + 1) : 1024 - 512 * i], 2) for i in range(count)]
        assert beats == list(self.held)[:count]
        dut.take.value = take
        await RisingEdge(dut.clk)
        for _ in range(take):
            self.held.popleft()
        self.taken += take
        if writes:
            self.held.append(beat)
            self.number += 1


@cocotb.test()
async def random_traffic(dut):
    fifo = Fifo(dut, 1)
    await fifo.start()
    for p_write, p_take in ((0.6, 0.3), (1.0, 0.1), (0.5, 0.9), (1.0, 0.5), (0.2, 1.0)):
        for _ in range(120):
            await fifo.cycle(p_write, p_take)
    assert fifo.taken > 200


@cocotb.test()
async def holds_all_it_says_and_drains_two_a_cycle(dut):
    fifo = Fifo(dut, 2)
    await fifo.start()
    for _ in range(fifo.size + 10):
        await fifo.cycle(1.0, 0.0)
    assert len(fifo.held) == fifo.size
    await FallingEdge(dut.clk)
    assert int(dut.free.value) == 0
    for _ in range(fifo.size // 2):
        await fifo.cycle(0.0, 1.0)
    assert not fifo.held


@cocotb.test()
async def a_beat_a_cycle_passes_through(dut):
    fifo = Fifo(dut, 3)
    await fifo.start()
    for _ in range(150):
        await fifo.cycle(1.0, 1.0)
    assert fifo.taken >= 143


@cocotb.test()
async def clear_forgets(dut):
    fifo = Fifo(dut, 4)
    await fifo.start()
    for _ in range(13):
        await fifo.cycle(1.0, 0.2)
    await FallingEdge(dut.clk)
    dut.write_valid.value, dut.take.value, dut.clear.value = 0, 0, 1
    await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.clear.value = 0
    assert int(dut.count.value) == 0
    fifo.held.clear()
    for _ in range(40):
        await fifo.cycle(0.7, 0.7)
    assert fifo.taken > 10
