import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("port_bytes", [16, 32, 64])
def test_kv_writer(port_bytes: int):
    parameters = {"PORT_BYTES": port_bytes, "MAX_PENDING": 8}
    run_bench("kv_writer", "bench_kv_writer", parameters=parameters, defines=["HETERO_ASSERT"])


@pytest.mark.parametrize("bug", ["BUG_KV_WRITER_1", "BUG_KV_WRITER_2"])
def test_planted_bugs_are_caught(bug: str):
    parameters = {"PORT_BYTES": 32, "MAX_PENDING": 8}
    expect_caught("kv_writer", "bench_kv_writer", bug=bug, parameters=parameters)
