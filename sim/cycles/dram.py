"""When a card's memory answers: sim/rtl/memory_model.hpp, statement for statement.

The RTL runs against the C++ text, the cycle model against this one; tests/rtl/test_dram_model.py
holds both to the same times over random traces.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.functional.integers import compiled
from sim.rtl.parameters import MemoryTiming

Int = Any
"""An integer of compiled code."""

I64 = NDArray[np.int64]

ACCESS_BYTES: Final = 64


class Dram(NamedTuple):
    """Parameters as MemoryTiming tells them, in its order, and what the channels remember."""

    is_banked: int
    channels: int
    latency_cycles: int
    units_per_cycle: int
    access_units: int
    banks: int
    row_bytes: int
    row_miss_units: int
    row_cycle_units: int
    turnaround_units: int
    refresh_interval_units: int
    refresh_units: int
    skew_cycles: int
    row: I64  # [channel, bank] that is open, -1: none
    opened: I64  # [channel, bank] when
    busy_until: I64  # [channel, bank]
    free_at: I64  # [channel]
    was_write: I64  # [channel]


def dram(timing: MemoryTiming) -> Dram:
    """A memory that nobody has used yet."""
    banks = (timing.channels, timing.banks)
    return Dram(
        is_banked=int(timing.is_banked),
        channels=timing.channels,
        latency_cycles=timing.latency_cycles,
        units_per_cycle=timing.units_per_cycle,
        access_units=timing.access_units,
        banks=timing.banks,
        row_bytes=timing.row_bytes,
        row_miss_units=timing.row_miss_units,
        row_cycle_units=timing.row_cycle_units,
        turnaround_units=timing.turnaround_units,
        refresh_interval_units=timing.refresh_interval_units,
        refresh_units=timing.refresh_units,
        skew_cycles=timing.skew_cycles,
        row=np.full(banks, -1, dtype=np.int64),
        opened=np.zeros(banks, dtype=np.int64),
        busy_until=np.zeros(banks, dtype=np.int64),
        free_at=np.zeros(timing.channels, dtype=np.int64),
        was_write=np.zeros(timing.channels, dtype=np.int64),
    )


@compiled
def serve(memory: Dram, port: Int, address: Int, is_write: Int, cycle: Int) -> Int:
    """Cycle in which the access that contains ``address`` is at the port (a read's first beat, a
    write's response), when it arrives at ``cycle``. Call in order of arrival."""
    m = memory
    answer = m.latency_cycles + (5 * port) % (m.skew_cycles + 1)
    if not m.is_banked:
        return cycle + answer
    channel = port % m.channels
    begin = _begin(m, channel, address // m.row_bytes, is_write, cycle * m.units_per_cycle)
    return (begin + m.units_per_cycle - 1) // m.units_per_cycle + answer


@compiled
def serve_run(
    m: Dram, port: Int, address: Int, accesses: Int, cycle: Int, answers: I64, first: Int
) -> None:
    """``serve`` for sequential reads that arrive in one cycle, several times as fast.

    Fills ``answers`` from index ``first`` on, as a ring whose size is a power of two.
    """
    answer = m.latency_cycles + (5 * port) % (m.skew_cycles + 1)
    channel, mask = port % m.channels, answers.shape[0] - 1
    now = cycle * m.units_per_cycle
    free = m.free_at[channel] + (m.turnaround_units if m.was_write[channel] else 0)
    interval, due = m.refresh_interval_units, np.int64(-1)
    row_index = address // m.row_bytes
    left_in_row = (row_index + 1) * m.row_bytes - address
    bank, row, ready = np.int64(0), np.int64(0), now
    is_new = True
    for access in range(accesses):
        if is_new:
            bank, row = row_index % m.banks, row_index // m.banks
            ready, is_new = now, False
            if m.row[channel, bank] != row:
                is_first = m.row[channel, bank] == -1
                may_open = 0 if is_first else m.opened[channel, bank] + m.row_cycle_units
                opened = max(now, m.busy_until[channel, bank], may_open)
                m.row[channel, bank] = row
                m.opened[channel, bank] = opened
                ready = opened + m.row_miss_units
        start = max(ready, free)
        if interval > 0:
            if due < 0 or start >= due + interval:
                due = start // interval * interval
            if due != 0 and start < due + m.refresh_units:
                start = due + m.refresh_units
        free = start + m.access_units
        cycles = (start + m.units_per_cycle - 1) // m.units_per_cycle
        answers[first + access & mask] = cycles + answer
        left_in_row -= ACCESS_BYTES
        if left_in_row <= 0 or access == accesses - 1:
            m.busy_until[channel, bank] = free
            row_index += 1
            left_in_row = m.row_bytes
            is_new, ready = True, now
    m.free_at[channel] = free
    m.was_write[channel] = 0


@compiled
def _begin(m: Dram, channel: Int, row_index: Int, is_write: Int, now: Int) -> Int:
    """When the transfer of an access begins."""
    bank = row_index % m.banks
    row = row_index // m.banks
    ready = now
    if m.row[channel, bank] != row:
        is_first = m.row[channel, bank] == -1
        may_open = 0 if is_first else m.opened[channel, bank] + m.row_cycle_units
        opened = max(now, m.busy_until[channel, bank], may_open)
        m.row[channel, bank] = row
        m.opened[channel, bank] = opened
        ready = opened + m.row_miss_units
    turns = m.turnaround_units if is_write != m.was_write[channel] else 0
    start = _after_refresh(m, max(ready, m.free_at[channel] + turns))
    m.was_write[channel] = is_write
    m.free_at[channel] = m.busy_until[channel, bank] = start + m.access_units
    return start


@compiled
def _after_refresh(m: Dram, start: Int) -> Int:
    """Refresh stops the channel for refresh_units every refresh_interval_units."""
    if m.refresh_interval_units == 0:
        return start
    due = start // m.refresh_interval_units * m.refresh_interval_units
    return due + m.refresh_units if due != 0 and start < due + m.refresh_units else start
