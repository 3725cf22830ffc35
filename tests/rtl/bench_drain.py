"""drain by itself: corner sums, mantissas, exponents and shifts, queue full, takers that wait."""

import os
import random
from collections import deque

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, Timer

from fpga.golden.fixed import INT32_MAX, saturate32
from fpga.golden.matmul import drain
from fpga.golden.quantise import Quantised

PORTS = int(os.environ["BENCH_PORTS"])
QUEUE = 8
READ_LATENCY = 2
LATENCY = 14  # of a tile that waits for nobody, to its write
SUMS = (-INT32_MAX, INT32_MAX, -1, 0, 1, 127, -128, 1 << 30)
MANTISSAS = (0, 1, 1 << 15, (1 << 16) - 1)


def words(values, bits):
    return sum((int(value) & (1 << bits) - 1) << bits * i for i, value in enumerate(values))


def signed(word):
    return (word & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)


class Drain:
    """Tiles in, one instruction's operands, its vector memory and its taker of logits."""

    def __init__(self, dut, seed):
        self.dut, self.chance = dut, random.Random(seed)
        self.memory = {}
        self.reads = deque([None] * READ_LATENCY)
        self.logits, self.writes = [], []
        self.cycle, self.p_tile, self.p_ready = 0, 1.0, 1.0

    async def reset(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        dut.rst.value, dut.tile_valid.value, dut.logit_ready.value = 1, 0, 0
        for _ in range(3):
            await FallingEdge(dut.clk)
        dut.rst.value = 0

    def operands(self, *, head=0, add=0, out_word=3, valid_rows=0, with_ids=0):
        """Random activation scale and shift; returns (scale, shift, port)."""
        dut, chance = self.dut, self.chance
        mantissa = chance.choice((1 << 15, (1 << 16) - 1, chance.randrange(1 << 15, 1 << 16)))
        exponent = chance.randrange(-30, 31)
        wanted = chance.choice((-12, -7, -1, 0, 1, 24, 40, 55, 62, 80))  # the clamp's both sides
        shift, port = wanted - exponent, chance.randrange(PORTS)
        dut.head.value, dut.accumulate.value, dut.has_ids.value = head, add, with_ids
        dut.shift.value, dut.out_word.value = shift & 0xFFFFFFFF, out_word
        dut.valid_rows.value, dut.port_index.value = valid_rows, port
        dut.act_mant.value, dut.act_exp.value = mantissa, exponent
        scale = Quantised(np.zeros((1, 1)), np.array([mantissa]), np.array([exponent]))
        return scale, shift + 8, port

    def tile(self):
        sums = [
            self.chance.choice((*SUMS, signed(self.chance.getrandbits(32)) or 1)) for _ in range(4)
        ]
        sums = [max(value, -INT32_MAX) for value in sums]
        mants = [self.chance.choice((*MANTISSAS, self.chance.getrandbits(16))) for _ in range(4)]
        return sums, mants, [self.chance.getrandbits(32) for _ in range(4)]

    async def send(self, tiles):
        """All tiles, never more than fit; waits until the drain is idle."""
        dut, sent = self.dut, 0
        while sent < len(tiles) or int(dut.busy.value):
            assert self.cycle < 100_000
            room = int(dut.level.value) < QUEUE
            offer = sent < len(tiles) and room and self.chance.random() < self.p_tile
            dut.tile_valid.value = int(offer)
            if offer:
                sums, mants, ids = tiles[sent]
                dut.tile_sums.value, dut.tile_mants.value = words(sums, 32), words(mants, 16)
                dut.tile_ids.value, dut.tile_index.value = words(ids, 32), sent
                sent += 1
            await self.clock()
        dut.tile_valid.value = 0

    async def clock(self):
        dut = self.dut
        ready = self.chance.random() < self.p_ready
        dut.logit_ready.value = int(ready)
        answer = self.reads.popleft()
        dut.read_data.value = self.chance.getrandbits(128) if answer is None else answer
        await Timer(3, "ns")
        await ReadOnly()
        if int(dut.read_en.value):
            self.reads.append(words(self.memory[int(dut.read_word.value)], 32))
        else:
            self.reads.append(None)
        if int(dut.write_en.value):
            data = int(dut.write_data.value)
            self.writes.append((self.cycle, int(dut.write_word.value)))
            self.memory[int(dut.write_word.value)] = [signed(data >> 32 * r) for r in range(4)]
        if ready and int(dut.logit_valid.value):
            self.logits.append((int(dut.logit_id.value), signed(int(dut.logit.value))))
        await FallingEdge(dut.clk)
        self.cycle += 1


def outputs(tiles, scale, shift):
    """y of every row: int64 [tile, 4]."""
    sums = np.array([tile[0] for tile in tiles], dtype=np.int64).reshape(1, -1)
    mants = np.array([tile[1] for tile in tiles], dtype=np.uint16).reshape(-1)
    return drain(sums, mants, scale, shift=shift).reshape(-1, 4)


async def vectors(bench, num_tiles, *, add):
    scale, shift, _ = bench.operands(add=add, out_word=3)
    tiles = [bench.tile() for _ in range(num_tiles)]
    old = np.array(
        [
            [bench.chance.choice((-INT32_MAX, INT32_MAX, 0, bench.chance.getrandbits(30)))] * 4
            for _ in tiles
        ]
    )
    bench.memory = {3 + t: row.tolist() for t, row in enumerate(old)}
    y = outputs(tiles, scale, shift)
    wanted = saturate32(old + y) if add else y
    await bench.send(tiles)
    assert bench.memory == {3 + t: row.tolist() for t, row in enumerate(wanted)}


@cocotb.test()
async def vectors_with_and_without_old_words(dut):
    bench = Drain(dut, 1)
    await bench.reset()
    for number in range(24):
        bench.p_tile = bench.chance.choice((0.1, 0.4, 1.0))
        await vectors(bench, bench.chance.randint(1, 12), add=number % 2)
    assert not bench.logits, "a MATMUL gives no logit"


@cocotb.test()
async def logits_to_slow_takers(dut):
    bench = Drain(dut, 2)
    await bench.reset()
    for number in range(20):
        bench.p_ready = bench.chance.choice((0.05, 0.5, 1.0))
        num_tiles, with_ids = bench.chance.randint(1, 12), number % 2
        valid_rows = bench.chance.randint(0, 4 * PORTS * num_tiles)
        scale, shift, port = bench.operands(head=1, valid_rows=valid_rows, with_ids=with_ids)
        tiles = [bench.tile() for _ in range(num_tiles)]
        y, wanted = outputs(tiles, scale, shift), []
        for t, (_, _, ids) in enumerate(tiles):
            for r in range(4):
                row = 4 * (t * PORTS + port) + r
                if row < valid_rows:
                    wanted.append((ids[r] if with_ids else row, int(y[t, r])))
        bench.logits = []
        await bench.send(tiles)
        assert bench.logits == wanted
    assert not bench.writes, "a HEAD writes no vector"


@cocotb.test()
async def a_row_a_cycle(dut):
    bench = Drain(dut, 3)
    await bench.reset()
    begin = bench.cycle
    await vectors(bench, 16, add=1)
    assert [cycle - begin for cycle, _ in bench.writes] == [LATENCY + 4 * t for t in range(16)]
