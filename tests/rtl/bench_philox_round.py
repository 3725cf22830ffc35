"""philox_round: one round against the loop body's law; stands still without `enable`."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from hetero.core.noise import PHILOX_M0, PHILOX_M1, PHILOX_W0, PHILOX_W1

MASK = 0xFFFFFFFF
CORNERS = (0, 1, 0xFFFF, 0x10000, 0x80000000, MASK)


def expected(words, key):
    product_0, product_1 = words[0] * PHILOX_M0, words[2] * PHILOX_M1
    out = [
        (product_1 >> 32) ^ words[1] ^ key[0],
        product_1 & MASK,
        (product_0 >> 32) ^ words[3] ^ key[1],
        product_0 & MASK,
    ]
    return out, [(key[0] + PHILOX_W0) & MASK, (key[1] + PHILOX_W1) & MASK]


def packed(words):
    return sum(word << 32 * i for i, word in enumerate(words))


@cocotb.test()
async def rounds_with_pauses(dut):
    rng = random.Random(3)
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    under_way = []
    for _ in range(300):
        words, key = (
            [rng.choice((*CORNERS, rng.getrandbits(32))) for _ in range(size)] for size in (4, 2)
        )
        await FallingEdge(dut.clk)
        if len(under_way) == 3:
            out, out_key = under_way[0]
            assert int(dut.out_counter.value) == packed(out)
            assert int(dut.out_key.value) == packed(out_key)
        enable = rng.random() < 0.7
        dut.enable.value = enable
        dut.in_counter.value, dut.in_key.value = packed(words), packed(key)
        if enable:
            under_way = [*under_way, expected(words, key)][-3:]
