"""Vector memory and the vector instructions: lane_vector, lane_memory, gamma_buffer together.

norm_values, quantise_values and silu_values (of silu_pair) are inside of lane_vector.
"""

from pathlib import Path

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl

WIRED = {"extra": (Path(__file__).parent / "vector_lanes.sv",)}
SIZES = {"PORTS": 1, "LANES": 2, "BANK_WORDS": 256, "ACT_COLS": 160}
BUGS = {
    "BUG_LANE_VECTOR_1": "quant",
    "BUG_LANE_VECTOR_2": "quant",
    "BUG_GAMMA_BUFFER_1": "norm",
    "BUG_NORM_VALUES_1": "norm",
    "BUG_QUANTISE_VALUES_1": "quant",
    "BUG_SILU_PAIR_1": "silu",
}


@pytest.mark.parametrize("ports, lanes", [(1, 2), (4, 2)])
def test_instructions_equal_golden(ports: int, lanes: int):
    sizes = SIZES | {"PORTS": ports, "LANES": lanes}
    run_bench("vector_lanes", "bench_vector_lanes", parameters=sizes, **WIRED)


@pytest.mark.rtl_sweep
@pytest.mark.parametrize("ports, lanes", [(1, 8), (2, 4), (4, 1), (8, 2), (16, 1), (32, 1)])
@pytest.mark.parametrize("seed", [2, 3])
def test_every_shape_equals_golden(ports: int, lanes: int, seed: int):
    sizes = SIZES | {"PORTS": ports, "LANES": lanes}
    run_bench(
        "vector_lanes",
        "bench_vector_lanes",
        parameters=sizes,
        seed=seed,
        environment={"RUNS": "25"},
        **WIRED,
    )


@pytest.mark.parametrize("bug", BUGS)
def test_the_bench_notices(bug: str):
    expect_caught(
        "vector_lanes",
        "bench_vector_lanes",
        bug=bug,
        testcase=BUGS[bug],
        parameters=SIZES | {"PORTS": 2 if bug == "BUG_LANE_VECTOR_2" else 1},
        **WIRED,
    )


@pytest.mark.parametrize("ports", [1, 4])
def test_memory_keeps_what_is_written(ports: int):
    run_bench("lane_memory", "bench_lane_memory", parameters={"PORTS": ports, "BANK_WORDS": 8})


@pytest.mark.parametrize("bug", ["BUG_LANE_MEMORY_1", "BUG_LANE_MEMORY_2"])
def test_the_memory_bench_notices(bug: str):
    sizes = {"PORTS": 2, "BANK_WORDS": 8}
    expect_caught("lane_memory", "bench_lane_memory", bug=bug, parameters=sizes)
