"""result_unit and counters on Icarus."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("lanes, tokens", [(1, 3), (4, 5)])
def test_the_result_buffer(lanes: int, tokens: int):
    shape = {"LANES": lanes, "MAX_DRAFT_TOKENS": tokens}
    run_bench("result_unit", "bench_result_unit", parameters=shape)


@pytest.mark.parametrize("units", [1, 16])
def test_counters(units: int):
    run_bench("counters", "bench_counters", parameters={"UNITS": units})


def test_a_planted_bug_is_caught():
    expect_caught("result_unit", "bench_result_unit", bug="BUG_RESULT_UNIT_1")
