"""control_regs on Icarus with cocotbext-axi, and its planted bugs."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("ports", [1, 4, 32])
def test_registers_start_and_reset(ports: int):
    run_bench("control_regs", "bench_control_regs", parameters={"PORTS": ports, "LANES": 2})


def test_a_planted_bug_is_caught():
    expect_caught("control_regs", "bench_control_regs", bug="BUG_CONTROL_REGS_1")
