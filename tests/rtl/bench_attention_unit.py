"""attention_unit: whole ROPE_KV and ATTENTION instructions against the golden functions.

Environment: HETERO_ATTENTION, a JSON object with the fields of Shape and of Plan.
"""

import json
import os
from dataclasses import dataclass

import cocotb
import numpy as np
from attention_model import (
    IN_FRAC,
    KIND_ROPE_ROW,
    OUT_FRAC,
    KvMemory,
    Row,
    Shape,
    Transfer,
    attention,
    group_stream,
    random_rope_row,
    random_rows,
    random_vector,
    rope_kv,
    seeded,
)
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer

MEM_LATENCY = 2
KV_ADDR = 0x1_0000_0000
IN_WORD, BANK_WORDS = 1, 1024
CONSTANT_CYCLES = 85
"""ATTENTION besides records and heads: pipelines filled and emptied; measured at most 78."""


@dataclass(frozen=True)
class Plan:
    """``passes`` random passes; chances that a stream, a request or an answer waits a cycle."""

    passes: int = 3
    seed: int = 1
    gaps: float = 0.3
    spread: int = 0
    exponents: tuple = (19, 24)


class Card:
    """The surroundings of attention_unit, a cycle at a time."""

    def __init__(self, dut, shape, plan):
        self.dut, self.shape, self.plan = dut, shape, plan
        self.rng = seeded(plan.seed)
        self.memory = KvMemory(shape, self.rng, plan.exponents)
        self.vectors = np.zeros((shape.lanes, BANK_WORDS, 4 * shape.ports), dtype=np.int64)
        self.streams = [[] for _ in range(shape.ports)]
        self.offered = [False] * shape.ports
        self.reads = [[None] * shape.lanes for _ in range(MEM_LATENCY)]
        self.unanswered = [[] for _ in range(shape.ports)]
        self.done_rope = self.done_attention = 0
        self.cycle = 0

    async def reset(self):
        dut = self.dut
        for name in ("start_rope_row", "start_rope", "start_attention", "aux_valid", "w_ready"):
            getattr(dut, name).value = 0
        dut.writes_pending.value = 0
        dut.mem_data.value = 0
        dut.op_active.value = 0
        dut.op_word.value = 0
        for name in ("kind", "lanes", "empty", "first", "skip", "count", "pos", "end", "data"):
            getattr(dut, f"aux_{name}").value = 0
        shape = self.shape
        addresses = [KV_ADDR + (p << 28) for p in range(shape.ports)]
        dut.cfg_kv_addr.value = packed(addresses, 64)
        dut.cfg_slot_beats.value = shape.slot_beats
        dut.cfg_layer_beats.value = shape.layer_beats
        dut.cfg_k_beats.value = shape.k_beats
        dut.cfg_v_beats.value = shape.v_beats
        dut.rst.value = 1
        for _ in range(5):
            await FallingEdge(dut.clk)
        dut.rst.value = 0

    async def tick(self):
        """Drive, let it settle, see what was taken, go to the next cycle."""
        dut, shape, rng = self.dut, self.shape, self.rng
        self._offer()
        due = self.reads.pop(0)
        data = [0 if w is None else packed(self.vectors[lane, w], 32) for lane, w in enumerate(due)]
        if any(w is not None for w in due):
            dut.mem_data.value = packed(data, 128 * shape.ports)
        ready = [rng.random() >= self.plan.gaps for _ in range(shape.ports)]
        dut.w_ready.value = packed(ready, 1)
        for answers in self.unanswered:
            if answers and rng.random() < 0.3:
                answers.pop()
        dut.writes_pending.value = packed([len(x) for x in self.unanswered], 8)
        await Timer(2, "ns")
        self._take(ready)
        await FallingEdge(dut.clk)
        self.cycle += 1

    def _offer(self):
        for port, stream in enumerate(self.streams):
            if stream and not self.offered[port]:
                self.offered[port] = self.rng.random() >= self.plan.gaps
        heads = [
            stream[0] if offered else Transfer(0, 0, 0)
            for stream, offered in zip(self.streams, self.offered, strict=True)
        ]
        dut, lanes = self.dut, self.shape.lanes
        dut.aux_valid.value = packed(self.offered, 1)
        if not any(self.offered):
            return
        widths = {"data": 512, "kind": 3, "lanes": lanes, "empty": 1, "first": 1}
        widths |= {"skip": 8, "count": 20, "pos": 20, "end": 1}
        for name, bits in widths.items():
            values = packed([getattr(head, name) for head in heads], bits)
            getattr(dut, f"aux_{name}").value = values

    def _take(self, ready):
        dut, shape = self.dut, self.shape
        aux_ready = int(dut.aux_ready.value)
        for port in range(shape.ports):
            if self.offered[port] and aux_ready >> port & 1:
                self.streams[port].pop(0)
                self.offered[port] = False
        reads = int(dut.mem_re.value)
        self.reads.append(
            [
                field(dut.mem_word, lane, shape.lanes) if reads >> lane & 1 else None
                for lane in range(shape.lanes)
            ]
        )
        self._vector_writes(int(dut.vw_we.value))
        w_valid = int(dut.w_valid.value)
        assert w_valid & (w_valid - 1) == 0, "writes on two ports"
        for port in range(shape.ports):
            if w_valid >> port & 1 and ready[port]:
                self._memory_write(port)
        self.done_rope |= int(dut.done_rope.value)
        self.done_attention |= int(dut.done_attention.value)

    def _vector_writes(self, lanes):
        dut, shape = self.dut, self.shape
        for lane in range(shape.lanes):
            if not lanes >> lane & 1:
                continue
            word = field(dut.vw_word, lane, shape.lanes)
            banks = field(dut.vw_bank, lane, shape.lanes)
            assert banks, "a write to no bank"
            for bank in range(shape.ports):
                if banks >> bank & 1:
                    number = field(
                        dut.vw_data, lane * shape.ports + bank, shape.lanes * shape.ports
                    )
                    raw = number.to_bytes(16, "little")
                    self.vectors[lane, word, 4 * bank : 4 * bank + 4] = np.frombuffer(raw, "<i4")

    def _memory_write(self, port):
        address = int(self.dut.w_addr.value) - (KV_ADDR + (port << 28))
        assert address % 64 == 0
        data = int(self.dut.w_data.value).to_bytes(64, "little")
        strobe = int(self.dut.w_strobe.value)
        for i in range(64):
            if strobe >> i & 1:
                self.memory.ports[port][address + i] = data[i]
        self.unanswered[port].append(True)

    async def until(self, condition, what, limit=20000):
        end = self.cycle + limit
        while not condition():
            assert self.cycle < end, f"{what}: not within {limit} cycles"
            await self.tick()


def packed(values, bits):
    """Field i in bits i * bits of one integer."""
    mask = (1 << bits) - 1
    result = 0
    for i, value in enumerate(values):
        result |= (int(value) & mask) << i * bits
    return result


def field(handle, index, count):
    """Field ``index`` of ``count`` equal fields; the others may be unknown yet."""
    bits = len(handle) // count
    if count == 1:
        return int(handle.value)
    if bits == 1:
        return int(handle.value[index])
    return int(handle.value[(index + 1) * bits - 1 : index * bits])


class Pass:
    """One random pass: its rows, what they must leave behind."""

    def __init__(self, card, layer, rows=None):
        self.card, self.layer = card, layer
        shape, rng = card.shape, card.rng
        self.rows = rows or random_rows(shape, rng)
        self.tables = [random_rope_row(shape, rng) for _ in self.rows]
        self.mask = (1 << len(self.rows)) - 1
        made = []
        for lane, table in enumerate(self.tables):
            vector = random_vector(shape, rng, card.plan.spread)
            flat = card.vectors[lane].reshape(-1)
            start = IN_WORD * 4 * shape.ports
            flat[start : start + vector.size] = vector
            flat[start + vector.size :] = rng.getrandbits(31)
            made.append(rope_kv(shape, vector, table))
        self.queries = [q for q, _, _ in made]
        self.fresh = [(k, v) for _, k, v in made]
        self.words = -(-vector.size // (4 * shape.ports))
        self.attending = self.mask if rng.random() < 0.7 else rng.randint(1, self.mask)
        self.out_word = IN_WORD + self.words + rng.randint(0, 2)

    def sees(self, row):
        slot_of = lambda j: row.slot if j < row.prefix_len else row.tail_slot  # noqa: E731
        stored = [
            self.card.memory.get(slot_of(j), self.layer, j) for j in range(row.lo, row.mem_len)
        ]
        return stored + [self.fresh[m] for m in row.visible]

    async def run(self):
        card, dut, shape = self.card, self.card.dut, self.card.shape
        pairs = zip(self.queries, self.rows, strict=True)
        expected = [attention(shape, query, self.sees(row)) for query, row in pairs]
        untouched = [memory.copy() for memory in card.memory.ports]
        self._set_rows()
        await self._rope()
        await card.until(lambda: int(dut.writes_idle.value) == 1, "writes")
        self._check_writes(untouched)
        await self._attend()
        for lane, want in enumerate(expected):
            if self.attending >> lane & 1:
                flat = card.vectors[lane].reshape(-1)
                start = self.out_word * 4 * shape.ports
                got = flat[start : start + want.size]
                wrong = np.flatnonzero(got != want)
                assert not wrong.size, (
                    f"lane {lane} {self.rows[lane]}: {wrong.size} of {want.size} differ, first at "
                    f"{wrong[0]}: {got[wrong[0]]} for {want[wrong[0]]}"
                )

    def _set_rows(self):
        dut, shape = self.card.dut, self.card.shape
        masks = [sum(1 << m for m in row.visible) for row in self.rows]
        dut.row_visible.value = packed(masks, shape.lanes)
        dut.row_position.value = packed([row.position for row in self.rows], 20)
        dut.row_lo.value = packed([row.lo for row in self.rows], 20)
        dut.row_tail_slot.value = packed([row.tail_slot for row in self.rows], 16)

    async def _pulse(self, name, words, active):
        dut = self.card.dut
        dut.op_word.value = packed(words, 32)
        dut.op_active.value = active
        getattr(dut, name).value = 1
        await self.card.tick()
        getattr(dut, name).value = 0

    async def _rope(self):
        card, shape = self.card, self.card.shape
        await self._pulse("start_rope_row", [10, 0, 2 * shape.head_dim // 64], self.mask)
        for stream in card.streams:
            for lane, table in enumerate(self.tables):
                raw = table.tobytes()
                for i in range(0, len(raw), 64):
                    beat = int.from_bytes(raw[i : i + 64], "little")
                    stream.append(
                        Transfer(
                            beat, KIND_ROPE_ROW, 1 << lane, first=i == 0, end=i + 64 >= len(raw)
                        )
                    )
        card.done_rope = 0
        op = [5, IN_WORD, self.words, IN_FRAC, self.layer]
        await self._pulse(
            "start_rope", [*op, shape.heads, shape.kv_heads, shape.head_dim], self.mask
        )
        assert int(card.dut.writes_idle.value) == 0
        await card.until(lambda: card.done_rope == self.mask, "ROPE_KV")

    def _check_writes(self, untouched):
        memory, layer = self.card.memory, self.layer
        now = [x.copy() for x in memory.ports]
        memory.ports = untouched
        for row, kv in zip(self.rows, self.fresh, strict=True):
            memory.put(row.tail_slot, layer, row.position, kv)
        for port, (got, want) in enumerate(zip(now, memory.ports, strict=True)):
            wrong = np.flatnonzero(got != want)
            assert not wrong.size, f"KV memory of port {port}: byte {wrong[:1]} differs"

    async def _attend(self):
        card, shape = self.card, self.card.shape
        done = set()
        for row in self.rows:
            if row.group in done:
                continue
            done.add(row.group)
            lanes = sum(1 << m for m in row.group) & self.attending
            if not lanes:
                continue
            for port, stream in enumerate(card.streams):
                stream += group_stream(card.memory, self.layer, lanes, row, port)
        card.done_attention = 0
        op = [6, self.layer, shape.heads, shape.kv_heads, shape.head_dim, self.out_word, OUT_FRAC]
        # beats may come before the instruction does
        for _ in range(card.rng.choice([0, 20])):
            await card.tick()
        begin = card.cycle
        await self._pulse("start_attention", op, self.attending)
        await card.until(lambda: card.done_attention == self.attending, "ATTENTION")
        self.cycles = card.cycle - begin
        assert not any(card.streams), "beats were left over"


async def begin(dut):
    settings = json.loads(os.environ["HETERO_ATTENTION"])
    names = Shape.__dataclass_fields__
    shape = Shape(**{k: v for k, v in settings.items() if k in names})
    plan = Plan(**{k: v for k, v in settings.items() if k not in names})
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    card = Card(dut, shape, plan)
    await card.reset()
    return card


@cocotb.test()
async def full_speed(dut):
    """A record takes sets * chunks cycles in each phase; the rest is a constant."""
    card = await begin(dut)
    shape = card.shape
    last = shape.context - 1
    row = Row(last, 0, last, 0, 0, 0, (0,), (0,))
    await Pass(card, 0, [row]).run()  # the first one computes nothing else
    busy = Pass(card, 0, [row])
    busy.attending = 1
    await busy.run()
    attn_heads, attn_bytes = (int(getattr(dut, x).value) for x in ("ATTN_HEADS", "ATTN_BYTES"))
    steps = -(-shape.heads // shape.kv_heads // attn_heads) * -(-shape.head_dim // attn_bytes)
    records = (shape.positions_of_port + 1) * shape.kv_heads
    out_elems = 8 if shape.ports >= 8 else 4
    combining = shape.heads * (2 + shape.head_dim // out_elems)
    own = 2 * records * steps + shape.k_beats + combining
    assert busy.cycles <= own + CONSTANT_CYCLES, (busy.cycles, own)


@cocotb.test()
async def random_passes(dut):
    card = await begin(dut)
    for _ in range(card.plan.passes):
        await Pass(card, card.rng.randrange(card.shape.layers)).run()
    dut._log.info("cycles: %d", card.cycle)
