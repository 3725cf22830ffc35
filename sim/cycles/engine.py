"""The card's clockwork, compiled: one start, pass by pass, instruction by instruction."""

from typing import Final

import numpy as np

from sim.calib.profile import Constants
from sim.cycles.dram import Dram
from sim.cycles.stream import (
    BURSTS_AHEAD,
    BUS,
    COUNTERS,
    I64,
    ISSUED,
    KV_BASE,
    LAST_AR,
    NEVER,
    READERS,
    RING,
    UNKNOWN,
    WRITES_AHEAD,
    WRITTEN,
    Clock,
    Int,
    Shape,
    come,
    group,
    pull,
    rejoin,
)
from sim.cycles.units import (
    ATTENTION,
    EMBED,
    G_SLOT,
    G_TAIL,
    HEAD,
    MATMUL,
    NORM,
    QUANT,
    R_GROUP,
    R_SAMPLED,
    R_VISIBLE,
    ROPE_KV,
    ROPE_ROW,
    SILU,
    attention,
    bounds,
    embed,
    local,
    matrix,
    rope,
    vector,
    write_back,
)
from sim.functional.integers import compiled

MEASURED: Final = 2
"""Cycles until the running maximum of the vector written last is final."""


@compiled
def run(
    ops: I64,
    items: I64,
    share: I64,
    rows: I64,
    groups: I64,
    shape: Shape,
    k: Constants,
    begin: Int,
    memory: Dram,
    base: I64,
    spent: I64,
) -> tuple[Int, Int]:
    """All passes of a start. ``ops`` [op, column], ``items`` and ``share`` as planned, ``rows``
    [pass, lane, column], filled up with rows that see nothing, ``groups`` [pass, lane, column],
    ``begin``: when the first pass is given out, ``base`` [region, port]: byte addresses. Fills
    ``spent`` [pass, op]. Returns the end and the beats that the stream read on a port.
    """
    passes, ropes = rows.shape[0], np.sum(ops[:, 0] == ROPE_KV)
    ports, sides = shape.ports, 2 if shape.ports > shape.sharing else 1
    clock = Clock(
        np.zeros(COUNTERS, np.int64),
        np.zeros((ports, COUNTERS), np.int64),
        np.zeros(ports, np.int64),
        share,
        np.zeros(ports, np.int64),
        np.zeros((ports, RING), np.int64),
        np.zeros(RING, np.int64),
        np.zeros(RING, np.int64),
        np.zeros((ports, BURSTS_AHEAD), np.int64),
        np.full((sides, items.shape[0]), UNKNOWN),
        np.full((sides, items.shape[0] + 1), UNKNOWN),
        np.zeros((ports, WRITES_AHEAD, 2), np.int64),
        np.zeros(passes * ropes + 1, np.int64),
        np.full(passes + 1, UNKNOWN),
        base,
        memory,
    )
    clock.at[READERS] = 1
    group(clock, shape)
    clock.popped[-1] = begin
    clock.current[0, 0] = begin
    if sides == 2:
        come(clock, items, 0, begin)
    clock.reader[:, BUS] = clock.reader[:, LAST_AR] = begin
    released = np.zeros(2, np.int64)
    now = begin
    for number in range(passes):
        rejoin(clock)
        now += k.pass_gap + shape.lanes
        now = run_pass(
            clock, ops, items, rows[number], groups[number], shape, k, now, spent[number], released
        )
        clock.popped[number] = now
    return now, clock.reader[0, ISSUED]


@compiled
def delay_writes(clock: Clock, begin: Int) -> None:
    """A ROPE_KV begins: writes that are not done count as done only when its own are."""
    for rope_kv in range(clock.at[WRITTEN] - 1, -1, -1):
        if clock.written[rope_kv] <= begin:
            break
        clock.written[rope_kv] = NEVER


@compiled
def join_writes(clock: Clock, written: Int) -> None:
    """They are done now, with those that waited for them."""
    for rope_kv in range(clock.at[WRITTEN] - 1, -1, -1):
        if clock.written[rope_kv] < NEVER and rope_kv < clock.at[WRITTEN] - 1:
            break
        clock.written[rope_kv] = written


@compiled
def run_pass(
    clock: Clock,
    ops: I64,
    items: I64,
    rows: I64,
    groups: I64,
    shape: Shape,
    k: Constants,
    start: Int,
    spent: I64,
    released: I64,
) -> Int:
    """The program for the rows of one pass; ``released``: of the gamma buffer's halves."""
    active = (rows[:, R_VISIBLE] > 0).astype(np.int64)
    dual: Int = 2 * np.sum(active) <= shape.arrays
    now, row_taken, half = start, start, 0
    for index in range(ops.shape[0]):
        op = ops[index]
        if op[1]:
            active *= rows[:, R_SAMPLED]
        count: Int = np.sum(active)
        if count == 0:
            break
        kind, before = op[0], now
        if kind == EMBED:
            now = embed(clock, items, shape, k, now, rows, active, op[2])
        elif kind == ROPE_ROW:
            for _ in range(count):
                row_taken = pull(clock, items, shape, k, now + 1)
            now += 2
        elif kind == NORM:
            weights = pull(clock, items, shape, k, released[half])
            now = max(now + MEASURED + shape.port_log, weights) + vector(op, shape, k)
            released[half] = now
            half = 1 - half
        elif kind in (QUANT, SILU):
            now += vector(op, shape, k) + (shape.port_log if kind == QUANT else 0)
        elif kind in (MATMUL, HEAD):
            now = matrix(clock, items, shape, k, now, op, dual)
            now += k.head if kind == HEAD else 0
        elif kind == ROPE_KV:
            delay_writes(clock, now)
            now = rope(shape, k, now, op, count, row_taken)
            written = write_back(clock, items, shape, k, now, op, rows, active)
            clock.written[clock.at[WRITTEN]] = written
            clock.at[WRITTEN] += 1
            join_writes(clock, written)
        elif kind == ATTENTION:
            now = attention(clock, items, shape, k, now, op, groups, rows, active)
        else:
            now += k.draw + count * (op[2] + k.draw_lane)
        spent[index] = now - before
    return now


@compiled
def plan_items(ops: I64, rows: I64, groups: I64, kv: I64, items: I64, share: I64) -> Int:
    """Fill ``items`` [item, column] and ``share`` [port, item, column] with what the
    planner sends to the ports, in order; returns how many. ``kv``: beats of a slot, of a layer, to
    a layer's keys and to its values."""
    number, beats, ropes, last_ropes = 0, 0, 0, 0
    for at in range(rows.shape[0]):
        active = rows[at, :, R_VISIBLE] > 0
        walked, cost = 0, 1
        for index in range(ops.shape[0]):
            op = ops[index]
            cost += 1
            if op[1]:
                active &= rows[at, :, R_SAMPLED] > 0
            if np.sum(active) == 0:
                continue
            if op[0] == ROPE_KV:
                walked += 1
            if op[0] == ATTENTION:
                fence = ropes - last_ropes + walked if at > 0 else 0
                cost += 1
                for g in range(groups.shape[1]):
                    seen = False
                    for row in range(rows.shape[1]):
                        seen |= active[row] and rows[at, row, R_GROUP] == g
                    if not seen:
                        continue
                    for phase in range(6):
                        slot = groups[at, g, G_TAIL if phase % 2 else G_SLOT]
                        place = KV_BASE + slot * kv[0] + op[5] * kv[1]
                        place += 0 if phase < 2 else kv[phase // 2 + 1]
                        size = op[3] * (8 if phase < 2 else op[4])
                        most = plan_kv(groups[at, g], phase, size, place, share[:, number])
                        items[number] = (most, at, cost, fence, 0, beats)
                        beats += most
                        number, cost = number + 1, 1
            elif op[0] == ROPE_ROW:
                wanted: Int = np.sum(active)
                for _ in range(wanted):
                    items[number] = (op[2], at, cost, 0, 1, beats)
                    share[:, number, 0], share[:, number, 1] = op[2], 0
                    beats += op[2]
                    number, cost = number + 1, 1
            elif op[6] > 0:
                items[number] = (op[6], at, cost, 0, 0, beats)
                share[:, number, 0], share[:, number, 1] = op[6], op[7]
                beats += op[6]
                number, cost = number + 1, 1
        last_ropes = walked
        ropes += walked
    for port in range(share.shape[0]):
        for item in range(1, number):
            share[port, item, 2] = share[port, item - 1, 2] + share[port, item - 1, 0]
    return number


@compiled
def plan_kv(kv_group: I64, phase: Int, size: Int, place: Int, share: I64) -> Int:
    """``share`` [port, (beats, address, 0)] of scales, keys or values of a range, ``size`` bytes a
    position; returns the largest number of beats."""
    low, high = bounds(kv_group, phase % 2)
    most, ports = 0, share.shape[0]
    for port in range(ports):
        first = local(low, port, ports) * size
        end = local(high, port, ports) * size
        beats = (end + 63) // 64 - first // 64 if end > first else 0
        share[port] = (beats, place + first // 64, 0)
        most = max(most, beats)
    return most
