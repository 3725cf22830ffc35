"""sequencer: order, active lanes, running maxima and KV counts of random programs."""

import random
import struct

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

END, EMBED, NORM, QUANT, MATMUL, ROPE, ATTENTION, SILU, HEAD, DRAW, ROPE_ROW = range(11)
SAMPLED = 1 << 8
STARTS = {"start_embed": {EMBED}, "start_vector": {NORM, QUANT, SILU}, "start_head": {HEAD}}
STARTS |= {"start_matrix": {MATMUL, HEAD}, "start_rope": {ROPE}, "start_attention": {ATTENTION}}
STARTS |= {"start_draw": {DRAW}, "start_rope_row": {ROPE_ROW}}
BY_LANE = {NORM: "done_vector", QUANT: "done_vector", SILU: "done_vector", ROPE: "done_rope"}
BY_LANE |= {ATTENTION: "done_attention", HEAD: "done_head"}
DEADLINE_CYCLES = 4000


def instruction(op, rng, vec):
    words = [0] * 16
    words[0] = op
    word, count = rng.randrange(3), rng.choice([2, 4])
    short = rng.random() < 0.3
    width = vec * count - (3 if short else 0)
    if op == EMBED:
        words[3], words[5] = width, word
    elif op in (NORM, QUANT):
        words[1:4] = word, count, width
    elif op == MATMUL:
        words[3], words[7] = count, word
    elif op == ATTENTION:
        words[2], words[4], words[5] = vec * count // 32 or 1, 32, word
    elif op == SILU:
        words[3:6] = count, width, word
    return words


def random_program(rng, vec):
    middle = [NORM, QUANT, MATMUL, MATMUL, ROPE, ATTENTION, SILU, QUANT]
    body = [instruction(op, rng, vec) for op in [EMBED, ROPE_ROW, *rng.choices(middle, k=12)]]
    tail = [instruction(op, rng, vec) for op in [ATTENTION, QUANT, MATMUL, HEAD, DRAW]]
    for words in tail:
        words[0] |= SAMPLED
    return [*body, *tail, [END] + [0] * 15]


def expected(program, rows, sampled, state, vec):
    """(index, active, uses the maximum) of each instruction; ``state``: what is covered."""
    active, out = rows, []
    for index, words in enumerate(program):
        op = words[0] & 0xFF
        if words[0] & SAMPLED:
            active &= sampled
        if op == END or not active:
            return out
        use = op in (NORM, QUANT) and (words[1], words[3]) == state.get("vector")
        out.append((index, active, use and words[3] == words[2] * vec))
        if op == MATMUL:
            state["vector"] = words[7], words[3] * vec
        elif op in (EMBED, ATTENTION, SILU):
            width = {EMBED: words[3], SILU: words[4], ATTENTION: words[2] * words[4]}[op]
            state["vector"] = (words[5], width) if width % vec == 0 else None
    return out


class Units:
    """Answer start pulses after random times, per lane and port."""

    def __init__(self, dut, rng):
        self.dut, self.rng = dut, rng
        self.lanes, self.ports = len(dut.op_active), len(dut.done_matrix)
        self.log = []
        self.pulses = []

    def started(self):
        dut = self.dut
        return {name for name in STARTS if int(getattr(dut, name).value)}

    def plan(self, op, active):
        later = lambda: self.rng.choice([1, 1, 2, 9])  # noqa: E731
        if op in BY_LANE:
            lanes = [i for i in range(self.lanes) if active >> i & 1]
            self.pulses += [[later(), BY_LANE[op], 1 << i] for i in lanes]
        if op in (MATMUL, HEAD):
            self.pulses += [[later(), "done_matrix", 1 << i] for i in range(self.ports)]
        if op in (EMBED, DRAW):
            self.pulses.append([later(), {EMBED: "done_embed", DRAW: "done_draw"}[op], 1])

    def step(self):
        """Between two edges: see what started, drive what is done now."""
        dut, names = self.dut, self.started()
        if names:
            assert not self.pulses, "started before everybody had answered"
            op = int(dut.op_word.value) & 0xFF
            assert names == {n for n, ops in STARTS.items() if op in ops}
            use = op in (NORM, QUANT) and int(dut.op_use_absmax.value)
            self.log.append((int(dut.op_index.value), int(dut.op_active.value), bool(use)))
            assert int(dut.absmax_clear.value) == (op in (EMBED, MATMUL, ATTENTION, SILU))
            self.plan(op, int(dut.op_active.value))
        now = {}
        for pulse in self.pulses:
            pulse[0] -= 1
            if pulse[0] == 0:
                now[pulse[1]] = now.get(pulse[1], 0) | pulse[2]
        self.pulses = [pulse for pulse in self.pulses if pulse[0] > 0]
        for name in ("done_embed", "done_draw", "done_matrix", *set(BY_LANE.values())):
            getattr(dut, name).value = now.get(name, 0)


async def one_pass(dut, units, rows, sampled):
    dut.pass_rows.value, dut.pass_sampled.value = rows, sampled
    dut.pass_valid.value = 1
    units.log.clear()
    wait = units.rng.randrange(5)
    for cycle in range(DEADLINE_CYCLES):
        dut.tokens_ready.value = cycle >= wait
        units.step()
        await FallingEdge(dut.clk)
        if int(dut.pass_ready.value):
            dut.pass_valid.value = 0
            await FallingEdge(dut.clk)
            return list(units.log)
    raise AssertionError("the pass does not end")


async def bring_up(dut, rng):
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    units = Units(dut, rng)
    for name in ("pass_valid", "tokens_ready", "run_clear", "done_embed", "done_draw"):
        getattr(dut, name).value = 0
    for name in ("done_matrix", "done_vector", "done_rope", "done_attention", "done_head"):
        getattr(dut, name).value = 0
    dut.writes_idle.value = 1
    program = random_program(rng, 4 * units.ports)
    for i, words in enumerate(program):
        dut.code[i].value = int.from_bytes(struct.pack("<16I", *words), "little")
    dut.rst.value = 1
    await cycles(dut, 3)
    dut.rst.value = 0
    await cycles(dut, 1)
    return units, program


async def cycles(dut, count):
    for _ in range(count):
        await FallingEdge(dut.clk)


@cocotb.test()
async def random_programs(dut):
    """Instructions in order, for the right lanes; maxima used exactly where they cover."""
    rng = random.Random(cocotb.RANDOM_SEED)
    units, program = await bring_up(dut, rng)
    state, ropes = {}, 0
    for _ in range(12):
        count = rng.randint(1, units.lanes)
        rows = (1 << count) - 1
        sampled = rows & rng.choice([0, rows, rng.randrange(1 << count)])
        wanted = expected(program, rows, sampled, state, 4 * units.ports)
        got = await one_pass(dut, units, rows, sampled)
        assert got == wanted, f"{got}\n{wanted}"
        assert int(dut.op_dual.value) == (2 * count <= max(2, units.lanes))
        ropes += sum(program[i][0] & 0xFF == ROPE for i, _, _ in wanted)
        await cycles(dut, 10)
        assert int(dut.kv_done_count.value) == ropes


@cocotb.test()
async def kv_waits_for_its_writes(dut):
    """A ROPE_KV counts only when the writes are answered."""
    units, program = await bring_up(dut, random.Random(4))
    dut.writes_idle.value = 0
    got = await one_pass(dut, units, 1, 0)
    await cycles(dut, 20)
    assert int(dut.kv_done_count.value) == 0
    dut.writes_idle.value = 1
    await cycles(dut, 10)
    ropes = sum(program[i][0] & 0xFF == ROPE for i, _, _ in got)
    assert int(dut.kv_done_count.value) == ropes > 0
