"""NORM_QUANT, QUANT and SILU_GATE of all lanes against the golden functions, memory included."""

import os
import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge, with_timeout

from fpga.golden.norm import norm_quant
from fpga.golden.quantise import quantise
from fpga.golden.silu_gate import silu_gate

INT32 = (1 << 31) - 1
NORM_QUANT, QUANT, SILU_GATE = 2, 3, 7
RUNS = int(os.environ.get("RUNS", "9"))
INPUTS = ["op_word", "op_use_absmax", "absmax_clear", "active", "start", "x_en", "x_mask"]
INPUTS += ["x_word", "x_data", "d_we", "d_word", "d_data", "d_read_en", "d_read_word"]
INPUTS += ["g_valid", "g_data", "g_end"]


def packed(values, bits):
    mask = (1 << bits) - 1
    return sum((int(value) & mask) << bits * i for i, value in enumerate(values))


def unpacked(number, bits, count):
    mask, sign = (1 << bits) - 1, 1 << (bits - 1)
    return [((number >> bits * i & mask) ^ sign) - sign for i in range(count)]


def field(handle, bits, index):
    """A part of a wide signal; the rest may be undefined."""
    text = str(handle.value)
    end = len(text) - bits * index
    return int(text[end - bits : end], 2)


def corner(rng, kind, width):
    """A vector of the kinds that break scales."""
    if kind == 0:
        return np.zeros(width, dtype=np.int64)
    if kind == 1:
        return np.array([rng.choice([-INT32, INT32]) for _ in range(width)], dtype=np.int64)
    if kind == 2:
        return np.full(width, rng.choice([1, -1, 255, -65536, INT32]), dtype=np.int64)
    bits = rng.randint(2, 31)
    values = np.array([rng.getrandbits(bits) - (1 << bits - 1) for _ in range(width)])
    if kind == 3:  # a massive activation
        values[rng.randrange(width)] = rng.choice([-INT32, INT32])
    return values.astype(np.int64)


class Lanes:
    """The bench's view of the device: one call an access or instruction."""

    def __init__(self, dut, rng):
        self.dut, self.rng = dut, rng
        self.ports, self.lanes = int(dut.PORTS.value), int(dut.LANES.value)
        self.vec = 4 * self.ports
        self.gammas = [[] for _ in range(self.ports)]
        self.acts = [{} for _ in range(self.lanes)]

    async def begin(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
        for name in INPUTS:
            getattr(dut, name).value = 0
        dut.rst.value = 1
        for _ in range(4):
            await FallingEdge(dut.clk)
        dut.rst.value = 0
        cocotb.start_soon(self._feed_gammas())
        cocotb.start_soon(self._watch_activations())

    def words_of(self, width):
        return -(-width // self.vec)

    async def idle(self, cycles):
        for _ in range(cycles):
            await FallingEdge(self.dut.clk)

    async def clear_absmax(self):
        self.dut.absmax_clear.value = 1
        await self.idle(1)
        self.dut.absmax_clear.value = 0

    async def store(self, vectors, word, *, filler):
        """Word after word, by drains or by the other writer; ``filler`` beyond the width."""
        dut = self.dut
        width = len(vectors[0])
        for index in range(self.words_of(width)):
            for lane, vector in enumerate(vectors):
                part = vector[index * self.vec : (index + 1) * self.vec]
                row = [*part, *([filler] * (self.vec - len(part)))]
                by_drain = self.rng.random() < 0.5
                if by_drain:
                    dut.d_we.value = ((1 << self.ports) - 1) << lane * self.ports
                    dut.d_word.value = packed([word + index] * self.ports, 16)
                    dut.d_data.value = packed(row, 32)
                else:
                    dut.x_en.value, dut.x_mask.value = 1 << lane, (1 << self.ports) - 1
                    dut.x_word.value, dut.x_data.value = word + index, packed(row, 32)
                await self.idle(1)
                dut.d_we.value = dut.x_en.value = 0
        await self.idle(self.rng.choice([2, 2, 5]))

    async def load(self, word, count, *, lane):
        """int32 of whole words, through the drains' read port."""
        dut, values = self.dut, []
        for index in range(self.words_of(count)):
            dut.d_read_en.value = (1 << self.ports) - 1
            dut.d_read_word.value = packed([word + index] * self.ports, 16)
            await self.idle(1)
            dut.d_read_en.value = 0
            await self.idle(1)
            values += unpacked(field(dut.a_data, self.vec * 32, lane), 32, self.vec)
        return np.array(values)

    def expect_gamma(self, gamma):
        """Queue a norm's weights on every port."""
        words = self.words_of(len(gamma))
        filled = np.full(-(-words // 8) * 8 * self.vec, 0x5A5A, dtype=np.int64)
        filled[: len(gamma)] = gamma
        tiles = filled.reshape(-1, 8, self.ports, 4)  # beat, local tile, port, row
        for port in range(self.ports):
            beats = [packed(beat.ravel(), 16) for beat in tiles[:, :, port]]
            self.gammas[port] += [(beat, i == len(beats) - 1) for i, beat in enumerate(beats)]

    async def _feed_gammas(self):
        dut = self.dut
        offered = [False] * self.ports
        while True:
            await FallingEdge(dut.clk)
            for port, queue in enumerate(self.gammas):
                offered[port] = offered[port] or (bool(queue) and self.rng.random() < 0.6)
            heads = [queue[0] if queue else (0, False) for queue in self.gammas]
            dut.g_valid.value = packed(offered, 1)
            dut.g_data.value = packed([beat for beat, _ in heads], 512)
            dut.g_end.value = packed([end for _, end in heads], 1)
            await RisingEdge(dut.clk)
            ready = int(dut.g_ready.value)
            for port in range(self.ports):
                if offered[port] and ready >> port & 1:
                    self.gammas[port].pop(0)
                    offered[port] = False

    async def _watch_activations(self):
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            valid = dut.act_we.value
            if not valid.is_resolvable or not int(valid):
                continue
            for lane in range(self.lanes):
                if int(valid) >> lane & 1:
                    word = field(dut.act_word, 16, lane)
                    data = field(dut.act_data, self.vec * 8, lane)
                    assert word not in self.acts[lane], "an activation word came twice"
                    self.acts[lane][word] = unpacked(data, 8, self.vec)

    async def run(self, *operands, active, use_absmax=False):
        """Cycles from start to done, which all active lanes give in the same cycle."""
        dut = self.dut
        dut.op_word.value = packed(operands, 32)
        dut.op_use_absmax.value, dut.active.value, dut.start.value = int(use_absmax), active, 1
        for acts in self.acts:
            acts.clear()
        await self.idle(1)
        dut.start.value, cycles = 0, 1
        while not int(dut.done.value):
            await self.idle(1)
            cycles += 1
            assert cycles < 3000, "never done"
        assert int(dut.done.value) == active, "lanes out of step"
        await self.idle(1)
        assert int(dut.done.value) == 0
        return cycles

    def check_activation(self, lane, want):
        got = [value for word in sorted(self.acts[lane]) for value in self.acts[lane][word]]
        assert len(got) == self.words_of(len(want.quant)) * self.vec
        assert got[: len(want.quant)] == want.quant.tolist()
        assert not any(got[len(want.quant) :]), "elements beyond the width are not zero"
        assert field(self.dut.act_mant, 16, lane) == int(want.mantissa)
        assert unpacked(field(self.dut.act_exp, 16, lane), 16, 1)[0] == int(want.exponent)


def widths(lanes, rng):
    """Not always whole words."""
    return rng.choice([32, 96, 160, *(rng.randint(1, 160) for _ in range(5))])


def some_lanes(lanes, rng):
    return rng.choice([(1 << lanes.lanes) - 1, rng.randrange(1, 1 << lanes.lanes)])


async def device(dut):
    rng = random.Random(cocotb.RANDOM_SEED)
    lanes = Lanes(dut, rng)
    await lanes.begin()
    return lanes, rng


async def put(lanes, rng, kind, *, width, word, known):
    """Vectors of all lanes; with ``known`` the memories' absmax is that of exactly them."""
    vectors = [corner(rng, kind, width) for _ in range(lanes.lanes)]
    await lanes.clear_absmax()
    await lanes.store(vectors, word, filler=0 if known else rng.choice([INT32, -INT32, -7]))
    if not known:
        await lanes.store([corner(rng, 1, 32)] * lanes.lanes, 200, filler=0)
    return vectors


@cocotb.test()
async def quant(dut):
    lanes, rng = await device(dut)
    for run in range(RUNS):
        known, active = bool(run & 1), some_lanes(lanes, rng)
        width = widths(lanes, rng) if known else rng.randrange(1, 160, 2)
        vectors = await put(lanes, rng, run % 5, width=width, word=3, known=known)
        words, frac = lanes.words_of(width), rng.choice([16, rng.randint(-8, 40)])
        cycles = await lanes.run(QUANT, 3, words, width, frac, active=active, use_absmax=known)
        assert cycles <= words * (2 - known) + (24 if known else 36)
        for lane in range(lanes.lanes):
            if active >> lane & 1:
                lanes.check_activation(lane, quantise(vectors[lane], frac))
            else:
                assert not lanes.acts[lane]


@cocotb.test()
async def norm(dut):
    """Weights of two norms come ahead, those of a third wait until a half is free."""
    lanes, rng = await device(dut)
    plans = []
    for run in range(RUNS):
        width = widths(lanes, rng)
        gamma = np.array(
            [rng.choice([-32768, 32767, rng.randint(-32768, 32767)]) for _ in range(width)]
        )
        lanes.expect_gamma(gamma)
        plans.append((run % 5, width, gamma.astype(np.int16)))
    for kind, width, gamma in plans:
        known, active = rng.random() < 0.5, some_lanes(lanes, rng)
        vectors = await put(lanes, rng, kind, width=width, word=5, known=known)
        words, shift = lanes.words_of(width), rng.randint(-3, 20)
        eps = rng.choice([0, 1, rng.getrandbits(32)])
        operands = (NORM_QUANT, 5, words, width, 0, 0, shift, eps)
        await lanes.run(*operands, active=active, use_absmax=known)
        for lane in range(lanes.lanes):
            if active >> lane & 1:
                want = norm_quant(vectors[lane], gamma, gamma_shift=shift, eps_q=eps)
                lanes.check_activation(lane, want)


@cocotb.test()
async def silu(dut):
    lanes, rng = await device(dut)
    for run in range(RUNS):
        width, active = widths(lanes, rng), some_lanes(lanes, rng)
        words = lanes.words_of(width)
        gates = await put(lanes, rng, run % 5, width=width, word=0, known=False)
        ups = await put(lanes, rng, rng.randrange(1, 5), width=width, word=44, known=False)
        if run % 2:  # the range where the sigmoid bends
            gates = [np.array([rng.randint(-(9 << 16), 9 << 16) for _ in gate]) for gate in gates]
            await lanes.store(gates, 0, filler=77)
        await lanes.clear_absmax()
        out_frac, out = rng.choice([16, rng.randint(4, 32)]), rng.choice([0, 88])
        out = min(out, 88) if lanes.ports == 1 else 0
        cycles = await lanes.run(SILU_GATE, 0, 44, words, width, out, out_frac, active=active)
        assert cycles <= words + 20
        await lanes.idle(3)
        await with_timeout(settled(dut), 1000, "ns")
        for lane in range(lanes.lanes):
            if active >> lane & 1:
                want = silu_gate(gates[lane], ups[lane], out_frac=out_frac)
                got = await lanes.load(out, width, lane=lane)
                assert got[:width].tolist() == want.tolist()
                assert not got[width:].any()
                assert field(dut.absmax, 31, lane) == int(np.abs(want).max()), (
                    "absmax of the written vector"
                )


async def settled(dut):
    while int(dut.absmax_ready.value) != (1 << int(dut.LANES.value)) - 1:
        await FallingEdge(dut.clk)
