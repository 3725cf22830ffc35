"""memory_port with all of its parts: port_planner, stream_dispatch, port_reader, beat_fifo."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl
SMALL = {"PORTS": 4, "LANES": 2, "FIFO_BEATS": 64, "TAGS": 32, "OUTSTANDING": 32}


@pytest.mark.parametrize(
    "more",
    [{}, {"PORTS": 1, "LANES": 8, "PORT_BYTES": 32, "STAGES": 1}, {"PORTS": 32, "LANES": 1}],
    ids=["four", "narrow", "many"],
)
def test_memory_port(more: dict[str, int]):
    options = {"parameters": SMALL | more, "defines": ["HETERO_ASSERT"]}
    run_bench("memory_port", "bench_memory_port", **options)


@pytest.mark.rtl_sweep
@pytest.mark.parametrize("ports", [1, 2, 8, 16])
@pytest.mark.parametrize("port_bytes", [16, 32, 64])
@pytest.mark.parametrize("stages", [0, 3])
def test_memory_port_corners(ports: int, port_bytes: int, stages: int):
    parameters = {**SMALL, "PORTS": ports, "PORT_BYTES": port_bytes, "STAGES": stages}
    options = {"parameters": parameters, "defines": ["HETERO_ASSERT"], "seed": ports}
    run_bench("memory_port", "bench_memory_port", **options)


@pytest.mark.parametrize("bug", ["BUG_PORT_PLANNER_1", "BUG_STREAM_DISPATCH_1"])
def test_planted_bugs_are_caught(bug: str):
    expect_caught("memory_port", "bench_memory_port", bug=bug, parameters=SMALL)
