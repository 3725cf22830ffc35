"""philox, philox_round and gumbel on Icarus, and their planted bugs."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl

MODULES = ("philox_round", "philox", "gumbel")


@pytest.mark.parametrize("module", MODULES)
def test_it_computes_the_noise_law(module: str):
    run_bench(module, f"bench_{module}")


@pytest.mark.parametrize("module", ["philox_round", "gumbel"])
def test_a_planted_bug_is_caught(module: str):
    expect_caught(module, f"bench_{module}", bug=f"BUG_{module.upper()}_1")


def test_a_wrong_round_shows_in_the_known_answers():
    expect_caught("philox", "bench_philox", bug="BUG_PHILOX_ROUND_1", testcase="known_answers")
