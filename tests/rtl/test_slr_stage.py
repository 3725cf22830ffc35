import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("stages", [0, 1, 3])
def test_slr_stage(stages: int):
    run_bench("slr_stage", "bench_slr_stage", parameters={"STAGES": stages, "WIDTH": 37})


def test_a_lost_transfer_is_caught():
    # skid_buffer is what the stages are made of
    expect_caught("slr_stage", "bench_slr_stage", bug="BUG_SKID_BUFFER_1", parameters={"WIDTH": 37})
