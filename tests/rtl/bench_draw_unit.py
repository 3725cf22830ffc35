"""draw_unit against the golden draw: temperatures, ties, ends of the range, many lanes, in time."""

import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from fpga.golden.draw import DrawKey, draw_top
from fpga.golden.head import Candidates
from hetero.core.noise import gumbel_noise

FRAC = 16
FIRST_LATENCY = 58
INV_TEMPERATURES = (0, 1, 3, 65536, 93623, 1 << 20, 1 << 24)


class Drawer:
    """Plays top_candidates, the lanes' parameters and a taker of beats."""

    def __init__(self, dut, seed):
        self.dut, self.rng = dut, random.Random(seed)
        self.lanes = len(dut.active)
        self.cycle = self.done_pulses = 0
        self.beats, self.times = [], []

    async def reset(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        dut.rst.value, dut.start.value, dut.out_ready.value = 1, 0, 0
        for _ in range(3):
            await FallingEdge(dut.clk)
        dut.rst.value = 0

    def key(self, inv_t=None):
        rng = self.rng
        inv_t = rng.choice(INV_TEMPERATURES) if inv_t is None else inv_t
        return DrawKey(rng.getrandbits(64), rng.getrandbits(16), rng.getrandbits(3), inv_t)

    async def draw(self, rows, logit_frac=FRAC, p_ready=1.0):
        """``rows``: (Candidates, DrawKey) or None for each lane. Returns beats as they come."""
        dut = self.dut
        self._set_parameters(rows)
        dut.logit_frac.value = logit_frac
        self.beats, self.times, self.cycle, self.done_pulses = [], [], 0, 0
        dut.start.value = 1
        await self._clock(rows, p_ready)
        dut.start.value = 0
        while not self.done_pulses:
            assert self.cycle < 4000, "never done"
            await self._clock(rows, p_ready)
        for _ in range(4):
            await self._clock(rows, p_ready)
        assert self.done_pulses == 1
        self._check(rows, logit_frac)

    def _set_parameters(self, rows):
        dut = self.dut
        seed = index = choice = inv_t = held = active = 0
        for lane, row in enumerate(rows):
            if row is None:
                continue
            candidates, key = row
            active |= 1 << lane
            seed |= key.seed << 64 * lane
            index |= key.output_index << 32 * lane
            choice |= key.choice_index << 32 * lane
            inv_t |= key.inv_t << 32 * lane
            held |= candidates.logit.size << 7 * lane
        dut.active.value, dut.held.value = active, held
        dut.lane_seed.value, dut.lane_output_index.value = seed, index
        dut.lane_choice.value, dut.lane_inv_t.value = choice, inv_t

    async def _clock(self, rows, p_ready):
        """One cycle; answers rd_index as it was before the edge."""
        dut = self.dut
        ready = self.rng.random() < p_ready
        dut.out_ready.value = ready
        taken = ready and dut.out_valid.value == 1
        if taken:
            assert self.done_pulses == 0
            self.beats.append((int(dut.out_lane.value), int(dut.out_beat.value)))
            self.times.append(self.cycle)
        index = int(dut.rd_index.value) if dut.rd_index.value.is_resolvable else 0
        await FallingEdge(dut.clk)
        self.cycle += 1
        logit = ids = 0
        for lane, row in enumerate(rows):
            if row is not None and index < row[0].logit.size:
                logit |= (int(row[0].logit[index]) & 0xFFFFFFFF) << 32 * lane
                ids |= int(row[0].target_id[index]) << 32 * lane
        dut.rd_logit.value, dut.rd_id.value = logit, ids
        self.done_pulses += int(dut.done.value)

    def _check(self, rows, logit_frac):
        wanted = [(lane, row) for lane, row in enumerate(rows) if row is not None]
        assert [lane for lane, _ in self.beats] == [lane for lane, _ in wanted]
        for (_, beat), (lane, (candidates, key)) in zip(self.beats, wanted, strict=True):
            best = draw_top(candidates, key, logit_frac)
            expected = _beat(best)
            got = [beat >> 32 * i & 0xFFFFFFFF for i in range(16)]
            assert got == expected, f"lane {lane}, {key}"


def _beat(best):
    def four(values):
        return [int(x) & 0xFFFFFFFF for x in values] + [0] * (4 - len(values))

    head = [int(best.target_id[0]), int(best.confidence[0]), len(best.target_id), 0]
    return head + four(best.target_id) + four(best.confidence) + four(best.logit)


def candidates_of(rng, logits, id_bits=24):
    """As top_candidates leaves them: falling logits, ties to the lower id."""
    ids = sorted(rng.sample(range(1 << id_bits), len(logits)))
    rng.shuffle(logits)
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], ids[i]))
    return Candidates(np.array([logits[i] for i in order]), np.array([ids[i] for i in order]))


def spread_logits(rng, size, spread):
    return [rng.randint(-spread, spread) for _ in range(size)]


@cocotb.test()
async def temperatures_and_sizes(dut):
    drawer = Drawer(dut, 1)
    await drawer.reset()
    rng = drawer.rng
    for inv_t in INV_TEMPERATURES:
        for spread in (1 << 10, 4 << FRAC, 40 << FRAC):
            size = rng.choice((1, 2, 3, 4, 5, 17, 64))
            row = (candidates_of(rng, spread_logits(rng, size, spread)), drawer.key(inv_t))
            await drawer.draw([row] + [None] * (drawer.lanes - 1))


@cocotb.test()
async def many_lanes_in_any_pattern(dut):
    drawer = Drawer(dut, 2)
    await drawer.reset()
    rng = drawer.rng
    for p_ready in (1.0, 0.05, 0.5, 1.0, 1.0, 1.0):
        rows = [None] * drawer.lanes
        for lane in range(drawer.lanes):
            if rng.random() < 0.8:
                logits = spread_logits(rng, rng.choice((1, 3, 11, 12, 13, 30, 64)), 6 << FRAC)
                rows[lane] = (candidates_of(rng, logits), drawer.key())
        await drawer.draw(rows, p_ready=p_ready)


@cocotb.test()
async def ties_go_to_the_lower_id(dut):
    drawer = Drawer(dut, 3)
    await drawer.reset()
    rng = drawer.rng
    for inv_t in (0, 1, 65536):
        row = (candidates_of(rng, [12345] * 64, id_bits=7), drawer.key(inv_t))
        await drawer.draw([row] + [None] * (drawer.lanes - 1))
    for _ in range(3):  # scores that only noise and rounding make equal: z is half of the logit
        key = drawer.key(65536)
        ids = np.array(rng.sample(range(1 << 20), 64))
        noise = gumbel_noise(key.seed, key.output_index, ids, choice_index=key.choice_index)
        logit = 2 * (1000 - noise.astype(np.int64)) - ids % 2
        order = np.lexsort((ids, -logit))
        row = (Candidates(logit[order], ids[order]), key)
        assert draw_top(*row, 21).target_id.tolist() == sorted(ids)[:4]
        await drawer.draw([row] + [None] * (drawer.lanes - 1), logit_frac=21)
    close = [40_000 - x // 2 for x in range(64)]  # scaled logits merge where logits do not
    row = (candidates_of(rng, close), drawer.key(0))
    await drawer.draw([row] + [None] * (drawer.lanes - 1), logit_frac=30)


@cocotb.test()
async def the_ends_of_the_range(dut):
    drawer = Drawer(dut, 4)
    await drawer.reset()
    rng = drawer.rng
    largest = (1 << 31) - 1
    for logit_frac, inv_t in ((16, 1 << 24), (16, 1), (24, 1 << 24), (40, 65536), (62, 1 << 24)):
        logits = [rng.choice((-largest, -1, 0, 1, largest)) for _ in range(40)]
        row = (candidates_of(rng, logits), drawer.key(inv_t))
        await drawer.draw([row] + [None] * (drawer.lanes - 1), logit_frac=logit_frac)
    for logit_frac in (0, 3, 4, 5):  # to the left, and not at all
        row = (candidates_of(rng, spread_logits(rng, 40, 500)), drawer.key(1 << 20))
        await drawer.draw([row] + [None] * (drawer.lanes - 1), logit_frac=logit_frac)


@cocotb.test()
async def seed_index_and_choice_reach_the_noise(dut):
    drawer = Drawer(dut, 5)
    await drawer.reset()
    flat = candidates_of(drawer.rng, [0] * 64)
    base = DrawKey(0x1234567890ABCDEF, 3, 0, 65536)
    keys = [base, base._replace(seed=base.seed ^ 1 << 63), base._replace(seed=base.seed ^ 1)]
    keys += [base._replace(output_index=0xFFFFFFFF), base._replace(choice_index=1)]
    for key in keys:
        await drawer.draw([(flat, key)] + [None] * (drawer.lanes - 1))


@cocotb.test()
async def a_lane_every_66_cycles(dut):
    drawer = Drawer(dut, 6)
    await drawer.reset()
    rng = drawer.rng
    rows = [
        (candidates_of(rng, spread_logits(rng, 64, 1 << FRAC)), drawer.key(65536))
        for _ in range(drawer.lanes)
    ]
    await drawer.draw(rows)
    assert drawer.times[0] <= FIRST_LATENCY + 64, drawer.times
    gaps = [b - a for a, b in zip(drawer.times, drawer.times[1:], strict=False)]
    assert all(gap <= 66 for gap in gaps), gaps
