"""Scales of quantised vectors: reciprocal, rsqrt, quantise_scale, norm_scale, fixed.svh."""

from pathlib import Path

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl

BENCH = "bench_scale_units"
TESTS = {
    "reciprocal": "reciprocals",
    "rsqrt": "roots",
    "quantise_scale": "scales",
    "norm_scale": "norms",
}
FUNCTIONS = Path(__file__).parent / "fixed_functions.sv"


@pytest.mark.parametrize("module", TESTS)
def test_it_equals_its_golden_function(module: str):
    run_bench(module, BENCH, testcase=TESTS[module])


@pytest.mark.parametrize("module", TESTS)
def test_the_bench_notices(module: str):
    expect_caught(module, BENCH, bug=f"BUG_{module.upper()}_1", testcase=TESTS[module])


def test_functions_round_and_clip_as_golden():
    run_bench("fixed_functions", "bench_fixed_functions", extra=(FUNCTIONS,))
