"""What attention_unit's surroundings do, and what it must come to: KV memory, streams, results.

The layout is docs/draft-program.md's: position j of a slot lies on port j mod PORTS.
"""

import random
from dataclasses import dataclass

import numpy as np

from fpga.golden.attention import attend
from fpga.golden.fixed import round_shift, saturate32
from fpga.golden.quantise import Quantised, quantise

KIND_ROPE_ROW, KIND_SCALE, KIND_KEY, KIND_VALUE = 1, 3, 4, 5
IN_FRAC, OUT_FRAC = 16, 16


@dataclass(frozen=True)
class Shape:
    """Sizes of a run. ``context``: positions of a slot."""

    ports: int
    lanes: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int = 64
    layers: int = 2

    @property
    def slots(self):
        """Two for each command lane: what one writes, another must not read."""
        return 2 * self.lanes

    @property
    def record_bytes(self):
        return self.kv_heads * self.head_dim

    @property
    def positions_of_port(self):
        return -(-self.context // self.ports)

    @property
    def k_beats(self):
        return -(-self.positions_of_port * self.kv_heads * 8 // 64)

    @property
    def v_beats(self):
        return self.k_beats + -(-self.positions_of_port * self.record_bytes // 64)

    @property
    def layer_beats(self):
        return self.v_beats + -(-self.positions_of_port * self.record_bytes // 64)

    @property
    def slot_beats(self):
        return self.layers * self.layer_beats


@dataclass(frozen=True)
class Row:
    """A row of the pass. ``group``: rows of the same command lane; ``visible``: rows it sees."""

    position: int
    lo: int
    mem_len: int
    prefix_len: int
    slot: int
    tail_slot: int
    group: tuple
    visible: tuple


@dataclass(frozen=True)
class Transfer:
    """One transfer of the aux channel."""

    data: int
    kind: int
    lanes: int
    empty: bool = False
    first: bool = False
    skip: int = 0
    count: int = 0
    pos: int = 0
    end: bool = False


class KvMemory:
    """KV memory of all ports, bytes; random from the start, so that nothing stale may be used."""

    def __init__(self, shape, rng, exponents):
        self.shape = shape
        size = shape.slots * shape.slot_beats * 64
        self.ports = [
            np.frombuffer(rng.randbytes(size), np.uint8).copy() for _ in range(shape.ports)
        ]
        for slot in range(shape.slots):
            for layer in range(shape.layers):
                for position in range(shape.context):
                    self.put(slot, layer, position, random_records(shape, rng, exponents))

    def places(self, slot, layer, position):
        """Port, byte offsets of scales, keys, values of a position."""
        shape = self.shape
        local, port = divmod(position, shape.ports)
        base = (slot * shape.slot_beats + layer * shape.layer_beats) * 64
        scales = base + local * shape.kv_heads * 8
        keys = base + shape.k_beats * 64 + local * shape.record_bytes
        values = base + shape.v_beats * 64 + local * shape.record_bytes
        return port, scales, keys, values

    def put(self, slot, layer, position, kv):
        port, scales, keys, values = self.places(slot, layer, position)
        words = [x.mantissa | ((x.exponent & 0xFFFF) << 16) for x in kv]
        memory, shape = self.ports[port], self.shape
        raw = np.stack(words, axis=1).astype("<u4").tobytes()
        memory[scales : scales + 8 * shape.kv_heads] = np.frombuffer(raw, np.uint8)
        for place, x in zip((keys, values), kv, strict=True):
            memory[place : place + shape.record_bytes] = x.quant.reshape(-1).view(np.uint8)

    def get(self, slot, layer, position):
        """(keys, values) [kv_head, head_dim] of a position."""
        port, scales, keys, values = self.places(slot, layer, position)
        memory, shape = self.ports[port], self.shape
        words = memory[scales : scales + 8 * shape.kv_heads].view("<u4").reshape(-1, 2)
        kv = []
        for place, word in zip((keys, values), words.T.astype(np.int64), strict=True):
            quant = memory[place : place + shape.record_bytes].view(np.int8)
            exponent = ((word >> 16) ^ 0x8000) - 0x8000
            kv.append(Quantised(quant.reshape(shape.kv_heads, -1), word & 0xFFFF, exponent))
        return tuple(kv)

    def beats(self, port, begin, end):
        """The beats that hold bytes begin..end - 1 of a port, as integers."""
        first, last = begin // 64, -(-end // 64)
        raw = self.ports[port][first * 64 : last * 64].tobytes()
        return [int.from_bytes(raw[i : i + 64], "little") for i in range(0, len(raw), 64)]


def random_records(shape, rng, exponents):
    low, high = exponents
    np_rng = np.random.default_rng(rng.getrandbits(64))
    return tuple(
        Quantised(
            np_rng.integers(-127, 128, (shape.kv_heads, shape.head_dim)).astype(np.int8),
            np_rng.integers(1 << 15, 1 << 16, shape.kv_heads),
            np_rng.integers(low, high + 1, shape.kv_heads),
        )
        for _ in range(2)
    )


def group_stream(memory, layer, lanes_mask, row, port):
    """Transfers of one group's ATTENTION on a port: scales, keys, values of both ranges."""
    shape = memory.shape
    split = min(max(row.prefix_len, row.lo), row.mem_len)
    ranges = [(row.slot, row.lo, split), (row.tail_slot, max(row.lo, split), row.mem_len)]
    transfers = []
    for kind in (KIND_SCALE, KIND_KEY, KIND_VALUE):
        size = 8 if kind == KIND_SCALE else shape.head_dim
        for index, (slot, begin, end) in enumerate(ranges):
            positions = [j for j in range(begin, end) if j % shape.ports == port]
            if not positions:
                transfers.append(
                    Transfer(0, kind, lanes_mask, empty=True, first=True, end=index == 1)
                )
                continue
            place = memory.places(slot, layer, positions[0])[kind - KIND_SCALE + 1]
            count = len(positions) * shape.kv_heads
            beats = memory.beats(port, place, place + count * size)
            for i, beat in enumerate(beats):
                transfers.append(
                    Transfer(
                        beat,
                        kind,
                        lanes_mask,
                        first=i == 0,
                        skip=place % 64 // size if i == 0 else 0,
                        count=count if i == 0 else 0,
                        pos=positions[0] if i == 0 else 0,
                        end=index == 1 and i == len(beats) - 1,
                    )
                )
    return transfers


def rotate_neighbours(heads_hd, table_j2):
    """Elements 2i and 2i + 1 against each other, as fpga/rtl/rope_kv.sv does."""
    low, high = (heads_hd[:, i::2].astype(np.int64) for i in (0, 1))
    cos, sin = (table_j2[:, i].astype(np.int64) for i in (0, 1))
    turned = np.empty_like(heads_hd, dtype=np.int64)
    turned[:, 0::2] = low * cos - high * sin
    turned[:, 1::2] = high * cos + low * sin
    return saturate32(round_shift(turned, 14))


def rope_kv(shape, vector, table_j2):
    """Query, keys, values [head, head_dim] of a row whose q, k, v are ``vector``."""
    heads = vector.reshape(-1, shape.head_dim).astype(np.int64)
    turned = shape.heads + shape.kv_heads
    heads = np.concatenate([rotate_neighbours(heads[:turned], table_j2), heads[turned:]])
    quantised = quantise(heads, IN_FRAC)
    every = [slice(shape.heads), slice(shape.heads, turned), slice(turned, None)]
    return tuple(quantised.at(part) for part in every)


def _stacked(records):
    """Records [kv_head, head_dim] of several positions as one: [kv_head, position, head_dim]."""
    return Quantised(*(np.stack(arrays, axis=1) for arrays in zip(*records, strict=True)))


def attention(shape, query, records):
    """Output [heads * head_dim] of a row that sees ``records``, a list of (keys, values)."""
    kv = tuple(_stacked([record[i] for record in records]) for i in range(2))
    tokens = Quantised(*(x[None] for x in query))
    return attend(tokens, kv, start=len(records) - 1, out_frac=OUT_FRAC).reshape(-1)


def random_vector(shape, rng, spread):
    """q, k, v of a row; ``spread``: heads differ by up to so many bits, and some are all zero."""
    np_rng = np.random.default_rng(rng.getrandbits(64))
    heads = shape.heads + 2 * shape.kv_heads
    values = np_rng.normal(0, 1.5 * 65536, (heads, shape.head_dim))
    if spread:
        values *= 2.0 ** np_rng.integers(-spread, spread + 1, (heads, 1))
        values[np_rng.random(heads) < 0.15] = 0
        values[np_rng.random(heads) < 0.15, 0] = 2**31 - 1
    limit = 2**31 - 1
    return np.clip(np.rint(values), -limit, limit).astype(np.int64).reshape(-1)


def random_rope_row(shape, rng):
    angles = [rng.uniform(0, 6.3) for _ in range(shape.head_dim // 2)]
    pairs = [[np.cos(a), np.sin(a)] for a in angles]
    return np.rint(np.array(pairs) * 16384).astype("<i2")


def random_rows(shape, rng):
    """Rows of a pass: one or several command lanes, some with several rows."""
    rows, free_slots = [], list(range(shape.slots))
    rng.shuffle(free_slots)
    used = rng.randint(1, shape.lanes)
    while len(rows) < used:
        count = rng.randint(1, used - len(rows))
        slot = free_slots.pop()
        tail = rng.choice([slot, free_slots.pop()])
        mem_len = rng.choice([0, 1, rng.randint(0, shape.context - count)])
        prefix = rng.choice([0, mem_len, rng.randint(0, mem_len + 3)])
        window = rng.choice([0, 0, 1, 3, shape.context // 2])
        is_tree = rng.random() < 0.3
        group = tuple(range(len(rows), len(rows) + count))
        for index in group:
            position = mem_len + (0 if is_tree else index - group[0])
            lo = max(0, position + 1 - window) if window else 0
            visible = (index,) if is_tree else group[: index - group[0] + 1]
            rows.append(Row(position, lo, mem_len, prefix, slot, tail, group, visible))
    return rows


def seeded(seed):
    return random.Random(seed)
