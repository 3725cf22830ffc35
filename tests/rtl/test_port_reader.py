"""port_reader and burst_splitter, stream_fifo inside of it."""

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl
SMALL = {"PORT_BYTES": 64, "FIFO_BEATS": 64, "OUTSTANDING": 16}


@pytest.mark.parametrize(
    "parameters",
    [
        SMALL,
        {"PORT_BYTES": 32, "FIFO_BEATS": 32, "OUTSTANDING": 16},
        {"PORT_BYTES": 16, "FIFO_BEATS": 32, "OUTSTANDING": 16, "AXI3": 0, "BURST_BYTES": 512},
    ],
    ids=["hbm", "narrow", "axi4"],
)
def test_port_reader(parameters: dict[str, int]):
    run_bench("port_reader", "bench_port_reader", parameters=parameters, defines=["HETERO_ASSERT"])


@pytest.mark.rtl_sweep
@pytest.mark.parametrize("port_bytes", [16, 32, 64])
@pytest.mark.parametrize("axi3", [0, 1])
@pytest.mark.parametrize("burst_bytes", [64, 256, 4096])
@pytest.mark.parametrize("seed", [1, 2])
def test_port_reader_corners(port_bytes: int, axi3: int, burst_bytes: int, seed: int):
    parameters = {"PORT_BYTES": port_bytes, "AXI3": axi3, "BURST_BYTES": burst_bytes}
    parameters |= {"FIFO_BEATS": 128, "OUTSTANDING": 64}
    options = {"parameters": parameters, "defines": ["HETERO_ASSERT"], "seed": seed}
    run_bench("port_reader", "bench_port_reader", **options)


@pytest.mark.parametrize("bug", ["BUG_PORT_READER_1", "BUG_BURST_SPLITTER_1"])
def test_planted_bugs_are_caught(bug: str):
    expect_caught("port_reader", "bench_port_reader", bug=bug, parameters=SMALL)
