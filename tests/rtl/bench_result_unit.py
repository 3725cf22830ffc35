"""result_unit: every byte of a result buffer as the driver's encoder has it, then `published`."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer

from fpga.driver.buffers import (
    RESULT_HEADER_BYTES,
    CardLimits,
    DraftedToken,
    LaneOutcome,
    Result,
    ResultHeader,
    TopCandidate,
    encode_result,
)
from fpga.program import isa, tables

BEAT = 64
ADDRESS = 0x1_2345_6000


class Memory:
    """Takes write requests with stalls and answers them late."""

    def __init__(self, dut, seed):
        self.dut, self.rng = dut, random.Random(seed)
        self.data, self.open, self.p_ready = {}, [], 1.0
        self.published = self.cycle = 0
        self.takes_draw = False

    async def clock(self):
        dut = self.dut
        ready = self.rng.random() < self.p_ready
        dut.w_ready.value = ready
        await Timer(2, "ns")
        self.takes_draw = dut.draw_ready.value == 1
        self.open = [due for due in self.open if due > self.cycle]
        if ready and dut.w_valid.value == 1:
            assert int(dut.w_strobe.value) == (1 << BEAT) - 1
            self.data[int(dut.w_addr.value)] = int(dut.w_data.value).to_bytes(BEAT, "little")
            self.open.append(self.cycle + 1 + self.rng.randrange(12))
        dut.writes_idle.value = not self.open
        await FallingEdge(dut.clk)
        self.cycle += 1
        if dut.published.value == 1:
            assert not self.open, "published before memory answered"
            self.published += 1


def random_result(rng, lanes, max_tokens):
    def token():
        top = [
            TopCandidate(rng.getrandbits(24), rng.getrandbits(8), rng.randint(-(1 << 31), 1 << 30))
            for _ in range(rng.randint(1, 4))
        ]
        return DraftedToken(tuple(top))

    outcomes = tuple(
        LaneOutcome(
            slot=rng.getrandbits(8),
            tokens=tuple(token() for _ in range(rng.randint(0, max_tokens))),
        )
        for _ in range(lanes)
    )
    header = ResultHeader(
        sequence=rng.getrandbits(32),
        num_lanes=lanes,
        cycles=rng.getrandbits(60),
        beats_read=rng.getrandbits(50),
        isa_version=isa.ISA_VERSION,
        arithmetic_version=tables.ARITHMETIC_VERSION,
        artefact_sha256=rng.randbytes(32),
        passes=rng.getrandbits(16),
        tokens_read=rng.getrandbits(16),
    )
    return Result(header=header, lanes=outcomes)


def set_header(dut, header, outcomes):
    dut.status.value, dut.detail.value = header.status, header.detail
    dut.sequence_number.value, dut.num_lanes.value = header.sequence, header.num_lanes
    dut.cycles.value, dut.beats_read.value = header.cycles, header.beats_read
    dut.artefact_sha.value = int.from_bytes(header.artefact_sha256, "little")
    dut.passes.value, dut.tokens_read.value = header.passes, header.tokens_read
    dut.lane_slot.value = sum(lane.slot << 16 * i for i, lane in enumerate(outcomes))
    dut.lane_count.value = sum(len(lane.tokens) << 16 * i for i, lane in enumerate(outcomes))


async def reset(dut):
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    dut.rst.value, dut.draw_valid.value, dut.publish.value, dut.w_ready.value = 1, 0, 0, 0
    dut.result_addr.value = ADDRESS
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0


async def one_start(dut, memory, result):
    """Draw, publish, compare all bytes that count."""
    limits = CardLimits(
        num_ports=1,
        max_lanes=len(dut.lane_slot) // 16,
        max_read_tokens=1,
        max_draft_tokens=int(dut.MAX_DRAFT_TOKENS.value),
    )
    raw = encode_result(result, limits)
    memory.data, memory.published = {}, 0
    steps = range(limits.max_draft_tokens)
    wanted = [i * BEAT for i in range(RESULT_HEADER_BYTES // BEAT)]
    bases = [RESULT_HEADER_BYTES + i * limits.lane_result_bytes for i in range(len(result.lanes))]
    wanted += bases
    for step in steps:  # all lanes of a pass, then the next pass
        for lane, outcome in enumerate(result.lanes):
            if step < len(outcome.tokens):
                at = bases[lane] + BEAT * (1 + step)
                wanted.append(at)
                await hand_over(dut, memory, lane, step, raw[at : at + BEAT])
    set_header(dut, result.header, result.lanes)
    dut.publish.value = 1
    await memory.clock()
    dut.publish.value = 0
    while not memory.published:
        assert memory.cycle < 50_000, "never published"
        await memory.clock()
    for _ in range(10):
        await memory.clock()
    assert memory.published == 1
    assert memory.data == {ADDRESS + at: raw[at : at + BEAT] for at in wanted}


async def hand_over(dut, memory, lane, step, beat):
    dut.draw_lane.value, dut.draw_step.value = lane, step
    dut.draw_beat.value = int.from_bytes(beat, "little")
    dut.draw_valid.value = 1
    for _ in range(200):
        await memory.clock()
        if memory.takes_draw:
            break
    else:
        raise AssertionError("a drawn token waits forever")
    dut.draw_valid.value = 0
    for _ in range(memory.rng.randrange(3)):
        await memory.clock()


@cocotb.test()
async def drafted_tokens_and_headers(dut):
    await reset(dut)
    memory = Memory(dut, 1)
    lanes, tokens = len(dut.lane_slot) // 16, int(dut.MAX_DRAFT_TOKENS.value)
    for p_ready in (1.0, 0.3, 0.6):
        memory.p_ready = p_ready
        for used in {1, lanes}:
            await one_start(dut, memory, random_result(memory.rng, used, tokens))


@cocotb.test()
async def an_error_has_headers_only(dut):
    await reset(dut)
    memory = Memory(dut, 2)
    memory.p_ready = 0.4
    for status in (1, 5):
        header = ResultHeader(
            sequence=9,
            status=status,
            detail=3,
            isa_version=isa.ISA_VERSION,
            arithmetic_version=tables.ARITHMETIC_VERSION,
        )
        await one_start(dut, memory, Result(header=header, lanes=()))
        assert len(memory.data) == RESULT_HEADER_BYTES // BEAT
