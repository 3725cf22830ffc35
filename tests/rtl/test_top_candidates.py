"""top_candidates on Icarus for few and many ports, and its planted bugs."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl

CHECKED = ("HETERO_ASSERT",)


@pytest.mark.parametrize("ports", [1, 4])
def test_the_best_64_in_order(ports: int):
    run_bench(
        "top_candidates", "bench_top_candidates", parameters={"PORTS": ports}, defines=CHECKED
    )


@pytest.mark.rtl_sweep
@pytest.mark.parametrize("ports", [2, 8, 16, 32])
def test_any_number_of_ports(ports: int):
    run_bench(
        "top_candidates", "bench_top_candidates", parameters={"PORTS": ports}, defines=CHECKED
    )


@pytest.mark.parametrize(
    "bug, case",
    [
        ("BUG_TOP_CANDIDATES_1", "equal_logits_keep_the_lowest_ids"),
        ("BUG_TOP_CANDIDATES_2", "equal_logits_keep_the_lowest_ids"),
    ],
)
def test_a_planted_bug_is_caught(bug: str, case: str):
    expect_caught(
        "top_candidates", "bench_top_candidates", bug=bug, testcase=case, parameters={"PORTS": 4}
    )
