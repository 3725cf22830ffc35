"""EMBED from gathers: embed_unit with its embed_lane."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("ports, lanes", [(1, 2), (4, 4), (32, 2)])
def test_rows_equal_golden(ports: int, lanes: int):
    sizes = {"PORTS": ports, "LANES": lanes, "ACT_COLS": 192}
    run_bench("embed_unit", "bench_embed_unit", parameters=sizes)


@pytest.mark.rtl_sweep
@pytest.mark.parametrize("ports, lanes", [(1, 8), (2, 1), (4, 1), (8, 4), (16, 2)])
def test_every_shape_equals_golden(ports: int, lanes: int):
    sizes = {"PORTS": ports, "LANES": lanes, "ACT_COLS": 192}
    run_bench(
        "embed_unit", "bench_embed_unit", parameters=sizes, seed=2, environment={"RUNS": "20"}
    )


@pytest.mark.parametrize("bug", ["BUG_EMBED_UNIT_1", "BUG_EMBED_LANE_1", "BUG_EMBED_LANE_2"])
def test_the_bench_notices(bug: str):
    ports = 32 if bug == "BUG_EMBED_LANE_1" else 2
    sizes = {"PORTS": ports, "LANES": 4, "ACT_COLS": 192}
    expect_caught("embed_unit", "bench_embed_unit", bug=bug, parameters=sizes)
