"""One memory model in two languages: what the RTL runs against and what the cycle model asks."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from sim.calib.profile import load_profile
from sim.cycles.dram import dram, serve, serve_run
from sim.rtl.parameters import MemoryTiming
from sim.rtl.timing import dram_timing, ideal_timing

pytestmark = pytest.mark.rtl

HARNESS = Path(__file__).parents[2] / "sim" / "rtl"
TRACE = """
#include "memory_model.hpp"
extern "C" void trace(const hetero::MemoryParameters* parameters, const int64_t* accesses,
                      uint64_t count, int64_t* answers) {
  hetero::MemoryModel model(*parameters);
  for (uint64_t i = 0; i < count; ++i) {
    const int64_t* a = accesses + 4 * i;
    answers[i] = model.serve(uint32_t(a[0]), uint64_t(a[1]), a[2] != 0, uint64_t(a[3]));
  }
}
"""
COUNT = 20_000


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The C++ header as the RTL's harness includes it."""
    if shutil.which("g++") is None:
        pytest.fail("g++: not installed. Run scripts/install_debian.sh.")
    folder = tmp_path_factory.mktemp("dram")
    (folder / "trace.cpp").write_text(TRACE)
    flags = ["-O1", "-std=c++17", "-shared", "-fPIC", f"-I{HARNESS}"]
    built = folder / "trace.so"
    subprocess.run(["g++", *flags, "-o", str(built), str(folder / "trace.cpp")], check=True)
    return ctypes.CDLL(str(built))


def accesses(rng, ports, spread):
    """int64 [access, (port, address, is_write, cycle)]: runs of a port, jumps, pauses."""
    table = np.zeros((COUNT, 4), dtype=np.int64)
    address = rng.integers(0, 1 << 30, size=ports) * 64
    cycle = 0
    for entry in table:
        port = rng.integers(ports)
        if rng.random() < 0.1:
            address[port] = rng.integers(0, 1 << spread) * 64
        cycle += int(rng.integers(0, 3)) if rng.random() < 0.99 else int(rng.integers(5000))
        entry[:] = port, address[port], rng.random() < 0.2, cycle
        address[port] += 64
    return table


def cpp_answers(library, timing, table):
    answers = np.zeros(len(table), dtype=np.int64)
    pointer = ctypes.POINTER(ctypes.c_int64)
    library.trace(
        ctypes.byref(timing.to_c()),
        table.ctypes.data_as(pointer),
        ctypes.c_uint64(len(table)),
        answers.ctypes.data_as(pointer),
    )
    return answers.tolist()


def timings():
    yield "ideal", ideal_timing(load_profile("u55c"))
    for name in ("u55c", "kv260"):
        for ports in (1, 4):
            yield f"{name}-{ports}", dram_timing(load_profile(name), ports=ports)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        fields = ("row_miss", "row_cycle", "turnaround", "refresh_interval", "refresh")
        units = {f"{field}_units": int(rng.integers(0, 9000)) for field in fields}
        yield (
            f"random-{seed}",
            MemoryTiming(
                is_banked=True,
                channels=int(rng.integers(1, 5)),
                latency_cycles=int(rng.integers(0, 200)),
                units_per_cycle=int(rng.integers(1, 2000)),
                access_units=int(rng.integers(1, 5000)),
                banks=int(rng.integers(1, 33)),
                row_bytes=64 << int(rng.integers(0, 8)),
                skew_cycles=int(rng.integers(0, 9)),
                **units,
            ),
        )


@pytest.mark.parametrize(
    "timing", [pytest.param(t, id=name) for name, t in timings() if t.is_banked]
)
def test_runs_give_the_times_of_single_reads(timing):
    rng = np.random.default_rng(3)
    one, many = dram(timing), dram(timing)
    cycle = 0
    for _ in range(2000):
        port, count = int(rng.integers(4)), int(rng.integers(1, 17))
        address = int(rng.integers(1 << 14)) * 64
        cycle += int(rng.integers(40))
        if rng.random() < 0.1:
            assert serve(one, port, address, 1, cycle) == serve(many, port, address, 1, cycle)
        singly = [serve(one, port, address + 64 * i, 0, cycle) for i in range(count)]
        ring = np.zeros(64, dtype=np.int64)
        serve_run(many, port, address, count, cycle, ring, 60)
        assert [int(ring[60 + i & 63]) for i in range(count)] == singly


@pytest.mark.parametrize("timing", [pytest.param(t, id=name) for name, t in timings()])
def test_both_give_the_same_times(library, timing):
    rng = np.random.default_rng(7)
    table = accesses(rng, ports=4, spread=12 if timing.banks % 2 else 24)
    memory = dram(timing)
    ours = [serve(memory, *entry) for entry in table.tolist()]
    assert ours == cpp_answers(library, timing, table)
    if timing.is_banked:
        waited = np.array(ours) - table[:, 3] - timing.latency_cycles
        assert waited.max() > 10 * waited.min(), "nobody ever waited: the trace tests nothing"
