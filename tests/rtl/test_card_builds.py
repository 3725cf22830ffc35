"""The top module as each card is built: its wrapper for the vendor's tools, and what it takes."""

import subprocess
from pathlib import Path

import pytest
from support.rtl import INCLUDES, RTL

from fpga.vivado import builds
from fpga.vivado.generate import write_build

pytestmark = pytest.mark.rtl

QUICK = ("kv260", "u50", "zcu104")
CARDS = [
    pytest.param(card, marks=() if card in QUICK else pytest.mark.rtl_sweep)
    for card in sorted(builds.card_builds())
]


def _lint(wrapper: Path) -> str:
    """What Verilator says against a wrapper around the real card; nothing if it is clean."""
    done = subprocess.run(
        ["verilator", "--lint-only", "-Wall", "-Wno-PINCONNECTEMPTY"]
        + [f"-I{folder}" for folder in INCLUDES]
        + ["--top-module", "draft_card_kernel", wrapper]
        + sorted(RTL.glob("*.sv")),
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize("card", CARDS)
def test_the_wrapper_fits_around_the_card(card, tmp_path):
    """Parameters, names and widths of all ports; the trace is for simulation and left open."""
    write_build(builds.load_build(card), tmp_path)
    warnings = _lint(tmp_path / "draft_card_kernel.sv")
    assert not warnings, warnings[-6000:]


def test_a_wrapper_of_the_wrong_width_is_found(tmp_path):
    write_build(builds.load_build("kv260"), tmp_path)
    wrapper = tmp_path / "draft_card_kernel.sv"
    text = wrapper.read_text()
    wrapper.write_text(text.replace(".PORT_BYTES(16)", ".PORT_BYTES(32)"))
    assert "m_axi_rdata" in _lint(wrapper)
