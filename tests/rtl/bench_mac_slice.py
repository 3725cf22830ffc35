"""mac_slice against exact sums: int4 groups with scales, int8 row pairs, gaps, corner values."""

import os
import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from fpga.golden.matmul import accumulate, folded
from fpga.program.layout import Int4Matrix, Int8Matrix

LATENCY = 7
STEPS = 64 // int(os.environ["BENCH_BYTES"])  # cycles of a beat
COLUMNS = 32  # of a beat
MANTISSA = np.full(4, 1 << 15, dtype=np.uint16)


def int4_beats(quant_oi, scale_og, act_i):
    """(weights, acts, scales, upper) of each 32 columns of four rows."""
    for group in range(quant_oi.shape[1] // COLUMNS):
        columns = slice(COLUMNS * group, COLUMNS * (group + 1))
        nibbles = quant_oi[:, columns].astype(np.uint8) & 15
        data = (nibbles[:, 0::2] | nibbles[:, 1::2] << 4).reshape(-1)
        yield data, act_i[columns], scale_og[:, group], 0


def int8_beats(quant_oi, act_i):
    """Rows 0 and 1, then rows 2 and 3, of each 32 columns."""
    for start in range(0, quant_oi.shape[1], COLUMNS):
        columns = slice(start, start + COLUMNS)
        for upper in (0, 1):
            data = quant_oi[2 * upper : 2 * upper + 2, columns].reshape(-1)
            yield data, act_i[columns], np.full(4, 77, dtype=np.int8), upper


def to_int(values):
    return int.from_bytes(np.ascontiguousarray(values).astype("<i1").tobytes(), "little")


class Slice:
    """Sends tiles, takes their sums."""

    def __init__(self, dut, seed):
        self.dut, self.rng = dut, np.random.default_rng(seed)
        self.chance = random.Random(seed)
        self.expected, self.cycle = [], 0

    async def reset(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        dut.rst.value, dut.in_valid.value, dut.in_step.value = 1, 0, 0
        for _ in range(3):
            await FallingEdge(dut.clk)
        dut.rst.value = 0

    async def tile(self, bits, width, *, extreme=False, p_valid=1.0):
        """One tile of four rows; queues what must come out."""
        quant_oi, scale_og, act_i = self._numbers(bits, width, extreme)
        if bits == 4:
            beats = list(int4_beats(quant_oi, scale_og, act_i))
            matrix = Int4Matrix(quant_oi=quant_oi, scale_og=scale_og, mantissa_o=MANTISSA)
        else:
            beats = list(int8_beats(quant_oi, act_i))
            matrix = Int8Matrix(quant_oi=quant_oi, mantissa_o=MANTISSA)
        sums = accumulate(folded(matrix), act_i[None])[0]
        for number, (data, acts, scales, upper) in enumerate(beats):
            dut = self.dut
            dut.in_valid.value, dut.in_int8.value, dut.in_upper.value = 1, bits == 8, upper
            dut.in_first.value, dut.in_last.value = number == 0, number == len(beats) - 1
            dut.in_weights.value = to_int(data.astype(np.uint8).view(np.int8))
            dut.in_acts.value, dut.in_scales.value = to_int(acts), to_int(scales)
            for step in range(STEPS):
                while self.chance.random() >= p_valid:
                    dut.in_valid.value = 0
                    await self._clock()
                dut.in_valid.value, dut.in_step.value = 1, step
                if number == len(beats) - 1 and step == STEPS - 1:
                    self.expected.append((sums.tolist(), self.cycle + LATENCY))
                await self._clock()
            if self.chance.random() >= p_valid:
                await self._idle()
        self.dut.in_valid.value = 0

    def _numbers(self, bits, width, extreme):
        rng, groups = self.rng, width // COLUMNS
        low, high = (-8, 7) if bits == 4 else (-127, 127)
        if extreme:
            quant_oi = rng.choice([low, high], (4, width))
            scale_og, act_i = rng.choice([-127, 127], (4, groups)), rng.choice([-127, 127], width)
        else:
            quant_oi = rng.integers(low, high + 1, (4, width))
            scale_og = rng.integers(-127, 128, (4, groups))
            act_i = rng.integers(-127, 128, width)
        return quant_oi.astype(np.int8), scale_og.astype(np.int8), act_i.astype(np.int8)

    async def _idle(self):
        """Nothing valid, whatever else the inputs say."""
        dut, rng = self.dut, self.chance
        dut.in_valid.value = 0
        dut.in_first.value, dut.in_last.value = rng.getrandbits(1), rng.getrandbits(1)
        dut.in_step.value = rng.getrandbits(2)
        dut.in_weights.value = rng.getrandbits(512)
        await self._clock()

    async def _clock(self):
        dut = self.dut
        await FallingEdge(dut.clk)
        self.cycle += 1
        if dut.out_valid.value == 1:
            assert self.expected, "sums that nobody asked for"
            sums, due = self.expected.pop(0)
            assert dut.out_sums.value.is_resolvable, "sums of unknown bits"
            out = int(dut.out_sums.value)
            got = [(out >> 32 * r & 0xFFFFFFFF ^ 1 << 31) - (1 << 31) for r in range(4)]
            assert got == sums
            assert self.cycle == due, f"due in cycle {due}, came in {self.cycle}"

    async def finish(self):
        for _ in range(LATENCY + 2):
            await self._idle()
        assert not self.expected, "sums are missing"


@cocotb.test()
async def tiles_one_after_the_other(dut):
    mac = Slice(dut, 1)
    await mac.reset()
    for bits in (4, 8, 4, 4, 8, 8):
        for width in (64, 128, 320):
            await mac.tile(bits, width)
    await mac.finish()


@cocotb.test()
async def tiles_with_gaps(dut):
    mac = Slice(dut, 2)
    await mac.reset()
    for _ in range(30):
        bits, width = mac.chance.choice((4, 8)), 64 * mac.chance.randint(1, 3)
        await mac.tile(bits, width, p_valid=0.6)
    await mac.finish()


@cocotb.test()
async def corner_values(dut):
    mac = Slice(dut, 3)
    await mac.reset()
    for bits in (4, 8):
        for _ in range(6):
            await mac.tile(bits, 256, extreme=True)
    await mac.finish()


@cocotb.test()
async def a_tile_of_one_beat(dut):
    """A slice that works on every second beat of a narrow matrix sees such tiles."""
    mac = Slice(dut, 4)
    await mac.reset()
    for _ in range(20):
        await mac.tile(4, 32, p_valid=0.8)
    await mac.finish()
