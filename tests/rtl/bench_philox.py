"""philox: Random123's known answers, random requests, one a cycle, tags kept."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from hetero.core.noise import philox4x32

LATENCY = 30
ONES = 0xFFFFFFFF

# Random123's known-answer file, kat_vectors, philox4x32 with 10 rounds.
KNOWN = [
    ([0] * 4, [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([ONES] * 4, [ONES] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def packed(words):
    return sum(word << 32 * i for i, word in enumerate(words))


async def stream(dut, requests, p_valid, rng):
    """Sends (counter, key) requests; returns [(words, tag, cycles since sent)] in order."""
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    dut.rst.value, dut.in_valid.value = 1, 0
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    answers, sent, cycle = [], [], 0
    while len(answers) < len(requests):
        assert cycle < 20 * len(requests) + 100, "answers are missing"
        valid = len(sent) < len(requests) and rng.random() < p_valid
        dut.in_valid.value = valid
        if valid:
            counter, key = requests[len(sent)]
            dut.in_counter.value, dut.in_key.value = packed(counter), packed(key)
            dut.in_tag.value = len(sent) % 256
            sent.append(cycle)
        await FallingEdge(dut.clk)
        cycle += 1
        if dut.out_valid.value == 1:
            latency = cycle - sent[len(answers)]
            answers.append((int(dut.out_words.value), int(dut.out_tag.value), latency))
    dut.in_valid.value = 0
    await FallingEdge(dut.clk)
    assert dut.out_valid.value == 0, "an answer too many"
    return answers


def check(answers, expected):
    for number, (words, tag, latency) in enumerate(answers):
        assert (words, tag) == (packed(expected[number]), number % 256), number
        assert latency == LATENCY


@cocotb.test()
async def known_answers(dut):
    requests = [(counter, key) for counter, key, _ in KNOWN]
    check(await stream(dut, requests, 0.5, random.Random(1)), [words for _, _, words in KNOWN])


@cocotb.test()
async def random_requests_one_a_cycle_and_with_gaps(dut):
    rng = random.Random(2)
    for count, p_valid in ((100, 1.0), (60, 0.3)):
        requests = [
            ([rng.getrandbits(32) for _ in range(4)], [rng.getrandbits(32) for _ in range(2)])
            for _ in range(count)
        ]
        expected = [philox4x32([counter], (key[0], key[1]))[0] for counter, key in requests]
        answers = await stream(dut, requests, p_valid, rng)
        check(answers, [[int(word) for word in words] for words in expected])
