"""exp2n, round_sat, reduce_tree, dot_int8: random gaps and corner values against the golden."""

import os
import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from fpga.golden.exp2 import exp2_negative
from fpga.golden.fixed import round_shift, saturate32

NUMBERS = 600


async def stream(dut, items, drive, answer, expected, latency):
    """Feed ``items`` with random gaps; every answer must come after ``latency`` cycles."""
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    rng = random.Random(7)
    dut.rst.value, dut.in_valid.value = 1, 0
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    sent, got, cycle = [], 0, 0
    while got < len(items):
        assert cycle < 4 * len(items) + 100, "answers are missing"
        valid = len(sent) < len(items) and rng.random() < 0.7
        dut.in_valid.value = valid
        if valid:
            drive(items[len(sent)])
            sent.append(cycle)
        await FallingEdge(dut.clk)
        cycle += 1
        if dut.out_valid.value == 1:
            value = answer()
            assert value == expected[got], f"{items[got]}: {value}, not {expected[got]}"
            assert cycle - sent[got] == latency
            got += 1


def near_powers(bits):
    return {max(0, (1 << b) + d) for b in range(bits) for d in (-1, 0, 1)}


@cocotb.test()
async def exp2n(dut):
    rng = random.Random(1)
    distances = sorted(near_powers(32) | {n << 16 | rng.getrandbits(16) for n in range(30)})
    distances += [24 << 16, (25 << 16) - 1, 25 << 16, (1 << 32) - 1]
    distances += [rng.getrandbits(rng.randint(1, 22)) for _ in range(NUMBERS)]
    expected = exp2_negative(distances).tolist()

    def drive(distance):
        dut.in_distance.value = distance

    await stream(dut, distances, drive, lambda: int(dut.out_value.value), expected, 5)


@cocotb.test()
async def round_sat(dut):
    rng = random.Random(2)
    width = len(dut.in_value)
    limit = (1 << width - 1) - 1
    items = []
    for _ in range(NUMBERS):
        value = rng.choice([-1, 1]) * rng.getrandbits(rng.randint(1, width - 1))
        if rng.random() < 0.2:
            corners = [limit, -limit - 1, 0, -1, (1 << 31) - 1, -(1 << 31), 1 << 31]
            value = rng.choice([x for x in corners if -limit - 1 <= x <= limit])
        items.append((value, rng.choice([rng.randint(-9, 64), rng.randint(-(1 << 18), 1 << 18)])))
    expected = [int(saturate32(round_shift(value, shift))) for value, shift in items]

    def drive(item):
        dut.in_value.value = item[0] & (1 << width) - 1
        dut.in_shift.value = item[1] & (1 << 20) - 1

    await stream(dut, items, drive, lambda: dut.out_value.value.to_signed(), expected, 4)


@cocotb.test()
async def reduce_tree(dut):
    rng = random.Random(3)
    count, width, op = (int(os.environ[f"HETERO_TREE_{x}"]) for x in ("COUNT", "WIDTH", "OP"))
    limit = (1 << width - 1) - 1
    bound = limit // count if op == 0 else limit
    items = [
        [rng.choice([rng.randint(-bound, bound), bound, -bound]) for _ in range(count)]
        for _ in range(200)
    ]
    expected = [(sum, max, min)[op](item) for item in items]

    def drive(item):
        mask = (1 << width) - 1
        dut.in_data.value = sum((x & mask) << i * width for i, x in enumerate(item))

    latency = (count - 1).bit_length()
    await stream(dut, items, drive, lambda: dut.out_data.value.to_signed(), expected, latency)


@cocotb.test()
async def dot_int8(dut):
    size = len(dut.in_a) // 8
    rng = np.random.default_rng(4)
    items = [rng.integers(-128, 128, (2, size)).astype(np.int8) for _ in range(200)]
    items += [np.full((2, size), -128, np.int8), np.array([[127] * size, [-128] * size], np.int8)]
    expected = [int(a.astype(np.int64) @ b) for a, b in items]

    def drive(item):
        dut.in_a.value, dut.in_b.value = (int.from_bytes(x.tobytes(), "little") for x in item)

    levels = {16: 2, 32: 3, 64: 3}[size]
    await stream(dut, items, drive, lambda: dut.out_dot.value.to_signed(), expected, levels + 1)
