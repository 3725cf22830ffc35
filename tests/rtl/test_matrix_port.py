"""matrix_port with act_memory, mac_slice and drain on Icarus, and planted bugs."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl


def _options(ports: int, lanes: int) -> dict[str, object]:
    shape = {"PORTS": ports, "LANES": lanes, "ARRAYS": max(2, lanes), "ACT_COLS": 512}
    return {"parameters": shape, "environment": {"BENCH_PORTS": str(ports)}}


@pytest.mark.parametrize("ports, lanes", [(1, 1), (2, 2)])
def test_matrices_of_one_port(ports: int, lanes: int):
    run_bench(
        "matrix_port", "bench_matrix_port", defines=("HETERO_ASSERT",), **_options(ports, lanes)
    )


@pytest.mark.rtl_sweep
@pytest.mark.parametrize("ports, lanes", [(4, 4), (16, 2), (32, 1), (8, 1)])
def test_other_shapes(ports: int, lanes: int):
    run_bench(
        "matrix_port", "bench_matrix_port", defines=("HETERO_ASSERT",), **_options(ports, lanes)
    )


@pytest.mark.parametrize("bug", ["BUG_DRAIN_1", "BUG_MAC_SLICE_1"])
def test_a_planted_bug_is_caught(bug: str):
    expect_caught(
        "matrix_port", "bench_matrix_port", bug=bug, testcase="stalls_anywhere", **_options(1, 1)
    )
