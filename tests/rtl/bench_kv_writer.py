"""kv_writer against cocotbext-axi's memory: bytes under the strobe, acknowledgements, errors."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge, Timer
from cocotbext.axi import AxiRamWrite, AxiWriteBus
from support.axi_memory import DECERR, EXOKAY, SLVERR, watch

BEAT = 64
SIZE = 2**14


class Broken(AxiRamWrite):
    """Refuses one 64-byte beat."""

    bad = -1

    async def _write(self, address, data):
        if address // BEAT == self.bad:
            raise ValueError("planted")
        await super()._write(address, data)


class Writer:
    """Drives requests and keeps what memory must hold."""

    def __init__(self, dut, *, p_pause=0.0, seed=1):
        self.dut, self.rng = dut, random.Random(seed)
        self.ram = Broken(AxiWriteBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=SIZE)
        self.model = bytearray(SIZE)
        self.ram.write(0, bytes(SIZE))
        for channel in (self.ram.aw_channel, self.ram.w_channel, self.ram.b_channel):
            channel.set_pause_generator(iter(lambda: self.rng.random() < p_pause, None))
        watch(dut, "aw", "w")

    async def start(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
        dut.clear.value, dut.stop.value, dut.w_valid.value, dut.rst.value = 0, 0, 0, 1
        for _ in range(3):
            await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        dut.rst.value = 0

    async def write(self, beat, strobe):
        """One request; cycles until it is taken."""
        dut, data = self.dut, self.rng.randbytes(BEAT)
        for i in range(BEAT):
            if strobe >> i & 1:
                self.model[beat * BEAT + i] = data[i]
        dut.w_valid.value, dut.w_addr.value = 1, beat * BEAT
        dut.w_data.value, dut.w_strobe.value = int.from_bytes(data, "little"), strobe
        await self._taken()
        dut.w_valid.value = 0

    async def _taken(self):
        for _ in range(200):
            await RisingEdge(self.dut.clk)
            taken = bool(self.dut.w_ready.value)
            await FallingEdge(self.dut.clk)
            if taken:
                return
        raise AssertionError("never taken")

    async def settle(self):
        """Wait until everything is acknowledged: then, and not before, memory must be right."""
        for _ in range(500):
            await RisingEdge(self.dut.clk)
            if int(self.dut.pending.value) == 0:
                break
        else:
            raise AssertionError("never acknowledged")
        assert self.ram.read(0, SIZE) == bytes(self.model)
        await FallingEdge(self.dut.clk)


@cocotb.test()
async def random_writes_with_stalls(dut):
    writer = Writer(dut, p_pause=0.4)
    await writer.start()
    for _ in range(12):
        for _ in range(writer.rng.randrange(1, 8)):
            kind = writer.rng.randrange(4)
            strobe = [writer.rng.getrandbits(BEAT), 2**BEAT - 1, 1 << 63, 0xFF << 8][kind]
            await writer.write(writer.rng.randrange(SIZE // BEAT), strobe)
        await writer.settle()
    assert not dut.error.value


@cocotb.test()
async def errors_stay(dut):
    writer = Writer(dut)
    await writer.start()
    writer.ram.bad = 5
    writer.model = bytearray(SIZE)
    await writer.write(3, 2**BEAT - 1)
    before = bytes(writer.model)
    await writer.write(5, 2**BEAT - 1)
    writer.model = bytearray(before)
    await writer.write(6, 2**BEAT - 1)
    await writer.settle()
    assert dut.error.value
    assert int(dut.error_resp.value) == 2
    dut.clear.value = 1
    await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.clear.value = 0
    assert not dut.error.value


@cocotb.test()
async def each_response_counts_once_and_the_first_error_is_told(dut):
    await _bare(dut)
    dut.m_axi_bvalid.value, dut.w_valid.value = 0, 1
    parts = BEAT // int(dut.PORT_BYTES.value)
    for _ in range(6 * parts):  # enough requests for the responses below
        await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
    dut.w_valid.value = 0
    pending, told = int(dut.pending.value), 0
    for response in (0, EXOKAY, DECERR, SLVERR, 0):
        dut.m_axi_bvalid.value, dut.m_axi_bresp.value = 1, response
        await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        dut.m_axi_bvalid.value = 0
        pending, told = pending - 1, told or response * (response >= SLVERR)
        assert int(dut.pending.value) == pending
        assert (int(dut.error.value), int(dut.error_resp.value)) == (told != 0, told)


async def _bare(dut):
    """Reset; both channels always ready, nothing acknowledged, a request in every cycle."""
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    dut.clear.value, dut.stop.value, dut.w_valid.value, dut.rst.value = 0, 0, 0, 1
    dut.m_axi_awready.value, dut.m_axi_wready.value, dut.m_axi_bvalid.value = 1, 1, 0
    dut.m_axi_bresp.value, dut.m_axi_bid.value = 0, 0
    for _ in range(3):
        await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.rst.value, dut.w_valid.value, dut.w_addr.value = 0, 1, BEAT


@cocotb.test()
async def never_more_pending_than_allowed(dut):
    await _bare(dut)
    most = int(dut.MAX_PENDING.value)
    accepted = 0
    for _ in range(8 * most):
        await RisingEdge(dut.clk)
        accepted += bool(dut.w_ready.value)
    assert accepted == most
    await FallingEdge(dut.clk)
    assert int(dut.pending.value) == most
    dut.w_valid.value, dut.m_axi_bvalid.value = 0, 1
    for left in reversed(range(most)):
        await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        assert int(dut.pending.value) == left
        dut.m_axi_bvalid.value = left > 0


@cocotb.test()
async def stopped_it_takes_nothing_more(dut):
    """What it had taken still goes out; so `pending` 0 under `stop` means silence for good."""
    await _bare(dut)
    for _ in range(7):
        await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
    dut.stop.value = 1
    await Timer(1, "ns")
    left, silent = int(dut.pending.value), 0
    while silent < 20:
        assert not dut.w_ready.value
        dut.m_axi_bvalid.value = left > 0
        left -= left > 0
        await RisingEdge(dut.clk)
        silent = silent + 1 if not (dut.m_axi_awvalid.value or dut.m_axi_wvalid.value) else 0
        await FallingEdge(dut.clk)
    assert int(dut.pending.value) == 0
    dut.stop.value = 0
    await Timer(1, "ns")
    assert dut.w_ready.value


@cocotb.test()
async def a_request_a_cycle(dut):
    """As many cycles for a request as its burst has beats."""
    await _bare(dut)
    parts = BEAT // int(dut.PORT_BYTES.value)
    accepted = lasts = 0
    for _ in range(40):
        dut.m_axi_bvalid.value = lasts > 0
        await RisingEdge(dut.clk)
        accepted += bool(dut.w_ready.value)
        lasts += bool(dut.m_axi_wvalid.value and dut.m_axi_wlast.value)
        lasts -= bool(dut.m_axi_bvalid.value)
        await FallingEdge(dut.clk)
    assert accepted == 40 // parts
