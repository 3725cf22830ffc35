"""control_regs through AXI4-Lite: map, strobes, start and completion, interrupts, soft reset."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge, Timer
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

from fpga.program import isa, tables
from fpga.regmap import registers as regs

IDLE = regs.CTRL_IDLE | regs.CTRL_READY
OKAY = 0


class Host:
    """An AXI-Lite master, the core behind the registers, and a watch on the protocol."""

    def __init__(self, dut, seed, p_pause=0.0):
        self.dut, self.rng, self.p_pause = dut, random.Random(seed), p_pause
        self.ports = len(dut.weight_addr) // 64
        self.starts = 0

    async def reset(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        dut.rst.value = 1
        dut.core_done.value, dut.drained.value, dut.cycles.value = 0, 0, 0
        self.axi = AxiLiteMaster(AxiLiteBus.from_entity(dut), dut.clk, dut.rst)
        for _ in range(4):
            await FallingEdge(dut.clk)
        dut.rst.value = 0
        await RisingEdge(dut.clk)
        write, read = self.axi.write_if, self.axi.read_if
        for channel in (write.aw_channel, write.w_channel, write.b_channel):
            channel.set_pause_generator(self._pauses())
        for channel in (read.ar_channel, read.r_channel):
            channel.set_pause_generator(self._pauses())
        cocotb.start_soon(self._watch_answers())
        cocotb.start_soon(self._count_starts())

    def _pauses(self):
        while True:
            yield self.rng.random() < self.p_pause

    async def _watch_answers(self):
        """A waiting answer stays as it is until it is taken."""
        dut, before = self.dut, {}
        while True:
            await FallingEdge(dut.clk)
            await Timer(4, "ns")
            await ReadOnly()
            for valid, ready, data in (
                (dut.bvalid, dut.bready, dut.bresp),
                (dut.rvalid, dut.rready, dut.rdata),
            ):
                name = valid._name
                if name in before:
                    assert valid.value == 1, f"{name} fell before its ready"
                    assert data.value == before[name], f"the answer of {name} changed"
                before.pop(name, None)
                if valid.value == 1 and ready.value == 0:
                    before[name] = data.value

    async def _count_starts(self):
        while True:
            await FallingEdge(self.dut.clk)
            self.starts += int(self.dut.core_start.value)

    async def write(self, offset, value, size=4):
        answer = await self.axi.write(offset, value.to_bytes(size, "little"))
        assert answer.resp == OKAY

    async def read(self, offset):
        answer = await self.axi.read(offset, 4)
        assert answer.resp == OKAY
        return int.from_bytes(answer.data, "little")

    async def clocks(self, count):
        for _ in range(count):
            await FallingEdge(self.dut.clk)

    async def finish(self):
        """The core ends its start."""
        await FallingEdge(self.dut.clk)
        self.dut.core_done.value = 1
        await FallingEdge(self.dut.clk)
        self.dut.core_done.value = 0

    def writable(self):
        """Offsets of address words that exist."""
        rows = (regs.WEIGHT_ADDR, regs.KV_ADDR)
        words = [row + 4 * i for row in rows for i in range(2 * self.ports)]
        singles = (regs.COMMAND_ADDR, regs.RESULT_ADDR, regs.PROGRAM_ADDR)
        return words + [offset + 4 * half for offset in singles for half in (0, 1)]


@cocotb.test()
async def any_bytes_in_any_order_under_stalls(dut):
    host = Host(dut, 1, p_pause=0.4)
    await host.reset()
    words = host.writable()
    model = dict.fromkeys(words, 0)
    for _ in range(120):
        offset, start = host.rng.choice(words), host.rng.randrange(4)
        size = host.rng.randint(1, 4 - start)
        data = host.rng.getrandbits(8 * size)
        mask = ((1 << 8 * size) - 1) << 8 * start
        await host.write(offset + start, data, size)
        model[offset] = model[offset] & ~mask | data << 8 * start
        probe = host.rng.choice(words)
        assert await host.read(probe) == model[probe], hex(probe)
    for offset, value in model.items():
        assert await host.read(offset) == value, hex(offset)
    _check_outputs(dut, host, model)


def _check_outputs(dut, host, model):
    def wide(offset):
        return model[offset] | model[offset + 4] << 32

    assert int(dut.command_addr.value) == wide(regs.COMMAND_ADDR)
    assert int(dut.result_addr.value) == wide(regs.RESULT_ADDR)
    assert int(dut.program_addr.value) == wide(regs.PROGRAM_ADDR)
    for row, port in ((regs.WEIGHT_ADDR, dut.weight_addr), (regs.KV_ADDR, dut.kv_addr)):
        expected = sum(wide(row + 8 * p) << 64 * p for p in range(host.ports))
        assert int(port.value) == expected


@cocotb.test()
async def reads_and_writes_at_once(dut):
    host = Host(dut, 2, p_pause=0.3)
    await host.reset()
    words = host.writable()
    values = {offset: host.rng.getrandbits(32) for offset in words}

    async def write_all():
        for offset, value in values.items():
            await host.write(offset, value)

    writer = cocotb.start_soon(write_all())
    for _ in range(60):
        assert await host.read(regs.TYPE) == regs.TYPE_ID
        offset = host.rng.choice(words)
        assert await host.read(offset) in (0, values[offset])
    await writer
    for offset, value in values.items():
        assert await host.read(offset) == value


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(late=["aw", "w"])
async def addresses_far_from_their_data_stay_paired(dut, late):
    """Many writes at once; one channel is mostly held back, so the other runs ahead of it."""
    host = Host(dut, 9)
    await host.reset()
    channel = getattr(host.axi.write_if, f"{late}_channel")
    channel.set_pause_generator(iter(lambda: host.rng.random() < 0.8, None))
    values = {offset: host.rng.getrandbits(32) for offset in host.writable()}
    writes = [cocotb.start_soon(host.write(*item)) for item in values.items()]
    for write in writes:
        await write
    for offset, value in values.items():
        assert await host.read(offset) == value, hex(offset)


@cocotb.test()
async def a_write_that_waits_for_its_answer_stops_no_read(dut):
    host = Host(dut, 3)
    await host.reset()
    host.axi.write_if.b_channel.pause = True
    host.axi.write_if.b_channel.clear_pause_generator()
    host.axi.write_if.b_channel.pause = True
    write = cocotb.start_soon(host.write(regs.COMMAND_ADDR, 77))
    for _ in range(5):
        assert await host.read(regs.VERSION) == regs.INTERFACE_VERSION
    assert not write.done()
    assert await host.read(regs.COMMAND_ADDR) == 77
    host.axi.write_if.b_channel.pause = False
    await write


@cocotb.test()
async def identity_and_what_is_not_mapped(dut):
    host = Host(dut, 4, p_pause=0.2)
    await host.reset()
    dut.cycles.value = 0x123456789ABCDEF0
    build = int(dut.BUILD_HASH.value)
    known = {
        regs.TYPE: regs.TYPE_ID,
        regs.VERSION: regs.INTERFACE_VERSION,
        regs.ISA_VERSION: isa.ISA_VERSION,
        regs.ARITHMETIC_VERSION: tables.ARITHMETIC_VERSION,
        regs.NUM_PORTS: host.ports,
        regs.MAX_LANES: int(dut.LANES.value),
        regs.MAX_READ_TOKENS: int(dut.MAX_READ_TOKENS.value),
        regs.MAX_DRAFT_TOKENS: int(dut.MAX_DRAFT_TOKENS.value),
        regs.VECTOR_WORDS: int(dut.VECTOR_WORDS.value),
        regs.CLOCK_HZ: int(dut.CLOCK_HZ.value),
        regs.CYCLES: 0x9ABCDEF0,
        regs.CYCLES + 4: 0x12345678,
        regs.CTRL: IDLE,
    }
    known |= {regs.BUILD_HASH + 4 * i: build >> 32 * i & 0xFFFFFFFF for i in range(4)}
    mapped = {o + 4 * i for o, bits, _ in regs.REGISTERS.values() for i in range(bits // 32)}
    holes = [0x028, 0x0FC, 0x2FC + 0x100, 0x338, 0x348, 0x354, 0x800, 0xFFC]
    holes += [o for o in mapped if 0x100 <= o < 0x300 and o not in host.writable()][:6]
    for offset in holes:
        await host.write(offset, 0xFFFFFFFF)
        assert await host.read(offset) == 0, hex(offset)
    for offset, value in known.items():
        if offset != regs.CTRL:
            await host.write(offset, value ^ 0xFFFFFFFF)
        assert await host.read(offset) == value, hex(offset)
    assert host.starts == 0


@cocotb.test()
async def start_done_continue(dut):
    host = Host(dut, 5, p_pause=0.2)
    await host.reset()
    assert await host.read(regs.CTRL) == IDLE
    await host.write(regs.CTRL + 1, 0xFF, 1)  # not the byte that starts
    assert host.starts == 0
    await host.write(regs.CTRL, regs.CTRL_START)
    await host.clocks(3)
    assert host.starts == 1
    assert await host.read(regs.CTRL) == 0
    await host.finish()
    assert await host.read(regs.CTRL) == IDLE | regs.CTRL_DONE
    assert await host.read(regs.CTRL) == IDLE | regs.CTRL_DONE, "DONE must outlive a read"
    await host.write(regs.CTRL, regs.CTRL_START)  # kept until DONE is acknowledged
    await host.clocks(5)
    assert host.starts == 1
    assert await host.read(regs.CTRL) == regs.CTRL_START | regs.CTRL_DONE
    await host.write(regs.CTRL, regs.CTRL_CONTINUE)
    await host.clocks(3)
    assert host.starts == 2
    await host.write(regs.CTRL, regs.CTRL_START)  # kept while running
    await host.clocks(3)
    assert host.starts == 2
    await host.finish()
    await host.write(regs.CTRL, regs.CTRL_CONTINUE)
    await host.clocks(3)
    assert host.starts == 3
    await host.finish()
    await host.write(regs.CTRL, regs.CTRL_START | regs.CTRL_CONTINUE)
    await host.clocks(3)
    assert host.starts == 4


@cocotb.test()
async def a_completion_is_not_lost_to_a_continue(dut):
    """CONTINUE that lands before, in and after the cycle in which a start ends."""
    host = Host(dut, 6)
    await host.reset()
    landed = []
    for delay in range(10):
        await host.write(regs.CTRL, regs.CTRL_START)
        await host.clocks(3)
        early = cocotb.start_soon(host.write(regs.CTRL, regs.CTRL_CONTINUE))
        watch = cocotb.start_soon(_cycles_from_done_to_write(dut))
        await host.clocks(delay)
        await host.finish()
        await early
        landed.append(await watch)
        wanted = IDLE if landed[-1] > 0 else IDLE | regs.CTRL_DONE
        assert await host.read(regs.CTRL) == wanted, f"delay {delay}, write {landed[-1]} later"
        await host.write(regs.CTRL, regs.CTRL_CONTINUE)
        assert await host.read(regs.CTRL) == IDLE
    assert min(landed) < 0 < max(landed)
    assert 0 in landed


async def _cycles_from_done_to_write(dut):
    """Cycles from the one with core_done to the one in which a write to CTRL lands."""
    cycle, done, write = 0, None, None
    while done is None or write is None:
        await RisingEdge(dut.clk)  # values as the flip-flops take them
        done = cycle if dut.core_done.value == 1 else done
        write = cycle if dut.to_control.value == 1 else write
        cycle += 1
    return write - done


@cocotb.test()
async def interrupts(dut):
    host = Host(dut, 7, p_pause=0.2)
    await host.reset()

    async def one_start():
        await host.write(regs.CTRL, regs.CTRL_START)
        await host.finish()
        await host.write(regs.CTRL, regs.CTRL_CONTINUE)

    await one_start()
    assert await host.read(regs.ISR) == 0, "an event that is not enabled"
    await host.write(regs.IER, regs.IER_DONE)
    await one_start()
    assert await host.read(regs.ISR) == regs.ISR_DONE
    assert dut.irq.value == 0, "not enabled globally"
    await host.write(regs.GIE, regs.GIE_ENABLE)
    await host.clocks(2)
    assert dut.irq.value == 1
    await host.write(regs.ISR, regs.ISR_DONE)
    await host.clocks(2)
    assert dut.irq.value == 0
    await host.write(regs.IER, regs.IER_DONE | regs.IER_READY)
    await one_start()
    assert await host.read(regs.ISR) == regs.ISR_DONE | regs.ISR_READY
    await host.write(regs.ISR, regs.ISR_READY)
    assert await host.read(regs.ISR) == regs.ISR_DONE
    assert (await host.read(regs.GIE), await host.read(regs.IER)) == (1, 3)


@cocotb.test()
async def soft_reset_waits_for_memory(dut):
    host = Host(dut, 8, p_pause=0.2)
    await host.reset()
    await host.write(regs.COMMAND_ADDR, 0x5000)
    await host.write(regs.CTRL, regs.CTRL_START)
    await host.write(regs.RESET, regs.RESET_DRAIN)
    await host.clocks(3)
    assert dut.drain.value == 1
    await host.write(regs.CTRL, regs.CTRL_START)  # given up too
    for _ in range(3):  # answers trickle in: not drained for long enough
        dut.drained.value = 1
        await host.clocks(12)
        dut.drained.value = 0
        await host.clocks(2)
        assert dut.core_rst.value == 0
    assert await host.read(regs.RESET) == regs.RESET_DRAIN
    assert await host.read(regs.CTRL) & IDLE == 0
    dut.drained.value = 1
    held = 0
    for _ in range(60):
        await host.clocks(1)
        held += int(dut.core_rst.value)
        assert not (held and not dut.drain.value and dut.core_rst.value)
    assert held >= 16, "core_rst was too short"
    assert dut.drain.value == 0
    assert dut.core_rst.value == 0
    assert await host.read(regs.RESET) == regs.RESET_DRAINED
    assert await host.read(regs.CTRL) == IDLE
    assert host.starts == 1
    assert await host.read(regs.COMMAND_ADDR) == 0x5000
    await host.write(regs.CTRL, regs.CTRL_START)
    await host.clocks(3)
    assert host.starts == 2
    assert await host.read(regs.RESET) == 0
    await host.finish()
    assert await host.read(regs.CTRL) == IDLE | regs.CTRL_DONE
