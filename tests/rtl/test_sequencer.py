"""sequencer: programs run in order, for the right lanes."""

from pathlib import Path

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl
TOP = {"extra": (Path(__file__).with_name("sequencer_bench.sv"),)}


@pytest.mark.parametrize("lanes, ports", [(1, 1), (4, 2)])
def test_random_programs(lanes: int, ports: int):
    size = {"LANES": lanes, "PORTS": ports, "ARRAYS": max(2, lanes)}
    for seed in (1, 2, 3):
        run_bench("sequencer_bench", "bench_sequencer", parameters=size, seed=seed, **TOP)


@pytest.mark.parametrize("bug", ["BUG_SEQUENCER_1", "BUG_SEQUENCER_2"])
def test_the_bench_notices(bug: str):
    size = {"LANES": 4, "PORTS": 2, "ARRAYS": 4}
    expect_caught("sequencer_bench", "bench_sequencer", bug=bug, parameters=size, **TOP)
