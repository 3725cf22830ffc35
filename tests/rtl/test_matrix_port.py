"""matrix_port with act_memory, mac_slice and drain on Icarus, and planted bugs."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl


def _options(ports: int, lanes: int, array_bytes: int = 64) -> dict[str, object]:
    return {
        "parameters": {
            "PORTS": ports,
            "LANES": lanes,
            "ARRAYS": max(2, lanes),
            "ARRAY_BYTES": array_bytes,
            "ACT_COLS": 512,
        },
        "environment": {"BENCH_PORTS": str(ports), "BENCH_STEPS": str(64 // array_bytes)},
    }


def _run(*shape: int) -> None:
    run_bench("matrix_port", "bench_matrix_port", defines=("HETERO_ASSERT",), **_options(*shape))


@pytest.mark.parametrize("ports, lanes, array_bytes", [(1, 1, 64), (2, 2, 16)])
def test_matrices_of_one_port(ports: int, lanes: int, array_bytes: int):
    _run(ports, lanes, array_bytes)


@pytest.mark.rtl_sweep
@pytest.mark.parametrize(
    "ports, lanes, array_bytes",
    [
        (4, 4, 64),
        (4, 4, 16),
        (2, 2, 64),
        (2, 2, 32),
        (16, 2, 64),
        (32, 1, 64),
        (8, 1, 32),
        (1, 8, 64),
    ],
)
def test_other_shapes(ports: int, lanes: int, array_bytes: int):
    _run(ports, lanes, array_bytes)


@pytest.mark.parametrize(
    "bug", ["BUG_MATRIX_PORT_1", "BUG_ACT_MEMORY_1", "BUG_DRAIN_1", "BUG_MAC_SLICE_1"]
)
def test_a_planted_bug_is_caught(bug: str):
    expect_caught(
        "matrix_port", "bench_matrix_port", bug=bug, testcase="stalls_anywhere", **_options(1, 1)
    )
