"""gumbel: corner words of both tails and every knot's bit length, against the golden function."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from hetero.core.noise import gumbel_from_words

LATENCY = 8


def corner_words():
    """Each power of two and its neighbours, from both ends."""
    distances = {0, 1, 2, 3, (1 << 31) - 1}
    for bit in range(1, 31):
        distances |= {(1 << bit) - 1, 1 << bit, (1 << bit) + 1}
    return [*distances, *(0xFFFFFFFF - x for x in distances)]


def random_words(rng, count):
    """Uniform in magnitude, so that the tails are met."""
    words = [rng.getrandbits(rng.randrange(1, 32)) for _ in range(count)]
    return [word ^ (0xFFFFFFFF * rng.getrandbits(1)) for word in words]


async def stream(dut, words, p_valid, rng):
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    dut.rst.value, dut.in_valid.value = 1, 0
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    expected = gumbel_from_words(words)
    sent, got, cycle = [], 0, 0
    while got < len(words):
        assert cycle < 20 * len(words) + 100, "answers are missing"
        valid = len(sent) < len(words) and rng.random() < p_valid
        dut.in_valid.value = valid
        if valid:
            dut.in_word.value, dut.in_tag.value = words[len(sent)], len(sent) % 256
            sent.append(cycle)
        await FallingEdge(dut.clk)
        cycle += 1
        if dut.out_valid.value == 1:
            value = dut.out_gumbel.value.to_signed()
            assert value == expected[got], f"word {words[got]:#x}: {value}, not {expected[got]}"
            assert int(dut.out_tag.value) == got % 256
            assert cycle - sent[got] == LATENCY
            got += 1


@cocotb.test()
async def corners_one_a_cycle(dut):
    await stream(dut, corner_words(), 1.0, random.Random(1))


@cocotb.test()
async def random_words_with_gaps(dut):
    rng = random.Random(2)
    await stream(dut, random_words(rng, 600), 0.7, rng)
