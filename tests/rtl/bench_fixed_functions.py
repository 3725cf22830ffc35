"""fixed.svh against fpga.golden.fixed: random values, every shift, corners."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from fpga.golden import fixed

COUNT = 1500
INT32 = (1 << 31) - 1


def random_value(rng):
    bits = rng.randrange(1, 63)
    kinds = [
        rng.getrandbits(bits),
        -rng.getrandbits(bits),
        1 << bits,
        (1 << bits) - 1,
        -(1 << bits),
        0,
    ]
    return rng.choice(kinds)


def check_roundings(dut, value, shift):
    places = min(max(shift, -7), 62)
    fits = abs(value) + (1 << max(places, 0)) < 1 << 63
    exact = int(fixed.round_shift(value, shift)) if fits else None
    if fits and (places >= 0 or abs(value) < 1 << 56):
        assert dut.rounded64.value.to_signed() == exact
    if fits and places >= 1:
        assert dut.halves64.value.to_signed() == exact
    if fits and abs(value) < 1 << (40 if places < 0 else 46):
        assert dut.rounded48.value.to_signed() == exact
    if abs(value) < 1 << 39 and shift & 31:
        assert dut.rounded40.value.to_signed() == int(fixed.round_shift(value, shift & 31))


@cocotb.test()
async def functions(dut):
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    rng = random.Random(1)
    for _ in range(COUNT):
        value = random_value(rng)
        shift = rng.choice([rng.randrange(-9, 66), rng.randrange(-7, 20), -(2**31), 2**31 - 1])
        dut.value.value, dut.shift.value = value, shift
        await FallingEdge(dut.clk)
        check_roundings(dut, value, shift)
        assert dut.clipped32.value.to_signed() == int(fixed.saturate32(value))
        assert dut.clipped8.value.to_signed() == int(fixed.saturate8(value))
        low = (value & 0xFFFFFFFF) - ((value & 0x80000000) << 1)
        assert int(dut.magnitude.value) == min(abs(low), INT32)
        assert int(dut.length64.value) == (value & (1 << 64) - 1).bit_length()
        assert int(dut.length32.value) == (value & 0xFFFFFFFF).bit_length()
        if 0 < value < 1 << 53:
            assert int(dut.mantissa.value) == int(fixed.normalise16(value)[0])
