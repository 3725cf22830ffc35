"""top_candidates against the golden sort: orders, ties, ends, and nothing stalls that need not."""

import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge, Timer

from fpga.golden.head import top_candidates

LARGEST = (1 << 31) - 1
SIZE = 64


class Head:
    """Plays the ports of one HEAD after the other."""

    def __init__(self, dut, seed):
        self.dut, self.rng = dut, random.Random(seed)
        self.ports = len(dut.in_valid)
        self.stalls = self.cycles = self.done_pulses = 0

    async def reset(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        dut.rst.value, dut.start.value, dut.active.value = 1, 0, 0
        dut.in_valid.value = dut.port_done.value = dut.rd_index.value = 0
        dut.num_candidates.value = SIZE
        for _ in range(3):
            await FallingEdge(dut.clk)
        dut.rst.value = 0

    async def start(self, num_candidates, active=1):
        dut = self.dut
        dut.start.value, dut.active.value = 1, active
        dut.num_candidates.value = num_candidates
        await FallingEdge(dut.clk)
        dut.start.value, dut.num_candidates.value = 0, 0  # an operand of HEAD only
        self.stalls = self.cycles = self.done_pulses = 0

    def _drive(self, offers):
        dut = self.dut
        dut.in_valid.value = sum(1 << p for p, offer in enumerate(offers) if offer)
        dut.in_logit.value = sum(
            (offer[0] & 0xFFFFFFFF) << 32 * p for p, offer in enumerate(offers) if offer
        )
        dut.in_id.value = sum(offer[1] << 32 * p for p, offer in enumerate(offers) if offer)

    async def feed(self, queues, p_valid=1.0, *, last=True):
        """``queues``: (logit, id) pairs for each port; ``last``: port_done behind each."""
        dut, queues = self.dut, [list(queue) for queue in queues]
        offers, finished = [None] * self.ports, [False] * self.ports
        while not all(finished):
            assert self.cycles < 60_000, "a port waits forever"
            pulses = 0
            for p, queue in enumerate(queues):
                if offers[p] is None and queue and self.rng.random() < p_valid:
                    offers[p] = queue.pop(0)
                elif offers[p] is None and not queue and not finished[p]:
                    finished[p] = True
                    pulses |= 1 << p
            self._drive(offers)
            dut.port_done.value = pulses if last else 0
            await self._edge()
            assert self.done_pulses == 0 or all(finished), "done before the last port was"
            for p in range(self.ports):
                if offers[p] is not None:
                    if self.ready >> p & 1:
                        offers[p] = None
                    else:
                        self.stalls += 1
        dut.port_done.value = dut.in_valid.value = 0

    async def _edge(self):
        """Samples ready just before the rising edge, as a port does."""
        await Timer(4, "ns")
        await ReadOnly()
        self.ready = int(self.dut.in_ready.value)
        await RisingEdge(self.dut.clk)
        await FallingEdge(self.dut.clk)
        self.cycles += 1
        self.done_pulses += int(self.dut.done.value)

    async def wait_done(self):
        for _ in range(600):
            if self.done_pulses:
                break
            await self._edge()
        for _ in range(5):
            await self._edge()
        assert self.done_pulses == 1
        assert self.dut.settled.value == 1

    async def candidates(self):
        """[(logit, id)] through the read port."""
        dut, pairs = self.dut, []
        for index in range(int(dut.held.value)):
            dut.rd_index.value = index
            await FallingEdge(dut.clk)
            pairs.append((dut.rd_logit.value.to_signed(), int(dut.rd_id.value)))
        return pairs


def by_port(logits, ids, ports):
    """Rows of a tile of four belong to one port, tiles go round."""
    queues = [[] for _ in range(ports)]
    for row, pair in enumerate(zip(logits, ids, strict=True)):
        queues[row // 4 % ports].append((int(pair[0]), int(pair[1])))
    return queues


async def compare(head, logits, *, num_candidates=SIZE, ids=None, p_valid=1.0, order=1):
    """``order`` -1 sends every port's rows backwards, so that lower ids come late."""
    ids = np.arange(len(logits)) if ids is None else ids
    await head.start(num_candidates)
    queues = by_port(logits, ids, head.ports)
    await head.feed([queue[::order] for queue in queues], p_valid)
    await head.wait_done()
    best = top_candidates(np.array(logits, dtype=np.int64), num_candidates, np.array(ids))
    got = await head.candidates()
    assert got == [(int(x), int(i)) for x, i in zip(best.logit, best.target_id, strict=True)]


@cocotb.test()
async def random_logits(dut):
    head = Head(dut, 1)
    await head.reset()
    for count, spread, p_valid in ((400, 1 << 20, 0.6), (500, 30, 1.0), (300, LARGEST, 0.3)):
        logits = [head.rng.randint(-spread, spread) for _ in range(count)]
        ids = np.sort(head.rng.sample(range(1 << 24), count))
        await compare(head, logits, ids=ids, p_valid=p_valid)


@cocotb.test()
async def equal_logits_keep_the_lowest_ids(dut):
    head = Head(dut, 2)
    await head.reset()
    await compare(head, [5] * 200)
    await compare(head, [7] * 100 + [8] * 30 + [7] * 100)
    await compare(head, [7] * 90 + [8] * 10, order=-1)


@cocotb.test()
async def the_ends_of_the_range(dut):
    head = Head(dut, 3)
    await head.reset()
    corners = (-LARGEST, -LARGEST + 1, -1, 0, 1, LARGEST - 1, LARGEST)
    await compare(head, [head.rng.choice(corners) for _ in range(250)])
    top_ids = np.arange((1 << 24) - 80, 1 << 24)
    await compare(head, [-LARGEST] * 80, ids=top_ids)


@cocotb.test()
async def fewer_rows_than_candidates_and_fewer_candidates(dut):
    head = Head(dut, 4)
    await head.reset()
    for count, num_candidates in ((1, 64), (63, 64), (64, 64), (90, 1), (90, 10)):
        logits = [head.rng.randint(-9, 9) for _ in range(count)]
        await compare(head, logits, num_candidates=num_candidates)


@cocotb.test()
async def rising_logits_go_in_one_a_cycle(dut):
    head = Head(dut, 5)
    await head.reset()
    count = 240
    await compare(head, list(range(count)))
    assert head.cycles <= count + 30, f"{count} insertions took {head.cycles} cycles"


@cocotb.test()
async def hopeless_logits_never_wait(dut):
    head = Head(dut, 6)
    await head.reset()
    ports = head.ports
    good, bad = [100 + x for x in range(64)], [-x for x in range(100 * ports)]
    await head.start(SIZE)
    await head.feed(by_port(good, range(64), ports), last=False)
    for _ in range(2 * SIZE + 20):  # when all lies on one side of the tree
        await head._edge()
    assert head.dut.settled.value == 1
    head.stalls = head.cycles = 0
    await head.feed([[(x, 1000 + x + 100 * ports)] * 100 for x in bad[:ports]])
    assert head.stalls == 0, "a logit that cannot stay waited"
    assert head.cycles <= 102


@cocotb.test()
async def a_start_for_other_lanes_changes_nothing(dut):
    head = Head(dut, 7)
    await head.reset()
    await compare(head, list(range(70)))
    before = await head.candidates()
    await head.start(SIZE, active=0)
    dut.port_done.value = (1 << head.ports) - 1
    for _ in range(10):
        await head._edge()
        dut.port_done.value = 0
    assert head.done_pulses == 0
    assert await head.candidates() == before
