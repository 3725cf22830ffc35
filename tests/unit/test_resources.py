"""Counting what yosys mapped: hierarchy, primitives, fractions."""

import pytest

from fpga.vivado import resources
from fpga.vivado.builds import card_builds
from fpga.vivado.resources import DEVICES, KINDS, count, yosys_script
from hetero.core.errors import ConfigError

SLICE = "$paramod\\mac_slice\\BYTES=64"


def stat(**cells):
    return {"num_cells_by_type": cells}


def modules(**more):
    return {
        "\\draft_card": {"num_cells_by_type": {"\\port": 4, "LUT6": 10, "CARRY8": 3, **more}},
        "\\port": {"num_cells_by_type": {SLICE: 2, "RAMB18E2": 3, "FDRE": 5}},
        SLICE: stat(DSP48E2=16, LUT2=7, FDSE=1, RAM32M16=2),
    }


def test_an_instance_counts_as_often_as_it_stands_in_the_design():
    found = count("kv260", modules())
    assert found.instances == {"draft_card": 1, "port": 4, SLICE: 8}
    assert found.total == {
        "lut": 10 + 8 * (7 + 2 * 8), "ff": 4 * 5 + 8, "dsp": 8 * 16, "bram": 4 * 3 / 2, "uram": 0,
    }  # fmt: skip
    assert found.modules["port"] == {"lut": 0, "ff": 5, "dsp": 0, "bram": 1.5, "uram": 0}
    assert found.fraction()["dsp"] == pytest.approx(128 / 1248)


@pytest.mark.parametrize("cell", ["RAMB99", "$mul", "$_DFF_P_"])
def test_what_nobody_priced_is_no_zero(cell):
    with pytest.raises(ConfigError, match="does not know it"):
        count("kv260", modules(**{cell: 1}))


def test_every_build_has_a_device():
    assert set(card_builds()) <= set(DEVICES)
    assert all(set(device) == set(KINDS) for device in DEVICES.values())


def test_the_script_has_the_builds_parameters(tmp_path):
    script = yosys_script(resources.load_build("kv260"), tmp_path / "out.json")
    assert "-set PORT_BYTES 16" in script
    assert "CLOCK_HZ" not in script
    assert "draft_card.sv" in script


def test_committed_figures_are_whole():
    for card, entry in resources.load_figures().items():
        assert set(entry["total"]) == set(KINDS)
        for kind, size in DEVICES[card].items():
            assert entry["device_fraction"][kind] == pytest.approx(entry["total"][kind] / size)


def test_no_yosys_is_said(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="yosys: not installed"):
        resources.synthesise("kv260")
