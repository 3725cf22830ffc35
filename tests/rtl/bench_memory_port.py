"""memory_port: stream commands in, the model's beats and transfers out, with memory in between."""

import random
from collections import deque

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from support import stream_model as model
from support.axi_memory import BEAT, DECERR, OKAY, SLVERR, ReadMemory, beat_at, watch
from support.stream_cases import random_commands

WEIGHTS, CACHE = 0x4_0000_0000, 0x9_C000_0000
AUX_FIELDS = ("kind", "lanes", "empty", "first", "end")
RANGE_FIELDS = ("skip", "count")
QUIET = ("clear", "stop", "s_valid", "g_valid", "w_valid", "matrix_take", "aux_ready")


class Port:
    """Feeds commands, plays both consumers, checks every beat against the model."""

    def __init__(self, dut, wanted, *, index, p_use=1.0, p_command=1.0, seed=1):
        self.dut, self.index = dut, index
        self.ports, self.lanes = int(dut.PORTS.value), int(dut.LANES.value)
        self.rng, self.p_use, self.p_command = random.Random(seed), p_use, p_command
        self.commands = deque(wanted)
        self.expected = deque()
        self.cycles = self.beats = self.pairs = 0
        for command in wanted:
            self._expect(command)

    def _expect(self, command):
        if command.kind == model.MATRIX:
            beats = model.beats_of(command, self.index, self.ports)
            self.expected.append(deque(WEIGHTS + BEAT * beat for beat in beats))
            return
        base = CACHE if command.kind >= model.KV_SCALE else WEIGHTS
        for transfer in model.transfers_of(command, self.index, self.ports):
            self.expected.append((transfer, base))

    async def start(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        for name in QUIET:
            getattr(dut, name).value = 0
        dut.m_axi_bvalid.value, dut.m_axi_awready.value, dut.m_axi_wready.value = 0, 0, 0
        dut.port_index.value = self.index
        dut.cfg_weight_addr.value, dut.cfg_kv_addr.value = WEIGHTS, CACHE
        dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        dut.rst.value = 0

    async def cycle(self):
        dut, rng = self.dut, self.rng
        await FallingEdge(dut.clk)
        offers = bool(self.commands) and (dut.s_valid.value or rng.random() < self.p_command)
        dut.s_valid.value = bool(offers)
        if offers:
            dut.s_command.value = self.commands[0].packed(self.lanes)
        uses = rng.random() < self.p_use
        count = int(dut.matrix_count.value)
        assert not (count and dut.aux_valid.value), "both channels at once"
        take = min(count, rng.choice([1, 2, 2])) if uses else 0
        dut.matrix_take.value, dut.aux_ready.value = take, uses
        self._check_matrix(count, take)
        aux = uses and bool(dut.aux_valid.value)
        if aux:
            self._check_aux()
        await RisingEdge(dut.clk)
        self.cycles += 1
        if offers and dut.s_ready.value:
            self.commands.popleft()

    def _check_matrix(self, count, take):
        if not count:
            return
        head = self.expected[0]
        assert isinstance(head, deque), f"a matrix instead of {head}"
        assert count <= len(head), "beats of the next command shown"
        text = str(self.dut.matrix_data.value)
        for i in range(count):
            assert int(text[1024 - 512 * (i + 1) : 1024 - 512 * i], 2) == beat_at(head[i])
        for _ in range(take):
            head.popleft()
        self.beats += take
        self.pairs += take == 2
        if not head:
            self.expected.popleft()

    def _check_aux(self):
        dut = self.dut
        assert self.expected, "a transfer too many"
        head = self.expected.popleft()
        assert not isinstance(head, deque), "a transfer instead of a matrix"
        wanted, base = head
        names = AUX_FIELDS + (RANGE_FIELDS if wanted.first else ())
        seen = {name: int(getattr(dut, f"aux_{name}").value) for name in names}
        expected = {**wanted._asdict(), "empty": wanted.beat is None}
        assert seen == {name: int(expected[name]) for name in names}
        if wanted.beat is not None:
            assert int(dut.aux_data.value) == beat_at(base + BEAT * wanted.beat)
            self.beats += 1
            if wanted.first and wanted.pos is not None:
                assert int(dut.aux_pos.value) == wanted.pos

    async def finish(self, limit=6000):
        while self.expected or self.commands:
            await self.cycle()
            assert self.cycles < limit, f"{len(self.expected)} things never came"
        for _ in range(4):
            await self.cycle()
        assert self.dut.drained.value


def _port_index(dut, rng):
    return rng.randrange(int(dut.PORTS.value))


@cocotb.test()
@cocotb.parametrize(seed=[0, 1, 2])
async def random_streams(dut, seed):
    rng = random.Random(seed)
    wanted = random_commands(rng, 50, int(dut.LANES.value))
    use = (1.0, 0.5, 0.9)[seed]
    port = Port(dut, wanted, index=_port_index(dut, rng), p_use=use, p_command=0.7, seed=seed)
    ReadMemory(dut, latency=6 * seed, ar_ready=0.8, r_valid=0.9, seed=seed)
    await port.start()
    await port.finish()
    assert int(dut.beats_read.value) == port.beats
    assert dut.idle.value


@cocotb.test()
async def a_matrix_streams_two_beats_a_cycle_once_it_is_there(dut):
    size = int(dut.FIFO_BEATS.value) - 16
    wanted = [model.Command(model.MATRIX, 1, True, 64 * i, size // 4) for i in range(4)]
    port = Port(dut, wanted, index=0, p_use=0.0)
    ReadMemory(dut, latency=5)
    await port.start()
    parts = BEAT // int(dut.PORT_BYTES.value)
    for _ in range(size * parts + 60):
        await port.cycle()
    port.p_use, port.rng = 1.0, _Twos()
    before = port.cycles
    while port.expected:
        await port.cycle()
    assert port.cycles - before <= size // 2 + 4  # at most a cycle lost between matrices


class _Twos(random.Random):
    """Takes all it can."""

    def choice(self, options):
        return options[-1]


@cocotb.test()
async def memory_is_kept_busy_over_short_reads(dut):
    """Tags and commands run far enough ahead: latency is hidden even for reads of a few beats."""
    rng = random.Random(4)
    hi = 4 * int(dut.PORTS.value)
    wanted = [
        model.Command(model.KV_K, 1, bool(i & 1), 1000 * i, 0, 0, hi, 64, 1) for i in range(60)
    ]
    port = Port(dut, wanted, index=_port_index(dut, rng))
    ReadMemory(dut, latency=40)
    await port.start()
    while port.expected:
        await port.cycle()
        assert port.cycles < 2000
    parts = BEAT // int(dut.PORT_BYTES.value)
    assert port.cycles <= 60 * 4 * parts + 40 + 30


@cocotb.test()
async def an_error_does_not_stop_the_stream(dut):
    rng = random.Random(6)
    port = Port(dut, random_commands(rng, 20, int(dut.LANES.value)), index=0)
    ram = ReadMemory(dut, latency=3)
    matrix = next(c for c in port.commands if c.kind == model.MATRIX)
    ram.errors[WEIGHTS + BEAT * matrix.offset] = SLVERR
    await port.start()
    await port.finish()
    assert dut.read_error.value
    assert not dut.write_error.value


@cocotb.test()
@cocotb.parametrize(response=[OKAY, SLVERR, DECERR])
async def the_answer_to_a_write_is_told_as_such(dut, response):
    """Whatever it is, it ends the write; `write_error` is not `read_error`."""
    port = Port(dut, [], index=0)
    ReadMemory(dut)
    watch(dut, "aw", "w")
    await port.start()
    dut.w_valid.value, dut.w_addr.value, dut.w_strobe.value = 1, 0x1000 - BEAT, 2**BEAT - 1
    dut.w_data.value = beat_at(3)
    await RisingEdge(dut.clk)
    assert dut.w_ready.value
    await FallingEdge(dut.clk)
    dut.w_valid.value = 0
    for cycle in range(40):  # address and data are taken apart, and late
        dut.m_axi_awready.value, dut.m_axi_wready.value = cycle == 20, cycle % 3 == 2
        await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        assert int(dut.writes_pending.value) == 1
    dut.m_axi_bvalid.value, dut.m_axi_bresp.value = 1, response
    await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.m_axi_bvalid.value = 0
    assert int(dut.writes_pending.value) == 0
    is_error = response != OKAY
    assert (bool(dut.write_error.value), int(dut.write_resp.value)) == (is_error, response)
    assert not dut.read_error.value


@cocotb.test()
async def abort_and_begin_again(dut):
    rng = random.Random(8)
    lanes = int(dut.LANES.value)
    port = Port(dut, random_commands(rng, 40, lanes), index=0, p_use=0.3)
    ReadMemory(dut, latency=25)
    await port.start()
    for _ in range(120):
        await port.cycle()
    await FallingEdge(dut.clk)
    for name in QUIET:
        getattr(dut, name).value = 0
    dut.stop.value = 1
    for _ in range(300):
        await RisingEdge(dut.clk)
        if dut.idle.value:
            break
    await FallingEdge(dut.clk)
    assert dut.idle.value
    dut.clear.value = 1
    await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.clear.value, dut.stop.value = 0, 0
    second = Port(dut, random_commands(rng, 25, lanes), index=0)
    await second.finish()


@cocotb.test()
async def gathers_and_writes_reach_the_bus(dut):
    parts = BEAT // int(dut.PORT_BYTES.value)
    port = Port(dut, [model.Command(model.MATRIX, 1, True, 0, 200)], index=0)
    ReadMemory(dut, latency=3)
    await port.start()
    dut.m_axi_awready.value, dut.m_axi_wready.value = 1, 1
    dut.g_valid.value, dut.g_addr.value, dut.g_beats.value = 1, 0x123000, 2
    dut.w_valid.value, dut.w_addr.value, dut.w_strobe.value = 1, 0x456040, 2**BEAT - 1
    dut.w_data.value = beat_at(77)
    await RisingEdge(dut.clk)
    assert dut.g_ready.value
    assert dut.w_ready.value
    await FallingEdge(dut.clk)
    dut.g_valid.value, dut.w_valid.value = 0, 0
    gathered, written, lasts, parts_seen = [], [], 0, 0
    for _ in range(60):
        await RisingEdge(dut.clk)
        if dut.gr_valid.value:
            gathered.append(int(dut.gr_data.value))
            lasts += bool(dut.gr_last.value)
        if dut.m_axi_awvalid.value:
            written.append(int(dut.m_axi_awaddr.value))
        parts_seen += bool(dut.m_axi_wvalid.value)
    assert gathered == [beat_at(0x123000), beat_at(0x123040)]
    assert lasts == 1
    assert written == [0x456040]
    assert parts_seen == parts
    assert int(dut.writes_pending.value) == 1
    assert not dut.idle.value
    await FallingEdge(dut.clk)
    dut.m_axi_bvalid.value, dut.m_axi_bresp.value = 1, 0
    await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.m_axi_bvalid.value = 0
    assert int(dut.writes_pending.value) == 0
