"""command_unit and program_store: a start's fields, tokens and refusals."""

from pathlib import Path

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl
TOP = {"extra": (Path(__file__).with_name("start_unit.sv"),)}


@pytest.mark.parametrize("lanes", [1, 4])
def test_starts(lanes: int):
    run_bench("start_unit", "bench_command_unit", parameters={"LANES": lanes}, **TOP)


@pytest.mark.parametrize("bug", ["BUG_COMMAND_UNIT_1", "BUG_PROGRAM_STORE_1"])
def test_the_bench_notices(bug: str):
    expect_caught("start_unit", "bench_command_unit", bug=bug, parameters={"LANES": 4}, **TOP)
