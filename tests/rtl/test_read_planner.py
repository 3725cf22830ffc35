import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("ports, lanes", [(1, 1), (4, 4), (32, 8)])
def test_read_planner(ports: int, lanes: int):
    parameters = {"PORTS": ports, "LANES": lanes}
    run_bench(
        "read_planner", "bench_read_planner", parameters=parameters, defines=["HETERO_ASSERT"]
    )


@pytest.mark.parametrize("bug", ["BUG_READ_PLANNER_1", "BUG_READ_PLANNER_2"])
def test_planted_bugs_are_caught(bug: str):
    expect_caught(
        "read_planner", "bench_read_planner", bug=bug, parameters={"PORTS": 2, "LANES": 4}
    )
