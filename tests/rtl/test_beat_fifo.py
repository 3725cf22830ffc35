"""beat_fifo and its banks (beat_bank)."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl
ASSERT = ["HETERO_ASSERT"]


@pytest.mark.parametrize("beats", [16, 64])
def test_beat_fifo(beats: int):
    run_bench("beat_fifo", "bench_beat_fifo", parameters={"FIFO_BEATS": beats}, defines=ASSERT)


def test_a_wrong_bank_is_caught():
    options = {"bug": "BUG_BEAT_FIFO_1", "parameters": {"FIFO_BEATS": 16}}
    expect_caught("beat_fifo", "bench_beat_fifo", **options)
