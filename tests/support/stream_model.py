"""What every memory port has to deliver, in which order: the model of read_planner and memory_port.

Written from the format of the stream alone: a position's records are looked up one by one, byte
for byte, so that nothing of the hardware's arithmetic is repeated here.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

MATRIX, ROPE_ROW, GAMMA, KV_SCALE, KV_K, KV_V = range(6)
END, EMBED, NORM_QUANT, QUANT, MATMUL, ROPE_KV, ATTENTION = range(7)
SILU_GATE, HEAD, DRAW, ROPE_ROW_OP = range(7, 11)
SAMPLED_FLAG = 1 << 8
BEAT = 64
SCALE_GRANULE = 8


class Geometry(NamedTuple):
    """Strides of the KV cache on a port, in beats."""

    slot_beats: int
    layer_beats: int
    k_beats: int
    v_beats: int


class PassRow(NamedTuple):
    """One row of a pass; ``group``: the rows of its command lane, as a mask."""

    position: int
    slot: int
    tail_slot: int
    prefix_len: int
    mem_len: int
    lo: int
    group: int
    leader: bool
    sampled: bool


class Command(NamedTuple):
    """A stream command: the same for all ports. ``offset``, ``beats`` in 64-byte beats."""

    kind: int
    lanes: int
    last: bool
    offset: int
    beats: int = 0
    lo: int = 0
    hi: int = 0
    record_bytes: int = 0
    num_kv_heads: int = 0
    half: bool = False
    needed: int = 0
    """ROPE_KV instructions of this start whose writes must have been acknowledged before."""

    def packed(self, lanes: int) -> int:
        """As the hardware has it (port_planner's header)."""
        fields = [
            (self.kind, 3),
            (self.lanes, lanes),
            (self.last, 1),
            (self.offset, 32),
            (self.beats, 32),
            (self.lo, 20),
            (self.hi, 20),
            (self.record_bytes, 16),
            (self.num_kv_heads, 8),
            (self.half, 1),
        ]
        word = at = 0
        for value, width in fields:
            assert value < 1 << width
            word |= value << at
            at += width
        return word


class Transfer(NamedTuple):
    """One transfer of the aux channel. ``beat``: address (in beats) of its data, None if empty."""

    kind: int
    lanes: int
    first: bool
    skip: int
    count: int
    pos: int
    end: bool
    beat: int | None


def commands(
    program: Sequence[Sequence[int]], passes: Sequence[Sequence[PassRow]], kv: Geometry
) -> Iterator[Command]:
    """The stream of a start. ``program``: instructions of 16 words, the last one END."""
    ropes_a_pass = sum(words[0] & 0xFF == ROPE_KV for words in program)
    for number, rows in enumerate(passes):
        ropes = 0
        for words in program:
            op, *operands = words
            ropes += op & 0xFF == ROPE_KV
            live = [r for r, row in enumerate(rows) if row.sampled or not op & SAMPLED_FLAG]
            needed = max(0, (number - 1) * ropes_a_pass + ropes) if number else 0
            yield from _reads(op & 0xFF, operands, rows, live, kv, needed)


def _reads(op, operands, rows, live, kv, needed) -> Iterator[Command]:
    mask = sum(1 << r for r in live)
    if not live:
        return
    if op in (MATMUL, HEAD):
        yield Command(MATRIX, mask, True, operands[0], operands[1])
    elif op == NORM_QUANT:
        yield Command(GAMMA, mask, True, operands[3], operands[4])
    elif op == ROPE_ROW_OP:
        at, row_beats = operands[:2]
        for r in live:
            yield Command(ROPE_ROW, 1 << r, True, at + rows[r].position * row_beats, row_beats)
    elif op == ATTENTION:
        for row in rows:
            if row.leader and row.group & mask:
                yield from _kv_reads(row, row.group & mask, operands, kv, needed)


def _kv_reads(row, lanes, operands, kv, needed) -> Iterator[Command]:
    layer, _, heads, head_dim = operands[:4]
    sections = [
        (KV_SCALE, 0, SCALE_GRANULE),
        (KV_K, kv.k_beats, head_dim),
        (KV_V, kv.v_beats, head_dim),
    ]
    prefix_end = min(row.prefix_len, row.mem_len)
    tail_start = max(row.lo, row.prefix_len)
    ranges = [(row.slot, row.lo, prefix_end), (row.tail_slot, tail_start, row.mem_len)]
    for kind, section, granule in sections:
        for tail, (slot, lo, hi) in enumerate(ranges):
            yield Command(
                kind,
                lanes,
                bool(tail),
                slot * kv.slot_beats + layer * kv.layer_beats + section,
                lo=lo,
                hi=max(lo, hi),
                record_bytes=heads * granule,
                num_kv_heads=heads,
                half=head_dim == 32,
                needed=needed,
            )


def beats_of(command: Command, port: int, ports: int) -> list[int]:
    """Beats this port reads, relative to its weight share or its KV share."""
    if command.kind < KV_SCALE:
        return [command.offset + i for i in range(command.beats)]
    touched = set()
    for position in _positions(command, port, ports):
        start = position // ports * command.record_bytes
        touched |= {byte // BEAT for byte in range(start, start + command.record_bytes)}
    return [command.offset + beat for beat in sorted(touched)]


def transfers_of(command: Command, port: int, ports: int) -> list[Transfer]:
    """What the aux channel shows of a command that is no matrix."""
    beats = beats_of(command, port, ports)
    if command.kind < KV_SCALE:
        skip, count, pos = 0, len(beats), None
    else:
        positions = _positions(command, port, ports)
        granule = command.record_bytes // command.num_kv_heads
        start = positions[0] // ports * command.record_bytes if positions else 0
        skip = start % BEAT // granule
        count = len(positions) * command.num_kv_heads
        pos = positions[0] if positions else None
    last = len(beats) - 1
    if not beats:
        return [Transfer(command.kind, command.lanes, True, 0, 0, None, command.last, None)]
    ends = [command.last and i == last for i in range(len(beats))]
    return [
        Transfer(command.kind, command.lanes, i == 0, skip, count, pos, ends[i], beat)
        for i, beat in enumerate(beats)
    ]


def _positions(command: Command, port: int, ports: int) -> list[int]:
    return [j for j in range(command.lo, command.hi) if j % ports == port]
