"""lane_memory against an array: both kinds of writes and reads, masks, the running maximum."""

import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

CYCLES = 720
PHASE = 48
"""Cycles of writing and then of reading."""
INT32 = (1 << 31) - 1
INPUTS = ["a_en", "a_word", "b_en", "b_word", "d_read_en", "d_read_word", "d_we", "d_word"]
INPUTS += ["d_data", "w_en", "w_mask", "w_word", "w_data", "absmax_clear"]


def packed(values, bits):
    mask = (1 << bits) - 1
    return sum((int(value) & mask) << bits * i for i, value in enumerate(values))


def random_bank(rng):
    bits = rng.randint(2, 31)
    value = [rng.getrandbits(bits) - (1 << bits - 1) for _ in range(4)]
    return [rng.choice([-INT32, INT32]), *value[1:]] if rng.random() < 0.05 else value


def drive_writes(dut, rng, words, memory):
    """Applies this cycle's writes to the model; returns the largest magnitude written."""
    ports = len(memory)
    drained = [rng.random() < 0.25 for _ in range(ports)]
    wide = [not drain and rng.random() < 0.5 for drain in drained]
    wide = wide if rng.random() < 0.5 else [False] * ports
    at, word = [rng.randrange(words) for _ in range(ports)], rng.randrange(words)
    rows = [random_bank(rng) for _ in range(ports)]
    dut.d_we.value, dut.d_word.value = packed(drained, 1), packed(at, 16)
    dut.d_data.value = dut.w_data.value = packed([packed(row, 32) for row in rows], 128)
    dut.w_en.value, dut.w_mask.value, dut.w_word.value = int(any(wide)), packed(wide, 1), word
    if not any(wide):  # an idle writer's mask means nothing
        dut.w_mask.value = (1 << ports) - 1
    largest = 0
    for port, row in enumerate(rows):
        if drained[port] or wide[port]:
            memory[port, at[port] if drained[port] else word] = row
            largest = max(largest, *map(abs, row))
    return largest


def drive_reads(dut, rng, words, memory):
    """What a_data and b_data must show two cycles later; None: nothing was asked."""
    ports = len(memory)
    by_bank = rng.random() < 0.5
    at, word, other = (
        [rng.randrange(words) for _ in range(ports)],
        rng.randrange(words),
        rng.randrange(words),
    )
    dut.a_en.value, dut.a_word.value = int(not by_bank), word
    dut.d_read_en.value = (1 << ports) - 1 if by_bank else 0
    dut.d_read_word.value = packed(at, 16)
    dut.b_en.value, dut.b_word.value = 1, other
    a = [memory[port, at[port] if by_bank else word] for port in range(ports)]
    return packed(np.ravel(a), 32), packed(np.ravel(memory[:, other]), 32)


@cocotb.test()
async def memory(dut):
    rng = random.Random(cocotb.RANDOM_SEED)
    ports, words = int(dut.PORTS.value), int(dut.BANK_WORDS.value)
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    for name in INPUTS:
        getattr(dut, name).value = 0
    dut.rst.value = 1
    for _ in range(4):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    for word in range(words):  # no undefined words
        dut.w_en.value, dut.w_mask.value, dut.w_word.value = 1, (1 << ports) - 1, word
        await FallingEdge(dut.clk)
    dut.w_en.value = 0
    model, largest, expected, answers = np.zeros((ports, words, 4), dtype=np.int64), 0, {}, 0
    for cycle in range(CYCLES):
        clear = rng.random() < 0.03
        dut.absmax_clear.value = int(clear)
        largest = 0 if clear else largest
        phase = cycle % PHASE
        if phase < PHASE // 2:
            largest = max(largest, drive_writes(dut, rng, words, model))
        else:
            dut.d_we.value = dut.w_en.value = 0
        if phase >= PHASE // 2 + 1:  # a write is visible two cycles later
            expected[cycle + 2] = drive_reads(dut, rng, words, model)
        else:
            dut.a_en.value = dut.d_read_en.value = dut.b_en.value = 0
        await FallingEdge(dut.clk)
        if cycle + 1 in expected:
            a, b = expected.pop(cycle + 1)
            assert int(dut.a_data.value) == a
            assert int(dut.b_data.value) == b
        if int(dut.absmax_ready.value):
            answers += 1
            assert int(dut.absmax.value) == largest
    assert answers > CYCLES // 5, "absmax hardly ever ready"
