"""slr_stage: nothing lost, nothing reordered, no bubble."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge


async def _run(dut, cycles, p_valid, p_ready, seed=3):
    """Words that went in and out in ``cycles`` cycles."""
    rng = random.Random(seed)
    width = len(dut.in_data)
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    dut.rst.value, dut.in_valid.value, dut.out_ready.value, dut.in_data.value = 1, 0, 0, 0
    for _ in range(3):
        await RisingEdge(dut.clk)
    sent, got, offer = [], [], None
    for _ in range(cycles):
        await FallingEdge(dut.clk)
        dut.rst.value = 0
        if offer is None and rng.random() < p_valid:
            offer = rng.getrandbits(width)
            dut.in_data.value = offer
        dut.in_valid.value = offer is not None
        dut.out_ready.value = rng.random() < p_ready
        await RisingEdge(dut.clk)
        if dut.out_valid.value and dut.out_ready.value:
            got.append(int(dut.out_data.value))
        if offer is not None and dut.in_ready.value:
            sent.append(offer)
            offer = None
    return sent, got


@cocotb.test()
async def random_stalls_keep_the_order(dut):
    for p_valid, p_ready in ((0.5, 0.5), (0.9, 0.3), (0.3, 0.9), (1.0, 0.6)):
        sent, got = await _run(dut, 150, p_valid, p_ready)
        assert len(got) > 30
        assert got == sent[: len(got)]
        assert len(sent) - len(got) <= 2 * int(dut.STAGES.value)


@cocotb.test()
async def full_speed_has_no_bubble(dut):
    sent, got = await _run(dut, 100, 1.0, 1.0)
    assert len(got) == 100 - int(dut.STAGES.value)
    assert got == sent[: len(got)]
