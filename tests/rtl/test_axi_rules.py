"""Breaches of AXI planted in the masters and in the registers: some bench must notice each."""

import pytest
from support.rtl import Mutant, expect_mutant_caught
from test_port_reader import SMALL as PORT_READER

pytestmark = [pytest.mark.rtl, pytest.mark.rtl_sweep]

READER = ("port_reader", "bench_port_reader", {"parameters": PORT_READER})
NARROW = ("port_reader", "bench_port_reader", {"parameters": PORT_READER | {"PORT_BYTES": 32}})
WRITER = (
    "kv_writer",
    "bench_kv_writer",
    {"parameters": {"PORT_BYTES": 32, "MAX_PENDING": 8}},
)
REGISTERS = ("control_regs", "bench_control_regs", {"parameters": {"PORTS": 2, "LANES": 2}})

BREACHES = {
    "arvalid falls": (READER, "if (ar_free) m_axi_arvalid <=", "m_axi_arvalid <="),
    "araddr changes": (
        READER,
        "if (issue_gather || issue_stream) begin",
        "if (gather_valid || stream_valid) begin",
    ),
    "a burst too long for AXI3": (NARROW, "(AXI3 != 0 ? 16 : 256)", "256"),
    "a wrong arlen": (READER, "9'(issue_beats) * 9'(PARTS) - 9'd1", "9'(issue_beats) * 9'(PARTS)"),
    "a narrow arsize": (READER, "3'($clog2(PORT_BYTES))", "3'd0"),
    "DECERR of a read is lost": (
        READER,
        "m_axi_rvalid && m_axi_rresp[1] && !error",
        "m_axi_rvalid && m_axi_rresp == 2'd2 && !error",
    ),
    "the last read error is told": (
        READER,
        "m_axi_rvalid && m_axi_rresp[1] && !error",
        "m_axi_rvalid && m_axi_rresp[1]",
    ),
    "awvalid falls": (WRITER, "if (aw_free) m_axi_awvalid <=", "m_axi_awvalid <="),
    "wdata changes": (
        WRITER,
        "end else if (m_axi_wvalid && m_axi_wready) begin",
        "end else if (m_axi_wvalid) begin",
    ),
    "wlast at once": (WRITER, "m_axi_wlast   = part == 3'(PARTS - 1)", "m_axi_wlast   = 1'b1"),
    "EXOKAY is an error": (WRITER, "answered && m_axi_bresp[1]", "answered && m_axi_bresp != 0"),
    "DECERR of a write is lost": (
        WRITER,
        "answered && m_axi_bresp[1]",
        "answered && m_axi_bresp == 2'd2",
    ),
    "awready too early": (REGISTERS, "awready = !aw_held", "awready = 1'b1"),
    "an answer does not wait": (
        REGISTERS,
        "else if (bready) bvalid <= 1'b0;",
        "else bvalid <= 1'b0;",
    ),
}


@pytest.mark.parametrize("name", BREACHES)
def test_a_breach_is_noticed(name: str):
    (top, bench, options), old, new = BREACHES[name]
    expect_mutant_caught(top, bench, Mutant(top, old, new), **options)
