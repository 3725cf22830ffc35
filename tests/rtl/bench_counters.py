"""counters: each bit counts its own cycles, `clear` forgets, the trace is a cycle late."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge


@cocotb.test()
async def counts_and_trace(dut):
    rng, units = random.Random(1), len(dut.busy)
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    dut.clear.value, dut.busy.value = 1, (1 << units) - 1
    await FallingEdge(dut.clk)
    await FallingEdge(dut.clk)
    counts = [0] * units
    for cycle in range(300):
        busy, clear = rng.getrandbits(units), cycle == 150
        dut.busy.value, dut.clear.value = busy, clear
        await FallingEdge(dut.clk)
        counts = [0 if clear else n + (busy >> i & 1) for i, n in enumerate(counts)]
        assert int(dut.trace.value) == busy
        assert int(dut.counts.value) == sum(n << 32 * i for i, n in enumerate(counts))
