"""mac_slice on Icarus at its widths, and its planted bug."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl


def _options(width_bytes: int) -> dict[str, object]:
    return {
        "parameters": {"BYTES": width_bytes},
        "environment": {"BENCH_BYTES": str(width_bytes)},
    }


@pytest.mark.parametrize("width_bytes", [16, 32, 64])
def test_sums_are_exact(width_bytes: int):
    defines = ("HETERO_ASSERT",)
    run_bench("mac_slice", "bench_mac_slice", defines=defines, **_options(width_bytes))


def test_a_planted_bug_is_caught():
    expect_caught("mac_slice", "bench_mac_slice", bug="BUG_MAC_SLICE_1", **_options(64))
