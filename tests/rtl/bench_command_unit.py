"""command_unit with a program_store: starts as a host can write them, good and refused."""

import hashlib
import random
import struct

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from fpga.driver import buffers
from fpga.program import isa, tables
from fpga.regmap import registers

COMMAND_AT, PROGRAM_AT = 0x1000_0000_0000, 0x2_0000_0040
VOCAB, SLOTS, CONTEXT = 500, 6, 200
LANE_KEYS = ("slot", "tail_slot", "prefix_len", "start", "num_read", "num_draft")
LANE_KEYS += ("output_index", "seed_lo", "seed_hi", "choice", "inv_t", "at", "ancestors")
DEADLINE_CYCLES = 4000
OUTPUTS = {"cmd_slot": (16, "slot"), "cmd_tail_slot": (16, "tail_slot"), "cmd_seed": (64, "seed")}
OUTPUTS |= {"cmd_prefix_len": (20, "prefix_len"), "cmd_start": (20, "start")}
OUTPUTS |= {"cmd_num_read": (20, "num_read"), "cmd_num_draft": (16, "num_draft")}
OUTPUTS |= {"cmd_output_index": (32, "output_index"), "cmd_choice": (32, "choice")}
OUTPUTS |= {"cmd_inv_t": (32, "inv_t"), "cmd_ancestors": (32, "ancestors")}


class Memory:
    """What port 0 reads: 64-byte beats by address."""

    def __init__(self):
        self.beats = {}
        self.reads = 0

    def store(self, address, data):
        data = data.ljust(-(-len(data) // 64) * 64, b"\0")
        for i in range(0, len(data), 64):
            self.beats[address + i] = int.from_bytes(data[i : i + 64], "little")

    async def serve(self, dut, rng):
        dut.g_ready.value = 0
        dut.gr_valid.value = 0
        while True:
            await FallingEdge(dut.clk)
            dut.g_ready.value = 0
            if not int(dut.g_valid.value) or rng.random() < 0.5:
                continue
            address, count = int(dut.g_addr.value), int(dut.g_beats.value)
            dut.g_ready.value = 1
            await FallingEdge(dut.clk)
            dut.g_ready.value = 0
            for i in range(count):
                while rng.random() < 0.3:
                    await FallingEdge(dut.clk)
                dut.gr_valid.value = 1
                dut.gr_data.value = self.beats.get(address + 64 * i, 0)
                dut.gr_last.value = i == count - 1
                self.reads += 1
                await FallingEdge(dut.clk)
                dut.gr_valid.value = 0


def program(**wrong):
    embed = struct.pack("<16I", 1, 0, VOCAB, 64, *[0] * 12)
    body = embed + bytes(64) if not wrong.pop("endless", False) else embed + embed
    header = dict(magic=buffers.PROGRAM_MAGIC, interface=registers.INTERFACE_VERSION)
    header |= dict(isa=isa.ISA_VERSION, arithmetic=tables.ARITHMETIC_VERSION, count=2)
    header |= dict(image=0, words=1024, ports=4) | wrong
    return struct.pack("<8I32s", *header.values(), hashlib.sha256(body).digest()) + body


def lane(rng, at, max_read, max_draft):
    start = rng.randint(0, 60)
    values = {key: rng.randrange(1 << 31) for key in LANE_KEYS}
    values |= {"slot": rng.randrange(SLOTS), "tail_slot": rng.randrange(SLOTS), "start": start}
    values |= {"prefix_len": rng.randint(0, start), "num_read": rng.randint(1, max_read)}
    values |= {"num_draft": rng.randint(0, max_draft), "at": at}
    return values


def command(lanes, tokens, width, **header):
    words = dict(magic=buffers.COMMAND_MAGIC, version=registers.INTERFACE_VERSION, sequence=77)
    words |= dict(num_lanes=len(lanes), program_id=5, num_slots=SLOTS, context=CONTEXT, slot=1000)
    words |= dict(layer=100, k=10, v=55, window=3) | header
    head = struct.pack("<12I", *words.values()).ljust(64, b"\0")
    head += b"".join(struct.pack("<13I", *x.values()).ljust(64, b"\0") for x in lanes)
    return head.ljust(64 * (1 + width), b"\0") + struct.pack(f"<{len(tokens)}I", *tokens)


def random_command(rng, width, **header):
    lanes, tokens = [], []
    for _ in range(rng.randint(1, width)):
        lanes.append(lane(rng, 16 * (1 + width) + len(tokens), 40, 5))
        tokens += [rng.randrange(VOCAB) for _ in range(lanes[-1]["num_read"])]
    return lanes, tokens, header


async def start(dut, memory, data):
    """Returns (ran, status, detail) of one start."""
    memory.beats = {a: b for a, b in memory.beats.items() if a < COMMAND_AT}
    memory.store(COMMAND_AT, data)
    dut.ap_start.value = 1
    await FallingEdge(dut.clk)
    dut.ap_start.value = 0
    ran = False
    for _ in range(DEADLINE_CYCLES):
        if int(dut.go.value):
            ran = True
            return ran, 0, 0
        if int(dut.publish.value):
            return ran, int(dut.status.value), int(dut.detail.value)
        await FallingEdge(dut.clk)
    raise AssertionError("neither runs nor publishes")


async def finish(dut):
    dut.run_done.value = 1
    await FallingEdge(dut.clk)
    dut.run_done.value = 0
    for _ in range(10):
        if int(dut.publish.value):
            assert int(dut.status.value) == 0
            await FallingEdge(dut.clk)
            return
        await FallingEdge(dut.clk)
    raise AssertionError("does not publish after the run")


async def bring_up(dut, rng):
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    for name in ("ap_start", "run_done", "fault", "fault_decode", "fault_port", "token_word"):
        getattr(dut, name).value = 0
    dut.command_addr.value, dut.program_addr.value = COMMAND_AT, PROGRAM_AT
    memory = Memory()
    cocotb.start_soon(memory.serve(dut, rng))
    dut.rst.value = 1
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    await FallingEdge(dut.clk)
    return memory


def width_of(dut):
    return len(dut.cmd_slot) // 16


async def check_lanes(dut, lanes, tokens, width):
    assert int(dut.cmd_lanes.value) == len(lanes)
    for name, (bits, key) in OUTPUTS.items():
        text = str(getattr(dut, name).value)
        for i, values in enumerate(lanes):
            wanted = values["seed_lo"] | values["seed_hi"] << 32 if key == "seed" else values[key]
            end = len(text) - bits * i
            assert int(text[end - bits : end], 2) == wanted & (1 << bits) - 1, f"{name} {i}"
    assert int(dut.cmd_window.value) == 3
    assert [int(getattr(dut, f"cmd_{x}_beats").value) for x in ("slot", "layer", "k", "v")] == [
        1000,
        100,
        10,
        55,
    ]
    for i, token in enumerate(tokens):
        dut.token_word.value = i
        await FallingEdge(dut.clk)
        assert int(dut.token_id.value) == token, f"token {i}"


@cocotb.test()
async def good_starts(dut):
    """All fields and tokens arrive; the program is loaded only when its number changes."""
    rng = random.Random(cocotb.RANDOM_SEED)
    memory = await bring_up(dut, rng)
    memory.store(PROGRAM_AT, program())
    width = width_of(dut)
    for turn in range(6):
        lanes, tokens, header = random_command(rng, width, program_id=5 + turn // 3)
        before = memory.reads
        ran, status, _ = await start(dut, memory, command(lanes, tokens, width, **header))
        assert (ran, status) == (True, 0)
        beats = 1 + width + max(2, -(-len(tokens) // 16))
        assert memory.reads - before == beats + (3 if turn in (0, 3) else 0)
        await check_lanes(dut, lanes, tokens, width)
        await finish(dut)


async def refused(dut, memory, data, status, detail=0):
    ran, got, about = await start(dut, memory, data)
    assert (ran, got, about) == (False, status, detail)
    await FallingEdge(dut.clk)


@cocotb.test()
async def refused_starts(dut):
    """Every check has its status, and a good start works afterwards."""
    rng = random.Random(5)
    memory = await bring_up(dut, rng)
    width = width_of(dut)
    memory.store(PROGRAM_AT, program(isa=99))
    lanes, tokens, _ = random_command(rng, width)
    good = command(lanes, tokens, width)
    await refused(dut, memory, good, buffers.STATUS_BAD_PROGRAM)
    for wrong in ({"magic": 1}, {"interface": 0}, {"arithmetic": 77}, {"count": 0}):
        memory.store(PROGRAM_AT, program(**wrong))
        await refused(dut, memory, good, buffers.STATUS_BAD_PROGRAM)
    for wrong in ({"words": 1 << 20}, {"endless": True}, {"count": 1}, {"ports": 2}):
        memory.store(PROGRAM_AT, program(**wrong))
        await refused(dut, memory, good, buffers.STATUS_BAD_PROGRAM)
    memory.store(PROGRAM_AT, program())
    for wrong in ({"magic": 0}, {"version": 9}, {"num_lanes": width + 1}, {"context": 1 << 20}):
        data = command(lanes, tokens, width, **wrong)
        await refused(dut, memory, data, buffers.STATUS_BAD_COMMAND)
    for wrong in ({"slot": SLOTS}, {"tail_slot": 1 << 16}, {"num_read": 0}, {"num_draft": 17}):
        await refused(dut, memory, command([lanes[0] | wrong], tokens, width), 3)
    await refused(dut, memory, command([lanes[0] | {"start": CONTEXT}], tokens, width), 3)
    await refused(dut, memory, command([lanes[0] | {"at": 1 << 20}], tokens, width), 1)
    bad = [*tokens[:-1], VOCAB]
    await refused(dut, memory, command(lanes, bad, width), 3, len(lanes) - 1)
    ran, status, _ = await start(dut, memory, good)
    assert (ran, status) == (True, 0)


@cocotb.test()
async def faults(dut):
    """An AXI error during the run gives its status and port."""
    rng = random.Random(6)
    memory = await bring_up(dut, rng)
    memory.store(PROGRAM_AT, program())
    width = width_of(dut)
    lanes, tokens, _ = random_command(rng, width)
    ran, _, _ = await start(dut, memory, command(lanes, tokens, width))
    assert ran
    dut.fault.value, dut.fault_decode.value, dut.fault_port.value = 1, 1, 3
    dut.run_done.value = 1
    await FallingEdge(dut.clk)
    dut.run_done.value = 0
    while not int(dut.publish.value):
        await FallingEdge(dut.clk)
    assert (int(dut.status.value), int(dut.detail.value)) == (buffers.STATUS_DECODE_ERROR, 3)
