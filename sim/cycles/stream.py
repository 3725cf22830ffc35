"""A memory port's stream, compiled: commands, bursts, credits, the FIFO, and gathers past it.

The stream is taken in order and by all ports at once, so two times are kept of each beat: when it
was there on every port (readers: commands, bursts, credits for the FIFO) and when it was taken (the
units). A reader is driven as far as the units need it, or up to a gather that goes before it.

Ports have the same shares of the weights, but not of the KV. A beat's number is that of the port
with the largest share; for others the last ones of a KV item are not there, but counted. One reader
stands for all ports that have done the same so far. A gather holds up one port, which has a reader
of its own from then on, until both have come to the same state again. Ports that share one memory
stay together, taken to ask for the same at the same time; the last one's answer counts.
Names are those of fpga/rtl; ``Constants`` are fitted to it (sim/calib/engine.toml).
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.calib.profile import Constants
from sim.cycles.dram import Dram, serve, serve_run
from sim.functional.integers import compiled

Int = Any
"""An integer of compiled code."""

I64 = NDArray[np.int64]

RING: Final = 4096
"""Beats whose times are remembered; more than any FIFO, a power of two."""
MASK: Final = RING - 1
BEAT_BYTES: Final = 64
BURSTS_AHEAD: Final = 64
TAGS_AHEAD: Final = 62
WRITES_AHEAD: Final = 512
PASSES_AHEAD: Final = 3
NEVER: Final = 1 << 60
UNKNOWN: Final = -1
KV_BASE: Final = 1 << 40
"""Item addresses from here on are those of the KV region."""


class Shape(NamedTuple):
    """Of a build. ``parts``: transfers of a beat; ``array_steps``: cycles of a beat in an array;
    ``sharing``: ports on port 0's channel of the memory."""

    ports: int
    port_log: int
    parts: int
    lanes: int
    arrays: int
    array_steps: int
    fifo_beats: int
    burst_beats: int
    stages: int
    sharing: int
    attention_heads: int
    attention_bytes: int
    out_elements: int


class Clock(NamedTuple):
    """What happened so far. All int64, written in place."""

    at: I64  # counters of all ports, below
    reader: I64  # [reader, counter] below
    member: I64  # [port] its reader
    share: I64  # [port, item, (beats, address in beats, beats before it)]
    kind: I64  # [reader] a port whose share is its own
    arrived: I64  # [reader, RING] beats of the stream, at the channel
    ready: I64  # [RING] beats that are there on all ports
    taken: I64  # [RING]
    returned: I64  # [reader, BURSTS_AHEAD] when a burst's last beat came
    planned: I64  # [side, item] when its command left the planner for port 0, for the others
    current: I64  # [side, item] when the channel came to it
    writes: I64  # [reader, WRITES_AHEAD, (time, address)] KV writes on their way
    written: I64  # [rope] when the KV of that ROPE_KV is in memory
    popped: I64  # [pass] when the sequencer took it, UNKNOWN before
    base: I64  # [region, sharing port] byte addresses of weights and KV
    memory: Dram  # a channel for each reader, unless ports share one


TAKEN, READY, WRITTEN, FRONT, FREE_AT, READERS = range(6)
"""Indexes of ``Clock.at``: beats taken and there, ROPE_KVs in memory, item at the channel, when the
beat before it was taken, readers in use."""

ITEM, OFFSET, ISSUED, LAST_AR, BUS, BURSTS, ROOM_ITEM, SENT, WRITES = range(9)
"""Columns of ``Clock.reader``: item and beat in it, beats asked for, last AR, last busy R cycle,
bursts asked for, item that last made room in the FIFO, KV writes that memory has seen, all of
them."""
COUNTERS: Final = 9

I_BEATS, I_PASS, I_COST, I_FENCE, I_FREE, I_START = range(6)
"""Columns of ``items``: beats, pass, cycles of the planner, ROPE_KVs to wait for, whether ports but
the first one take it without anyone asking, number of its first beat."""
ITEM_COLUMNS: Final = 6
SHARE_COLUMNS: Final = 3


@compiled
def plan(clock: Clock, items: I64, side: Int, item: Int, limit: Int) -> bool:
    """When the command of an item left the planner; False while that depends on what is to come,
    or on KV writes that are not done by ``limit``: another ROPE_KV may yet delay them.

    A port takes it when it has room for it and every port has taken the one before.
    """
    if clock.planned[side, item] != UNKNOWN:
        return True
    fence, number = items[item, I_FENCE], items[item, I_PASS]
    if fence > clock.at[WRITTEN] or (fence > 0 and clock.written[fence - 1] > limit):
        return False
    if item >= TAGS_AHEAD and clock.current[side, item - TAGS_AHEAD] == UNKNOWN:
        return False
    if number >= PASSES_AHEAD and clock.popped[number - PASSES_AHEAD] == UNKNOWN:
        return False
    time = clock.popped[-1]
    if item > 0:
        for other in range(clock.planned.shape[0]):
            if not plan(clock, items, other, item - 1, limit):
                return False
            time = max(time, clock.planned[other, item - 1])
    if number >= PASSES_AHEAD:
        time = max(time, clock.popped[number - PASSES_AHEAD])
    time += items[item, I_COST]
    if fence > 0:
        time = max(time, clock.written[fence - 1])
    if item >= TAGS_AHEAD:
        time = max(time, clock.current[side, item - TAGS_AHEAD])
    clock.planned[side, item] = time
    return True


@compiled
def ask(clock: Clock, reader: Int, port: Int, base: Int, time: Int) -> Int:
    """When a beat of the stream is at the ``port``-th of the ports that share the reader's
    memory."""
    is_kv = base >= KV_BASE
    beat = base - KV_BASE if is_kv else base
    address = clock.base[int(is_kv), port] + BEAT_BYTES * beat
    at = clock.reader[reader]
    while at[SENT] < at[WRITES]:
        sent, place = clock.writes[reader, at[SENT] % WRITES_AHEAD]
        if sent > time:
            break
        serve(clock.memory, reader, place, 1, sent)
        at[SENT] += 1
    return serve(clock.memory, reader, address, 0, time)


@compiled
def ask_run(
    clock: Clock, reader: Int, port: Int, base: Int, beats: Int, time: Int, first: Int
) -> None:
    """The same for a burst: fills ``arrived`` with when memory has each beat at the port."""
    if clock.reader[reader, SENT] < clock.reader[reader, WRITES]:
        for beat in range(beats):
            answer = ask(clock, reader, port, base + beat, time)
            clock.arrived[reader, first + beat & MASK] = answer
        return
    is_kv = base >= KV_BASE
    address = clock.base[int(is_kv), port] + BEAT_BYTES * (base - KV_BASE if is_kv else base)
    serve_run(clock.memory, reader, address, beats, time, clock.arrived[reader], first)


@compiled
def write(clock: Clock, reader: Int, address: Int, time: Int) -> None:
    """A KV write that will be sent at ``time``: memory sees it when it is its turn."""
    at = clock.reader[reader]
    clock.writes[reader, at[WRITES] % WRITES_AHEAD] = (time, address)
    at[WRITES] += 1
    if at[WRITES] - at[SENT] > WRITES_AHEAD:
        at[SENT] += 1


@compiled
def refill(
    clock: Clock, items: I64, shape: Shape, k: Constants, reader: Int, limit: Int, wanted: Int
) -> None:
    """Ask for bursts of the stream until ``limit``, and until beat ``wanted`` is among them, as far
    as what was taken so far gives room."""
    at, taken = clock.reader[reader], clock.taken  # a tuple's arrays cost on each use
    arrived, returned = clock.arrived[reader], clock.returned[reader]
    share = clock.share[clock.kind[reader]]
    side: Int = min(clock.kind[reader], clock.planned.shape[0] - 1)
    side = min(side, 1)
    issued, bus, item, offset, last_ar = at[ISSUED], at[BUS], at[ITEM], at[OFFSET], at[LAST_AR]
    bursts, limit_taken, room_item = at[BURSTS], clock.at[TAKEN], at[ROOM_ITEM]
    latency, size = clock.memory.latency_cycles, shape.burst_beats
    while item < items.shape[0]:
        known = limit if issued > wanted else NEVER
        if offset == 0 and not plan(clock, items, side, item, known):
            break
        base = share[item, 1] + offset
        beats = min(size - (base & size - 1), share[item, 0] - offset)
        # A burst needs room for a whole one: the beat that makes it, counted on this port.
        freed = share[item, 2] + offset - shape.fifo_beats + size - 1
        if freed >= 0:
            while share[room_item, 2] + share[room_item, 0] <= freed:
                room_item += 1
            freed += items[room_item, I_START] - share[room_item, 2]
        time = max(last_ar + 1, clock.planned[side, item] + k.command_to_read + shape.stages)
        if beats > 0:
            if freed >= limit_taken:
                early = clock.current[side, room_item]
                if side == 0 or items[room_item, I_FREE] == 0 or early == UNKNOWN:
                    break
                time = max(time, early + freed - items[room_item, I_START] + k.credit)
            elif freed >= 0:
                time = max(time, taken[freed & MASK] + k.credit)
            if bursts >= BURSTS_AHEAD:
                time = max(time, returned[bursts % BURSTS_AHEAD] + k.tag)
            if time > limit and issued > wanted:
                break
            if clock.memory.is_banked:
                for port in range(shape.sharing):
                    ask_run(clock, reader, port, base, beats, time, issued)
                for beat in range(issued, issued + beats):
                    bus = max(bus, arrived[beat & MASK] - 1) + shape.parts
                    arrived[beat & MASK] = bus + k.read_to_channel
            else:  # nothing but the first beat's latency can be later than the bus
                bus = max(bus, time + latency - 1)
                for beat in range(issued, issued + beats):
                    bus += shape.parts
                    arrived[beat & MASK] = bus + k.read_to_channel
            returned[bursts % BURSTS_AHEAD] = bus
            bursts += 1
            issued += beats
            last_ar = time
        offset += beats
        if offset == share[item, 0]:
            missing = items[item, I_BEATS] - offset
            for beat in range(issued, issued + missing):
                arrived[beat & MASK] = max(bus, time) + k.read_to_channel
            issued += missing
            offset = 0
            item += 1
    at[ISSUED], at[BUS], at[ITEM], at[OFFSET], at[LAST_AR] = issued, bus, item, offset, last_ar
    at[BURSTS], at[ROOM_ITEM] = bursts, room_item


@compiled
def arrival(clock: Clock, items: I64, shape: Shape, k: Constants, beat: Int, now: Int) -> Int:
    """When a beat of the stream is at the channel of every port.

    ``now``: nothing will go before the stream until then, so readers are driven that far at once.
    """
    if clock.at[READY] <= beat:
        count = clock.at[READERS]
        end = NEVER
        for reader in range(count):
            if clock.reader[reader, ISSUED] <= beat:
                refill(clock, items, shape, k, reader, now, beat)
                if clock.reader[reader, ISSUED] <= beat:
                    raise RuntimeError("the cycle model: a reader stands still")
            end = min(end, clock.reader[reader, ISSUED])
        for place in range(clock.at[READY], end):
            latest = clock.arrived[0, place & MASK]
            for reader in range(1, count):
                latest = max(latest, clock.arrived[reader, place & MASK])
            clock.ready[place & MASK] = latest
        clock.at[READY] = end
    return clock.ready[beat & MASK]


@compiled
def one(clock: Clock, items: I64, shape: Shape, k: Constants, time: Int) -> Int:
    """Take the next beat, at ``time`` or when it is there; when that is."""
    beat = clock.at[TAKEN]
    time = max(time, arrival(clock, items, shape, k, beat, time))
    clock.taken[beat & MASK] = time
    clock.at[TAKEN] = beat + 1
    return time


@compiled
def next_item(clock: Clock, items: I64, time: Int) -> None:
    """The channel goes on to the next item, after a beat or an event taken at ``time``."""
    clock.at[FRONT] += 1
    clock.at[FREE_AT] = time + 1
    front = clock.at[FRONT]
    clock.current[0, front] = time + 1
    if clock.current.shape[0] == 2 and items[front - 1, I_FREE] == 0:
        come(clock, items, front, time + 1)


@compiled
def come(clock: Clock, items: I64, front: Int, time: Int) -> None:
    """The channels of ports but the first one come to an item, and past what they take freely."""
    clock.current[1, front] = time
    while front < items.shape[0] and items[front, I_FREE]:
        clock.current[1, front + 1] = clock.current[1, front] + items[front, I_BEATS]
        front += 1


@compiled
def pull(clock: Clock, items: I64, shape: Shape, k: Constants, ready: Int) -> Int:
    """Take a whole item at up to a beat a cycle from ``ready`` on; when its last beat was taken."""
    time = max(ready, clock.at[FREE_AT]) - 1
    for _ in range(items[clock.at[FRONT], I_BEATS]):
        time = one(clock, items, shape, k, time + 1)
    next_item(clock, items, time)
    return time


@compiled
def group(clock: Clock, shape: Shape) -> None:
    """At the beginning: a reader for all ports with the same shares."""
    for port in range(shape.ports):
        reader = min(port, 1)  # the first port has one of its own
        while reader < clock.at[READERS]:
            if np.array_equal(clock.share[port], clock.share[clock.kind[reader]]):
                break
            reader += 1
        if shape.sharing > 1:
            reader = 0
        if reader == clock.at[READERS]:
            clock.at[READERS] += 1
            clock.kind[reader] = port
        clock.member[port] = reader


@compiled
def reader_of(clock: Clock, shape: Shape, port: Int) -> Int:
    """The reader of a port that is about to do what others do not."""
    own = clock.member[port]
    if shape.sharing > 1 or np.sum(clock.member == own) == 1:
        return own
    reader = clock.at[READERS]
    clock.at[READERS] += 1
    copy_reader(clock, own, reader)
    clock.member[port] = reader
    return reader


@compiled
def copy_reader(clock: Clock, source: Int, target: Int) -> None:
    """With its channel of the memory."""
    memory = clock.memory
    clock.kind[target] = clock.kind[source]
    for table in (clock.reader, clock.returned, clock.arrived):
        table[target] = table[source]
    clock.writes[target] = clock.writes[source]
    if memory.is_banked:
        for banks in (memory.row, memory.opened, memory.busy_until):
            banks[target] = banks[source]
        for channels in (memory.free_at, memory.was_write):
            channels[target] = channels[source]


@compiled
def rejoin(clock: Clock) -> None:
    """Readers that have come to another's state give up their own."""
    for reader in range(clock.at[READERS] - 1, 0, -1):
        for other in range(1, reader):
            if is_same(clock, reader, other):
                leave(clock, reader, other)
                break


@compiled
def is_same(clock: Clock, reader: Int, other: Int) -> bool:
    """Whether two readers will go on alike."""
    same = np.array_equal(clock.share[clock.kind[reader]], clock.share[clock.kind[other]])
    for counter in (ITEM, OFFSET, ISSUED, LAST_AR, BUS):
        same &= clock.reader[reader, counter] == clock.reader[other, counter]
    return same


@compiled
def leave(clock: Clock, reader: Int, other: Int) -> None:
    """The ports of a reader go over to another; the last reader takes its place."""
    last = clock.at[READERS] - 1
    for port in range(clock.member.shape[0]):
        if clock.member[port] == reader:
            clock.member[port] = other
        elif clock.member[port] == last:
            clock.member[port] = reader
    if last != reader:
        copy_reader(clock, last, reader)
    clock.at[READERS] = last


@compiled
def gather(
    clock: Clock, items: I64, shape: Shape, k: Constants, time: Int, beats: Int, reader: Int
) -> tuple[Int, Int, Int]:
    """A read past the stream: when its first beat and its last one are there, and its last AR."""
    refill(clock, items, shape, k, reader, time, UNKNOWN)
    at, returned = clock.reader[reader], clock.returned[reader]
    first, asked = 0, 0
    for beat in range(beats):
        if beat % shape.burst_beats == 0:
            asked = max(at[LAST_AR] + 1, time)
            if at[BURSTS] >= BURSTS_AHEAD:
                asked = max(asked, returned[at[BURSTS] % BURSTS_AHEAD] + k.tag)
            at[LAST_AR] = asked
            at[BURSTS] += 1
        at[BUS] = max(at[BUS], ask(clock, reader, 0, beat, asked) - 1) + shape.parts
        returned[(at[BURSTS] - 1) % BURSTS_AHEAD] = at[BUS]
        if beat == 0:
            first = at[BUS]
    return first, at[BUS], asked
