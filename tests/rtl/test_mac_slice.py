"""mac_slice on Icarus, and its planted bug."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl


def test_sums_are_exact():
    run_bench("mac_slice", "bench_mac_slice")


def test_a_planted_bug_is_caught():
    expect_caught("mac_slice", "bench_mac_slice", bug="BUG_MAC_SLICE_1")
