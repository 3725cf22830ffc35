"""read_planner against the model of the stream's order: every port, every pass, every fence."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from support.stream_cases import GEOMETRY, llama_program, random_pass
from support.stream_model import MATMUL, ROPE_KV, commands

FIELDS = {
    "pass_position": 20,
    "pass_lo": 20,
    "pass_mem_len": 20,
    "pass_prefix_len": 20,
    "pass_slot": 16,
    "pass_tail_slot": 16,
}


class Planner:
    """Gives passes, answers program words, takes commands on all ports."""

    def __init__(self, dut, program, passes, *, p_ready, seed=1):
        self.dut, self.program, self.passes = dut, program, list(passes)
        self.lanes, self.ports = int(dut.LANES.value), int(dut.PORTS.value)
        self.p_ready, self.rng = p_ready, random.Random(seed)
        self.got = [[] for _ in range(self.ports)]
        self.given = self.done = self.cycles = 0
        self.expected = list(commands(program, passes, GEOMETRY))

    async def start(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        dut.clear.value, dut.pass_valid.value, dut.s_ready.value = 0, 0, 0
        dut.kv_done_count.value, dut.rst.value, dut.pc_word.value = 0, 1, 0
        for name in ("slot_beats", "layer_beats", "k_beats", "v_beats"):
            getattr(dut, f"cmd_{name}").value = getattr(GEOMETRY, name)
        for _ in range(3):
            await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        dut.rst.value = 0
        cocotb.start_soon(self._program_memory())

    async def _program_memory(self):
        words = [sum(w << 32 * i for i, w in enumerate(words)) for words in self.program]
        while True:
            await RisingEdge(self.dut.clk)
            at = int(self.dut.pc.value)
            await FallingEdge(self.dut.clk)
            self.dut.pc_word.value = words[at] if at < len(words) else 0

    async def cycle(self):
        dut = self.dut
        await FallingEdge(dut.clk)
        dut.kv_done_count.value = self.done
        dut.pass_valid.value = bool(self.passes)
        if self.passes:
            self._describe(self.passes[0])
        ready = sum((self.rng.random() < self.p_ready) << p for p in range(self.ports))
        dut.s_ready.value = ready
        await RisingEdge(dut.clk)
        self.cycles += 1
        fired = int(dut.s_valid.value) & ready
        for port in range(self.ports):
            if fired >> port & 1:
                self._take(port)
        if self.passes and dut.pass_ready.value:
            self.passes.pop(0)
            self.given += 1

    def _take(self, port):
        number = len(self.got[port])
        assert number < len(self.expected), "a command too many"
        wanted = self.expected[number]
        seen = int(self.dut.s_command.value)
        assert seen == wanted.packed(self.lanes), (number, wanted, hex(seen))
        assert self.done >= wanted.needed, f"{wanted} with {self.done} writes done"
        self.got[port].append(seen)

    def _describe(self, rows):
        dut, used = self.dut, range(len(rows))
        dut.pass_rows.value = (1 << len(rows)) - 1
        dut.pass_sampled.value = sum(rows[r].sampled << r for r in used)
        dut.pass_leader.value = sum(rows[r].leader << r for r in used)
        dut.pass_group.value = sum(rows[r].group << self.lanes * r for r in used)
        for name, bits in FIELDS.items():
            key = name.removeprefix("pass_")
            getattr(dut, name).value = sum(getattr(rows[r], key) << bits * r for r in used)

    @property
    def finished(self):
        return all(len(got) == len(self.expected) for got in self.got)


@cocotb.test()
async def random_programs_and_passes(dut):
    for seed in range(8):
        rng = random.Random(seed)
        lanes = int(dut.LANES.value)
        dims = (rng.choice([32, 64, 128]), rng.choice([1, 3, 4]))
        program = llama_program(rng.randint(1, 3), *dims)
        passes = [random_pass(rng, lanes) for _ in range(rng.randint(1, 5))]
        planner = Planner(dut, program, passes, p_ready=rng.choice([0.4, 1.0]), seed=seed)
        await planner.start()
        most = sum(words[0] & 255 == ROPE_KV for words in program) * len(passes)
        while not planner.finished:
            await planner.cycle()
            if planner.done < most and rng.random() < 0.1:
                planner.done += 1
            assert planner.cycles < 5000, "stuck"
        for _ in range(30):
            await planner.cycle()
        assert dut.idle.value


@cocotb.test()
async def waits_for_the_writes_of_the_pass_before(dut):
    """Runs ahead up to the fence and not a command further, write by write."""
    rng = random.Random(7)
    program = llama_program(2, 64, 3)
    passes = [random_pass(rng, int(dut.LANES.value)) for _ in range(3)]
    planner = Planner(dut, program, passes, p_ready=1.0)
    await planner.start()
    for done in range(7):
        planner.done = done
        for _ in range(600):
            await planner.cycle()
        allowed = [command.needed <= done for command in planner.expected]
        ahead = allowed.index(False) if False in allowed else len(allowed)
        assert len(planner.got[0]) == ahead


@cocotb.test()
async def a_command_a_cycle(dut):
    planner = Planner(dut, llama_program(3, 64, 3), [], p_ready=1.0)
    rows = random_pass(random.Random(1), int(dut.LANES.value))
    passes = [rows] * 3
    planner = Planner(dut, planner.program, passes, p_ready=1.0)
    planner.done = 1000
    await planner.start()
    while not planner.finished:
        await planner.cycle()
        assert planner.cycles < 2000
    instructions = len(planner.program) * len(passes)
    assert planner.cycles <= len(planner.expected) + 2 * instructions


@cocotb.test()
async def clear_begins_a_new_start(dut):
    rng = random.Random(9)
    program = llama_program(2, 32, 2)
    passes = [random_pass(rng, int(dut.LANES.value)) for _ in range(2)]
    for cycles in (20, 45, 70, 2000):
        planner = Planner(dut, program, passes, p_ready=0.7)
        planner.done = 1000
        await planner.start()
        while planner.cycles < cycles and not planner.finished:
            await planner.cycle()
        if cycles == 2000:
            break
        await FallingEdge(dut.clk)
        dut.clear.value, dut.pass_valid.value = 1, 0
        await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        dut.clear.value = 0
        assert dut.idle.value
        second = Planner(dut, program, passes[::-1], p_ready=0.7)
        second.done = 1000
        while not second.finished:
            await second.cycle()
            assert second.cycles < 2000
    assert planner.finished


@cocotb.test()
async def reads_of_nothing_are_left_out(dut):
    program = llama_program(1, 64, 1)
    program[3][2] = 0  # a MATMUL of no beats
    assert program[3][0] == MATMUL
    rows = random_pass(random.Random(2), int(dut.LANES.value))
    planner = Planner(dut, program, [rows], p_ready=1.0)
    planner.expected = [c for c in planner.expected if c.kind or c.beats]
    planner.done = 1000
    await planner.start()
    for _ in range(200):
        await planner.cycle()
    assert planner.finished
