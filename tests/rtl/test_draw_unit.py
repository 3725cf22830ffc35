"""draw_unit with draw_result on Icarus, and their planted bugs."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl

CHECKED = ("HETERO_ASSERT",)


@pytest.mark.parametrize("lanes", [1, 4])
def test_draws_as_the_golden_model_does(lanes: int):
    run_bench("draw_unit", "bench_draw_unit", parameters={"LANES": lanes}, defines=CHECKED)


@pytest.mark.rtl_sweep
@pytest.mark.parametrize("lanes", [2, 8])
@pytest.mark.parametrize("seed", range(4))
def test_more_lanes_and_seeds(lanes: int, seed: int):
    run_bench(
        "draw_unit", "bench_draw_unit", parameters={"LANES": lanes}, defines=CHECKED, seed=seed
    )


@pytest.mark.parametrize(
    "bug, case",
    [
        ("BUG_DRAW_UNIT_1", "seed_index_and_choice_reach_the_noise"),
        ("BUG_DRAW_UNIT_2", "ties_go_to_the_lower_id"),
        ("BUG_DRAW_RESULT_1", "ties_go_to_the_lower_id"),
    ],
)
def test_a_planted_bug_is_caught(bug: str, case: str):
    expect_caught("draw_unit", "bench_draw_unit", bug=bug, testcase=case)
