"""``hetero card figures``: what it works out, and what it says of it."""

import json

import pytest
from click.testing import CliRunner

from hetero.cli.main import cli
from sim.calib.profile import load_profile
from sim.report import figures
from sim.report.figures import (
    Figures,
    LaneFigure,
    PrefillFigure,
    TokenFigure,
    WallSpeed,
    deliverable,
)
from sim.rtl.parameters import MemoryTiming
from sim.rtl.timing import dram_timing


def banked(**changes):
    return MemoryTiming(is_banked=True, channels=2, access_units=1250, **changes)


def test_what_memory_can_deliver_by_hand():
    """1.25 cycles a beat: four fifths of a port of a beat a cycle, all of a narrower one."""
    assert deliverable(banked(), 2, 64) == pytest.approx(0.8, abs=0.001)
    assert deliverable(banked(), 4, 64) == pytest.approx(0.4, abs=0.001)
    assert deliverable(banked(), 2, 32) == 1.0


def test_refresh_takes_its_share():
    refreshed = banked(refresh_interval_units=100_000, refresh_units=20_000)
    assert deliverable(refreshed, 2, 64) == pytest.approx(0.8 * 0.8, abs=0.01)


@pytest.mark.parametrize("name", ["u55c", "u50", "u280", "u250", "kv260", "zcu104"])
def test_a_cards_memory_sustains_its_ceiling(name):
    """What is deliverable is what the card's source says, whatever the banks lose."""
    profile = load_profile(name)
    memory, kernel = profile.memory, profile.kernel
    ports = min(4, kernel.ports)
    share = deliverable(dram_timing(profile, ports=ports), ports, kernel.port_beat_bytes)
    channels = min(memory.banks, ports)
    sustained = memory.peak_bytes_per_s / memory.banks * channels * memory.ceiling
    possible = ports * kernel.port_beat_bytes * kernel.clock_hz
    assert share == pytest.approx(min(1.0, sustained / possible), rel=0.005)


MEASURED = Figures(
    ports=4,
    tokens=(
        TokenFigure(
            draft="10m", memory="card", cycles_per_token=100.0, utilisation=0.8, deliverable=0.864
        ),
    ),
    lanes=(
        LaneFigure(
            draft="10m", position=250, lanes=4, cycles_one=100.0, cycles_all=113.0, bytes_ratio=1.1
        ),
    ),
    prefill=PrefillFigure(draft="10m", tokens=512, lanes=8, cycles=5120, decode_cycles=51200.0),
    speed=WallSpeed(draft="10m", tokens_per_s=5.0, cycles_per_s=140_000.0),
)


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(figures, "measure_figures", lambda _cfg, *, prefill_lanes: MEASURED)
    return lambda *arguments: CliRunner().invoke(
        cli, ["card", "figures", *arguments], catch_exceptions=False
    )


def test_one_object_with_every_figure(run):
    document = json.loads(run("--json").stdout)
    assert document["tokens"][0]["of_deliverable"] == pytest.approx(0.8 / 0.864)
    assert document["lanes"][0]["cycles_ratio"] == pytest.approx(1.13)
    assert document["prefill"]["share_of_decode_steps"] == pytest.approx(0.1)
    assert "RTL simulation" in document["source"]
    assert "wall clock" in document["speed"]["source"]


def test_the_table_can_be_read(run):
    text = run().stdout
    assert "80.0%" in text
    assert "92.6%" in text
    assert "0.80/8 of as many decode steps" in text
