"""matrix_port on streams as the linker deals them, against the golden matmul, drain and head."""

import os
import random
from collections import deque

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, Timer

from fpga.golden.fixed import saturate32
from fpga.golden.matmul import accumulate, drain, folded
from fpga.golden.quantise import Quantised
from fpga.program import isa
from fpga.program.deal import deal_matrix
from fpga.program.layout import Int4Matrix, Int8Matrix
from fpga.program.link import encode_linked

PORTS = int(os.environ["BENCH_PORTS"])
STEPS = int(os.environ["BENCH_STEPS"])  # cycles of a slice for a beat
WORD_BITS = 16
READ_LATENCY = 2
BANK_WORDS = 64
OVERHEAD = 28  # cycles: start, first beat to a slice, last beat to done


def random_matrix(rng, bits, num_rows, width):
    mantissa = rng.integers(1 << 15, 1 << 16, num_rows).astype(np.uint16)
    if bits == 8:
        return Int8Matrix(rng.integers(-127, 128, (num_rows, width)).astype(np.int8), mantissa)
    quant = rng.integers(-8, 8, (num_rows, width)).astype(np.int8)
    scale = rng.integers(-127, 128, (num_rows, width // 32)).astype(np.int8)
    return Int4Matrix(quant, scale, mantissa)


def field(handle, lane, bits):
    """One lane's part of a flat port; an idle lane's may be unknown."""
    part = handle.value[bits * (lane + 1) - 1 : bits * lane]
    assert part.is_resolvable, f"{handle._name} of lane {lane} is unknown"
    return int(part)


def signed(word):
    return (word & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)


class Port:
    """Everything around one matrix_port: stream, activations, vector memory, takers of logits."""

    def __init__(self, dut, seed):
        self.dut, self.rng, self.chance = dut, np.random.default_rng(seed), random.Random(seed)
        self.lanes = len(dut.op_active)
        self.arrays = max(2, self.lanes)
        self.beats = deque()
        self.p_beat = self.p_ready = 1.0
        self.memory = np.zeros((self.lanes, BANK_WORDS, 4), dtype=np.int64)
        self.reads = deque([None] * READ_LATENCY)
        self.logits = [[] for _ in range(self.lanes)]
        self.done_pulses = self.cycles = self.shown = 0

    async def reset(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        dut.rst.value, dut.start.value, dut.matrix_count.value = 1, 0, 0
        dut.act_we.value = dut.op_word.value = dut.op_active.value = dut.op_dual.value = 0
        dut.logit_ready.value = dut.read_data.value = 0
        for _ in range(3):
            await FallingEdge(dut.clk)
        dut.rst.value = 0

    async def activate(self, active, width, dual):
        """New activations for the active lanes, written over the bus; returns Quantised [lane]."""
        dut, columns = self.dut, 4 * PORTS
        dut.op_active.value, dut.op_dual.value = active, dual
        quant = self.rng.integers(-127, 128, (self.lanes, width)).astype(np.int8)
        mantissa = self.rng.integers(1 << 15, 1 << 16, self.lanes)
        exponent = self.rng.integers(5, 45, self.lanes)
        filled = np.pad(quant, ((0, 0), (0, -width % (64 * max(1, columns // 64)))))
        for word in range(filled.shape[1] // columns):
            part = filled[:, columns * word : columns * (word + 1)].astype(np.int8).tobytes()
            dut.act_data.value = int.from_bytes(part, "little")
            dut.act_word.value = sum(word << WORD_BITS * lane for lane in range(self.lanes))
            dut.act_we.value = active
            await FallingEdge(dut.clk)
        dut.act_we.value = 0
        dut.act_mant.value = sum(int(m) << 16 * lane for lane, m in enumerate(mantissa))
        dut.act_exp.value = sum((int(e) & 0xFFFF) << 16 * lane for lane, e in enumerate(exponent))
        return Quantised(quant, mantissa.astype(np.int64), exponent.astype(np.int64))

    async def run(self, opcode, operands, stream, port):
        """One instruction from start to done."""
        dut = self.dut
        word = encode_linked(opcode, operands, sampled_only=False)
        dut.op_word.value = int.from_bytes(word, "little")
        dut.port_index.value = port
        raw = stream.tobytes()
        self.beats = deque(
            int.from_bytes(raw[i : i + 64], "little") for i in range(0, len(raw), 64)
        )
        self.logits = [[] for _ in range(self.lanes)]
        self.cycles = self.done_pulses = self.shown = 0
        limit = 200 + 40 * len(self.beats)
        dut.start.value = 1
        await self._clock()
        dut.start.value = 0
        while not self.done_pulses:
            assert self.cycles < limit, "never done"
            await self._clock()
        cycles = self.cycles
        assert not self.beats, f"{len(self.beats)} beats were not taken"
        for _ in range(30):
            await self._clock()
        assert self.done_pulses == 1
        return cycles

    async def _clock(self):
        """One cycle: offers beats, answers reads, takes writes and logits."""
        dut = self.dut
        more = sum(self.chance.random() < self.p_beat for _ in range(2))
        self.shown = min(max(self.shown, more), 2, len(self.beats))
        data = sum(self.beats[i] << 512 * i for i in range(self.shown))
        dut.matrix_count.value, dut.matrix_data.value = self.shown, data
        ready = sum((self.chance.random() < self.p_ready) << lane for lane in range(self.lanes))
        dut.logit_ready.value = ready
        answer = self.reads.popleft()
        dut.read_data.value = (
            self.chance.getrandbits(128 * self.lanes) if answer is None else answer
        )
        await Timer(3, "ns")
        await ReadOnly()
        take, valid = int(dut.matrix_take.value), int(dut.logit_valid.value)
        assert take <= self.shown, "takes beats that are not there"
        self._memory_cycle()
        for lane in range(self.lanes):
            if valid & ready & 1 << lane:
                value = signed(field(dut.logit, lane, 32))
                self.logits[lane].append((field(dut.logit_id, lane, 32), value))
        await FallingEdge(dut.clk)
        self.cycles += 1
        self.done_pulses += int(dut.done.value)
        for _ in range(take):
            self.beats.popleft()
        self.shown -= take

    def _memory_cycle(self):
        dut = self.dut
        reads, writes, answer = int(dut.read_en.value), int(dut.write_en.value), None
        for lane in range(self.lanes):
            if reads >> lane & 1:
                old = self.memory[lane, field(dut.read_word, lane, WORD_BITS)]
                packed = sum((int(x) & 0xFFFFFFFF) << 32 * i for i, x in enumerate(old))
                answer = (answer or 0) | packed << 128 * lane
            if writes >> lane & 1:
                data = field(dut.write_data, lane, 128)
                word = field(dut.write_word, lane, WORD_BITS)
                self.memory[lane, word] = [signed(data >> 32 * r) for r in range(4)]
        self.reads.append(answer)


def lanes_of(mask, lanes):
    return [lane for lane in range(lanes) if mask >> lane & 1]


def expected_rows(matrix, quantised, shift, port):
    """y of this port's rows, filler rows 0: int64 [lane, local tile, 4]."""
    acc_no = accumulate(folded(matrix), quantised.quant)
    y_no = drain(acc_no, matrix.mantissa_o, quantised, shift=shift)
    missing = -y_no.shape[1] % (4 * PORTS)
    return np.pad(y_no, ((0, 0), (0, missing))).reshape(y_no.shape[0], -1, PORTS, 4)[:, :, port]


async def matmul(bench, bits, num_rows, width, active, *, dual, add=False):
    rng, port = bench.rng, bench.chance.randrange(PORTS)
    matrix = random_matrix(rng, bits, num_rows, width)
    quantised = await bench.activate(active, width, dual)
    stream = deal_matrix(matrix, PORTS)[port]
    shift, out_word = int(rng.integers(-3, 12)), 5
    tiles = -(-num_rows // (4 * PORTS))
    operands = {
        "local_beat": 0,
        "beats": stream.size // 64,
        "tiles": tiles,
        "pairs": -(-width // 64) * (1 if bits == 4 else 2),
        "bits": bits,
        "shift": shift - 8,
        "out_word": out_word,
        "accumulate": int(add),
    }
    bench.memory = rng.integers(-(1 << 31) + 1, 1 << 31, bench.memory.shape)
    expected = bench.memory.copy()
    y = expected_rows(matrix, quantised, shift, port)
    for lane in lanes_of(active, bench.lanes):
        old = expected[lane, out_word : out_word + tiles]
        expected[lane, out_word : out_word + tiles] = saturate32(old + y[lane]) if add else y[lane]
    cycles = await bench.run(isa.MatMul.opcode, operands, stream, port)
    assert np.array_equal(bench.memory, expected), (bits, num_rows, width, active, dual)
    return cycles, stream.size // 64


async def head(bench, num_rows, width, active, *, dual, valid_rows, with_ids):
    rng, port = bench.rng, bench.chance.randrange(PORTS)
    matrix = random_matrix(rng, 8, num_rows, width)
    ids = np.sort(rng.choice(1 << 20, num_rows, replace=False)).astype(np.uint32)
    quantised = await bench.activate(active, width, dual)
    stream = deal_matrix(matrix, PORTS, ids if with_ids else None)[port]
    shift = int(rng.integers(0, 12))
    operands = {
        "local_beat": 0,
        "beats": stream.size // 64,
        "tiles": -(-num_rows // (4 * PORTS)),
        "pairs": -(-width // 64) * 2,
        "bits": 8,
        "shift": shift - 8,
        "valid_rows": valid_rows,
        "num_candidates": 64,
        "has_ids": int(with_ids),
    }
    before = bench.memory.copy()
    await bench.run(isa.Head.opcode, operands, stream, port)
    y_no = drain(
        accumulate(folded(matrix), quantised.quant), matrix.mantissa_o, quantised, shift=shift
    )
    mine = [row for row in range(valid_rows) if row // 4 % PORTS == port]
    for lane in range(bench.lanes):
        rows = mine if active >> lane & 1 else []
        named = [(int(ids[row]) if with_ids else row, int(y_no[lane, row])) for row in rows]
        assert bench.logits[lane] == named, f"lane {lane}"
    assert np.array_equal(bench.memory, before), "a HEAD writes no vector"


def rates(bench):
    """(active mask, dual) pairs as the sequencer gives them: rows of a pass are the low lanes."""
    for rows in range(1, bench.lanes + 1):
        yield (1 << rows) - 1, int(2 * rows <= bench.arrays)


@cocotb.test()
async def shapes_and_rates(dut):
    bench = Port(dut, 1)
    await bench.reset()
    for active, dual in rates(bench):
        for bits in (4, 8):
            for tiles, width in ((1, 64), (3, 96), (8, 128), (11, 320)):
                num_rows = 4 * PORTS * tiles - bench.chance.choice((0, 1, 5, 4 * PORTS - 1))
                await matmul(bench, bits, max(num_rows, 1), width, active, dual=dual)


@cocotb.test()
async def stalls_anywhere(dut):
    bench = Port(dut, 2)
    await bench.reset()
    for p_beat in (0.2, 0.5, 0.8):
        bench.p_beat = p_beat
        for active, dual in rates(bench):
            bits, width = bench.chance.choice((4, 8)), 64 * bench.chance.randint(1, 3)
            await matmul(bench, bits, 4 * PORTS * 9, width, active, dual=dual, add=True)


@cocotb.test()
async def adds_to_what_is_there(dut):
    bench = Port(dut, 3)
    await bench.reset()
    for active, dual in rates(bench):
        await matmul(bench, 4, 4 * PORTS * 10, 64, active, dual=dual, add=True)
    sparse = (1 << bench.lanes) - 2 or 1  # sampled lanes only: the others stand still
    await matmul(bench, 4, 4 * PORTS * 4, 128, sparse, dual=0 if bench.lanes > 1 else 1)


@cocotb.test()
async def heads_with_and_without_ids(dut):
    bench = Port(dut, 4)
    await bench.reset()
    for p_ready in (1.0, 0.15, 0.5):
        bench.p_ready = p_ready
        for active, dual in rates(bench):
            for with_ids in (False, True):
                num_rows = 4 * PORTS * 10
                valid = num_rows - bench.chance.randrange(1, 4 * PORTS + 3)
                await head(
                    bench, num_rows, 64, active, dual=dual, valid_rows=valid, with_ids=with_ids
                )


@cocotb.test()
async def a_beat_a_cycle_or_two(dut):
    bench = Port(dut, 5)
    await bench.reset()
    for active, dual in rates(bench):
        for bits in (4, 8):
            cycles, beats = await matmul(bench, bits, 4 * PORTS * 16, 512, active, dual=dual)
            weights = 16 * 8 * 2 * (1 if bits == 4 else 2)
            scales = weights // 16 if bits == 4 else 0
            # A scale beat goes alone at the double rate and beside a weight beat at the single one.
            least = STEPS * weights // 2 + scales if dual else STEPS * weights
            assert cycles <= least + 4 + OVERHEAD, (
                f"{beats} beats took {cycles} cycles, not {least}"
            )
