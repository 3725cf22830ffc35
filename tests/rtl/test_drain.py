"""drain on Icarus, and its planted bugs."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl


def _options(ports: int) -> dict[str, object]:
    return {"parameters": {"PORTS": ports}, "environment": {"BENCH_PORTS": str(ports)}}


@pytest.mark.parametrize("ports", [1, 8])
def test_outputs_equal_golden(ports: int):
    run_bench("drain", "bench_drain", defines=("HETERO_ASSERT",), **_options(ports))


@pytest.mark.parametrize("bug", ["BUG_DRAIN_1", "BUG_DRAIN_2"])
def test_a_planted_bug_is_caught(bug: str):
    expect_caught("drain", "bench_drain", bug=bug, **_options(4))
