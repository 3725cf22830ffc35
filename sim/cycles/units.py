"""The units, compiled: when an instruction that starts now is done, what it takes of the stream.

Names are those of fpga/rtl; ``Constants`` are fitted to it (sim/calib/engine.toml).
"""

from typing import Final

import numpy as np

from sim.calib.profile import Constants
from sim.cycles.stream import (
    BEAT_BYTES,
    FREE_AT,
    FRONT,
    I64,
    I_BEATS,
    MASK,
    NEVER,
    READY,
    TAKEN,
    UNKNOWN,
    Clock,
    Int,
    Shape,
    arrival,
    gather,
    next_item,
    one,
    pull,
    reader_of,
    refill,
    write,
)
from sim.functional.integers import compiled

QUEUE_TILES: Final = 8
BLOCK_TILES: Final = 8
CHUNK_PAIRS: Final = 8
CANDIDATES: Final = 64
TILE_ROWS: Final = 4
SORTING: Final = 2
"""Logits of a port on their way to their places: a register and a leaf of the tree."""
RING_HEADS: Final = 8

EMBED, NORM, QUANT, MATMUL, ROPE_KV, ATTENTION, SILU, HEAD, DRAW, ROPE_ROW = range(1, 11)
"""Kinds of instruction: column 0 of ``ops``."""

R_VISIBLE, R_GROUP, R_SAMPLED, R_TOKEN, R_POSITION = range(5)
"""Columns of ``rows``: rows of the pass that it sees, its group, whether its successor is drawn,
its token (-1: not known), its position."""

G_LO, G_PREFIX, G_END, G_SLOT, G_TAIL = range(5)
"""Columns of ``groups``: a command lane's positions in memory, where its tail begins, the slots of
what lies before and from there on."""


@compiled
def bounds(group: I64, part: Int) -> tuple[Int, Int]:
    """Global positions of R0 (part 0) or R1."""
    tail = max(group[G_LO], group[G_PREFIX])
    if part == 0:
        return group[G_LO], max(group[G_LO], min(group[G_PREFIX], group[G_END]))
    return tail, max(tail, group[G_END])


@compiled
def positions(group: I64, part: Int, ports: Int) -> Int:
    """How many of them lie on the port that has most."""
    low, high = bounds(group, part)
    return (high - low + ports - 1) // ports


@compiled
def local(position: Int, port: Int, ports: Int) -> Int:
    """How many positions below this one lie on the port."""
    return (position - port + ports - 1) // ports


@compiled
def owner(rows: I64, row: Int, ports: Int) -> Int:
    """The port of a row's token; without one, as if tokens were spread evenly."""
    token = rows[row, R_TOKEN]
    return row % ports if token < 0 else (token // TILE_ROWS) % ports


@compiled
def embed(
    clock: Clock,
    items: I64,
    shape: Shape,
    k: Constants,
    start: Int,
    rows: I64,
    active: I64,
    pairs: Int,
) -> Int:
    """EMBED: mantissa and row of each lane, lane after lane, each from its token's port.

    A port takes a request when it has sent the one before.
    """
    steps = 32 // min(4 * shape.ports, 32)
    done, ask = start, start
    sent = np.zeros(shape.ports, np.int64)
    for row in range(rows.shape[0]):
        if not active[row]:
            continue
        port = owner(rows, row, shape.ports)
        reader = reader_of(clock, shape, port)
        ask = max(ask, sent[port] - 5)
        first, last, asked = gather(clock, items, shape, k, ask + 4, 1, reader)
        ask = max(ask, asked - 5)
        first, last, sent[port] = gather(clock, items, shape, k, ask + 5, 2 * pairs, reader)
        write = first
        for pair in range(pairs):
            write = max(write, first + (last - first) * (pair + 1) // pairs) + steps
        done = max(done, write)
        ask += k.embed_lane
    return max(done, start + k.embed_lane * shape.lanes) + k.embed


@compiled
def drain_tile(shape: Shape, k: Constants, op: I64, tile: Int) -> Int:
    """Cycles of a tile in its drain. HEAD: of random logits, those among the best 64 so far are
    sorted in, all ports' one after the other, and the drains wait for that."""
    # Those that are on their way do not raise the threshold yet.
    seen = TILE_ROWS * shape.ports * (tile + 0.5) - SORTING * shape.ports
    expected = TILE_ROWS * shape.ports * min(1.0, CANDIDATES / max(seen, 1.0))
    if op[0] != HEAD or expected < 1:
        return k.tile
    # Two ports, each taken from every second cycle, leave gaps where one has nothing.
    cost = 1 + (k.insert / 16 if shape.ports == 2 else 0)
    if seen < CANDIDATES:
        return max(k.tile, np.int64(expected * cost + 0.5))
    # As many as come by chance: Poisson's law.
    likely, cycles = np.exp(-expected), 0.0
    for count in range(4 * TILE_ROWS * shape.ports):
        cycles += likely * max(float(k.tile), count * cost)
        likely *= expected / (count + 1)
    return np.int64(cycles + 0.5)


@compiled
def matrix(
    clock: Clock,
    items: I64,
    shape: Shape,
    k: Constants,
    start: Int,
    op: I64,
    dual: Int,
) -> Int:
    """MATMUL's and HEAD's walk over a port's stream; when the last tile is through its drain."""
    tiles, pairs, int4, header = op[2], op[3], op[4] == 4, op[5]
    steps = shape.array_steps
    at, ready, taken = clock.at, clock.ready, clock.taken  # a tuple's arrays cost on each use
    popped = np.zeros(QUEUE_TILES, np.int64)
    time, drained, chunk = max(start + 1, at[FREE_AT]), np.int64(0), 0
    beat = at[TAKEN]
    for tile in range(tiles):
        if tile & BLOCK_TILES - 1 == 0:
            chunk = 0
            for _ in range(header):
                time = one(clock, items, shape, k, time) + 1
            beat = at[TAKEN]
        if tile >= QUEUE_TILES:
            time = max(time, popped[tile & QUEUE_TILES - 1] + k.room)
        left = pairs
        while left > 0:
            # Pairs up to the next scale beat. Beats come evenly and go evenly, so that either the
            # first or the last one holds up the end.
            size = min(left, CHUNK_PAIRS - chunk) if int4 else left
            scale = int(int4 and chunk == 0)
            last = beat + 2 * size + scale - 1
            if at[READY] <= last:
                arrival(clock, items, shape, k, last, time)
            if steps > 1:
                time = max(time, ready[beat + scale & MASK])
            for index in range(beat, last + 1):
                place = index - beat
                offset = place + scale >> 1 if dual else max(place - scale, 0)
                taken[index & MASK] = max(ready[index & MASK], time + offset * steps)
            transfers = size * steps + scale if dual else 2 * size * steps
            time = max(time + transfers, ready[last & MASK] + steps)
            left, beat = left - size, last + 1
            chunk = chunk + size & CHUNK_PAIRS - 1
            at[TAKEN] = beat
        drained = max(drained, time - 1 + k.array) + drain_tile(shape, k, op, tile)
        popped[tile & QUEUE_TILES - 1] = drained
    next_item(clock, items, time - 1)
    return max(drained, time) + k.drain


@compiled
def records(
    clock: Clock,
    items: I64,
    shape: Shape,
    k: Constants,
    earliest: Int,
    begin: Int,
    count: Int,
    head_dim: Int,
    steps: Int,
) -> Int:
    """Keys or values of a range, ``count`` records from ``begin`` on; when the last is done."""
    at, ready, taken = clock.at, clock.ready, clock.taken
    time = max(earliest, at[FREE_AT]) - 1
    worked, left = begin, count
    beats, first = items[at[FRONT], I_BEATS], at[TAKEN]
    granules = 2 if head_dim == 32 else 1
    for beat in range(first, first + beats):
        if at[READY] <= beat:
            at[TAKEN] = beat
            arrival(clock, items, shape, k, beat, time)
        time = max(time + 1, worked - 4 * steps, ready[beat & MASK])
        taken[beat & MASK] = time
        if head_dim <= 64 or (beat - first) & 1:
            size = min(left, granules)
            worked = max(worked, time + k.record) + size * steps
            left -= size
    at[TAKEN] = first + beats
    if beats == 0:
        time += 1
    next_item(clock, items, time)
    return max(worked, time + k.record)


@compiled
def attention(
    clock: Clock,
    items: I64,
    shape: Shape,
    k: Constants,
    start: Int,
    op: I64,
    groups: I64,
    rows: I64,
    active: Int,
) -> Int:
    """ATTENTION: group after group, each its keys, then its values. ``active``: bool [row]."""
    heads, kv_heads, head_dim = op[2], op[3], op[4]
    group = heads // kv_heads
    sets = -(-group // shape.attention_heads)
    steps = sets * max(1, head_dim // shape.attention_bytes)
    walk = heads + k.walk + k.tree * shape.port_log
    begin, done = start + group + k.attention, start
    for g in range(groups.shape[0]):
        fresh = 0
        for row in range(rows.shape[0]):
            if active[row] and rows[row, R_GROUP] == g:
                fresh = max(fresh, rows[row, R_VISIBLE] * kv_heads * steps)
        if fresh == 0:
            continue
        pull(clock, items, shape, k, begin)
        pull(clock, items, shape, k, begin)
        ready, end = begin, begin
        for phase in range(2):
            worked = ready + fresh
            for part in range(2):
                count = positions(groups[g], part, shape.ports) * kv_heads
                worked = records(clock, items, shape, k, ready, worked, count, head_dim, steps)
            end = worked + (k.keys if phase == 0 else k.values)
            ready = end + walk
        # The sums' total and the sums themselves are walked over like the largest scores.
        done = max(done, ready + heads * head_dim // shape.out_elements + k.sums)
        clock.at[FREE_AT] += k.group + (k.half if head_dim == 32 else 0)
    return done


@compiled
def vector(op: I64, shape: Shape, k: Constants) -> Int:
    """NORM_QUANT, QUANT, SILU_GATE without waiting: cycles from start to start."""
    words, covered, tree = op[2], op[3], shape.port_log
    if op[0] == SILU:
        return words + k.silu
    if op[0] == QUANT:
        measure = 0 if covered else words + k.quant_measure + k.quant_tree * tree
        return measure + max(words + k.quant, k.quant_scale)
    measure = 0 if covered else words + k.norm_measure + k.norm_tree * tree
    return measure + words + k.norm_tree * tree + max(words + k.norm, k.norm_scale)


@compiled
def room_in_ring(taken: I64, head: Int, k: Constants) -> Int:
    """When a head finds a place in the ring of eight, in quarter cycles."""
    return taken[head - RING_HEADS] + 4 * k.rope_ring if head >= RING_HEADS else 0


@compiled
def rope(shape: Shape, k: Constants, start: Int, op: I64, rows: Int, row_taken: Int) -> Int:
    """ROPE_KV: when it is done; its keys and values are then on their way to memory.

    A lane's heads go through a ring one after the other; keys and values of all lanes are taken
    one a cycle, those of the lowest lane first. Times are those at which a head enters, or would
    have entered to be taken when it was.
    """
    heads, kv_heads, head_dim = op[2], op[3], op[4]
    groups = head_dim // min(16, 4 * shape.ports)
    # A word of vector memory comes in four cycles of five; up to 4 ports it is one group.
    cycles = 5 * groups if shape.ports <= 4 else 4 * groups
    total = heads + 2 * kv_heads
    taken = np.zeros((rows, total), np.int64)  # quarter cycles
    begin = 4 * max(start + heads // kv_heads, row_taken)
    for head in range(heads):
        time = begin if head == 0 else taken[0, head - 1] + cycles
        taken[:, head] = max(time, room_in_ring(taken[0], head, k))
    entered = np.full(rows, taken[0, heads - 1] + cycles)
    following = np.full(rows, heads)  # head of each lane that is to be taken next
    now: Int = 0
    for _ in range(rows * 2 * kv_heads):
        first, chosen = NEVER, 0
        for row in range(rows):
            head = following[row]
            if head == total:
                continue
            time = max(now, entered[row], room_in_ring(taken[row], head, k))
            if time < first:
                first, chosen = time, row
        head = following[chosen]
        entered[chosen] = max(entered[chosen], room_in_ring(taken[chosen], head, k)) + cycles
        taken[chosen, head] = first
        following[chosen] += 1
        now = first + 4
    last: Int = taken[:, total - 1].max()
    return (last + cycles + 3) // 4 + groups + k.rope


@compiled
def write_back(
    clock: Clock,
    items: I64,
    shape: Shape,
    k: Constants,
    start: Int,
    op: I64,
    rows: I64,
    active: I64,
) -> Int:
    """When keys and values of a ROPE_KV that is done at ``start`` are in memory.

    One request after the other, each to the port of its row, behind the reads that its memory has
    taken before.
    """
    kv_heads, head_dim = op[3], op[4]
    requests = kv_heads * (5 if head_dim == 128 else 3)
    time, memory = start + k.write_begin, clock.memory
    written = time
    for row in range(rows.shape[0]):
        if not active[row]:
            continue
        time += k.write_row
        if memory.is_banked:
            reader = reader_of(clock, shape, rows[row, R_POSITION] % shape.ports)
            refill(clock, items, shape, k, reader, start, UNKNOWN)
            for request in range(requests):
                place = clock.base[1, 0] + BEAT_BYTES * request
                write(clock, reader, place, time + request * k.write_record)
            free = memory.free_at[reader if shape.sharing == 1 else 0] + memory.turnaround_units
            free += requests * memory.access_units
            written = max(written, free // memory.units_per_cycle)
        time += requests * k.write_record
        written = max(written, time)
    return written + memory.latency_cycles + k.write_end
