"""reciprocal, rsqrt, quantise_scale, norm_scale: one value in, one value out, some cycles later."""

import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from fpga.golden.fixed import normalise16
from fpga.golden.quantise import quantise
from fpga.golden.reciprocal import reciprocal
from fpga.golden.rsqrt import rsqrt

COUNT = 300


async def reset(dut):
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    dut.rst.value, dut.in_valid.value = 1, 0
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0


async def expect_stream(dut, inputs, outputs, *, latency):
    """One item a cycle with random gaps; ``outputs[i]`` must show ``latency`` cycles later."""
    rng, due, todo, cycle = random.Random(5), {}, list(zip(inputs, outputs, strict=True)), 0
    while todo or due:
        send = bool(todo) and rng.random() < 0.7
        dut.in_valid.value = int(send)
        if send:
            given, due[cycle + latency] = todo.pop(0)
            for name, value in given.items():
                getattr(dut, name).value = value
        await FallingEdge(dut.clk)
        cycle += 1
        assert int(dut.out_valid.value) == (cycle in due)
        for name, value in due.pop(cycle, {}).items():
            got = getattr(dut, name).value
            assert (got.to_signed() if name.endswith("exponent") else int(got)) == value, name


@cocotb.test()
async def reciprocals(dut):
    await reset(dut)
    rng = random.Random(1)
    values = [
        1 << 15,
        (1 << 16) - 1,
        (1 << 15) + 255,
        *(rng.randrange(1 << 15, 1 << 16) for _ in range(COUNT)),
    ]
    await expect_stream(
        dut,
        [{"in_mantissa": x} for x in values],
        [{"out_value": int(reciprocal(x))} for x in values],
        latency=7,
    )


@cocotb.test()
async def roots(dut):
    await reset(dut)
    rng = random.Random(2)
    edges = [x for b in range(53) for x in (1 << b, (1 << b) - 1, (1 << b) + 1) if 0 < x < 1 << 53]
    values = edges + [rng.getrandbits(rng.randint(1, 53)) | 1 for _ in range(COUNT)]
    results = [rsqrt(x) for x in values]
    await expect_stream(
        dut,
        [{"in_value": x} for x in values],
        [{"out_mantissa": int(y), "out_exponent": int(e)} for y, e in results],
        latency=11,
    )


@cocotb.test()
async def scales(dut):
    """Values come one at a time, as a vector's largest magnitude does."""
    await reset(dut)
    rng = random.Random(3)
    values = [0, 1, 2, 127, 128, (1 << 15) - 1, 1 << 15, (1 << 40) - 1, 1 << 39]
    values += [rng.getrandbits(rng.randint(1, 40)) for _ in range(60)]
    for largest in values:
        frac = rng.choice([0, 16, rng.randint(-30, 60)])
        dut.in_valid.value, dut.in_largest.value, dut.in_frac.value = 1, largest, frac
        await FallingEdge(dut.clk)
        dut.in_valid.value, dut.in_largest.value = 0, rng.getrandbits(40)
        want = quantise(np.array([largest], dtype=np.int64), frac)
        assert int(dut.out_length.value) == max(largest, 1).bit_length()
        for _ in range(4):
            await FallingEdge(dut.clk)
        assert int(dut.out_mantissa.value) == int(want.mantissa), largest
        assert dut.out_exponent.value.to_signed() == int(want.exponent), largest
        for _ in range(5):
            await FallingEdge(dut.clk)
        assert int(dut.out_valid.value) == 1
        inverse = int(reciprocal(int(normalise16(max(largest, 1))[0])))
        assert int(dut.out_factor.value) == 127 * inverse
        await FallingEdge(dut.clk)
        assert int(dut.out_valid.value) == 0


@cocotb.test()
async def norms(dut):
    await reset(dut)
    rng = random.Random(4)
    for _ in range(80):
        total = rng.choice([0, 1, (1 << 50) - 1, rng.getrandbits(rng.randint(1, 50))])
        block, eps, shift = (
            rng.randint(0, 14),
            rng.getrandbits(rng.randint(1, 32)),
            rng.randint(-20, 30),
        )
        mantissa, exponent = (
            rng.choice([1 << 15, 65535, rng.randrange(1 << 15, 1 << 16)]),
            rng.randint(-90, 90),
        )
        dut.in_valid.value, dut.in_sum.value, dut.block.value = 1, total, block
        dut.eps.value, dut.gamma_shift.value = eps, shift
        await FallingEdge(dut.clk)
        dut.in_valid.value = 0
        for _ in range(10):
            await FallingEdge(dut.clk)
        dut.quant_mantissa.value, dut.quant_exponent.value = mantissa, exponent
        for _ in range(4):
            assert int(dut.out_valid.value) == 0
            await FallingEdge(dut.clk)
        root, root_exponent = rsqrt(max(total + (eps >> 2 * block), 1))
        want, carry = normalise16(mantissa * root)
        assert int(dut.out_valid.value) == 1
        assert int(dut.out_mantissa.value) == int(want)
        assert dut.out_exponent.value.to_signed() == exponent + root_exponent - carry + shift
