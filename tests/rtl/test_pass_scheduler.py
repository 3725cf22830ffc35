"""pass_scheduler: descriptors as sim.schedule orders them."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_passes_are_those_of_the_schedule(lanes: int):
    run_bench("pass_scheduler", "bench_pass_scheduler", parameters={"LANES": lanes})


@pytest.mark.parametrize("bug", [1, 2])
def test_the_bench_notices(bug: int):
    expect_caught(
        "pass_scheduler",
        "bench_pass_scheduler",
        bug=f"BUG_PASS_SCHEDULER_{bug}",
        parameters={"LANES": 4},
    )
