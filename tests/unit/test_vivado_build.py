"""The build files of every card: what can be checked of them without the vendor's tools."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from fpga.driver.build_info import BuildInfo
from fpga.regmap import registers
from fpga.vivado import builds
from fpga.vivado.generate import argument_list, write_build
from hetero.core.errors import ConfigError
from sim.rtl.parameters import RtlBuild

CARDS = sorted(builds.card_builds())
SCRIPTS = Path(builds.FOLDER)
# Vivado's commands swallow anything; what is left is Tcl's own syntax and our variables.
TCL_STUB = """
proc unknown {name args} { return "$name" }
proc glob {args} { return "file" }
proc file_copy {args} {}
rename file real_file
proc file {command args} {
    if {$command eq "copy"} { return }
    return [real_file $command {*}$args]
}
proc get_property {name args} { return [expr {$name eq "PROGRESS" ? "100%" : $name}] }
rename puts real_puts
proc puts {args} {}
set argv [list BUILD]
source SCRIPT
real_puts "ran to its end"
"""


@pytest.mark.parametrize("card", CARDS)
def test_every_card_has_a_build(card, tmp_path):
    build = builds.load_build(card)
    paths = {path.name for path in write_build(build, tmp_path)}
    assert ("connectivity.cfg" in paths) == (build.flow == "vitis")
    info = BuildInfo.beside(tmp_path / "draft_card.xclbin")
    assert info.device == card
    assert len(info.port_banks) == build.parameters["PORTS"]
    assert info.build_hash == build.build_hash
    if build.flow == "vitis":
        lines = (tmp_path / "connectivity.cfg").read_text().splitlines()
        wired = [line for line in lines if line.startswith("sp=")]
        assert wired[0] == f"sp=draft_card_1.m00_axi:{build.memory}[0]"
        assert len(wired) == len(set(wired)) == build.parameters["PORTS"]


@pytest.mark.parametrize("card", CARDS)
def test_every_build_keeps_the_limits_of_the_rtl(card):
    """The same checks as for a build in simulation."""
    given = builds.load_build(card).parameters
    values = {name.lower(): value for name, value in given.items() if name != "CLOCK_HZ"}
    build = RtlBuild(**values)
    assert build.verilog().items() >= {k.upper(): v for k, v in values.items()}.items()
    for name in ("FIFO_BEATS", "VECTOR_WORDS", "ACT_COLS", "MAX_POSITIONS"):
        assert given[name].bit_count() == 1, name
    assert given["ARRAY_BYTES"] <= given["PORT_BYTES"]
    assert given["ATTN_HEADS"] <= given["MAX_HEADS"]


def test_a_parameter_whose_default_follows_from_others_can_be_named(monkeypatch):
    assert builds.parameter_defaults()["ARRAYS"] == "LANES > 2 ? LANES : 2"
    assert "ARRAYS" not in builds.load_build("kv260").parameters
    document = builds.card_builds()
    document["kv260"]["parameters"]["ARRAYS"] = 4
    monkeypatch.setattr(builds, "card_builds", lambda: document)
    assert builds.load_build("kv260").parameters["ARRAYS"] == 4


def test_arguments_lie_where_the_register_map_says():
    arguments = argument_list(builds.load_build("u250"))
    assert arguments[:3] == [
        ("COMMAND_ADDR", registers.COMMAND_ADDR, 0),
        ("RESULT_ADDR", registers.RESULT_ADDR, 0),
        ("PROGRAM_ADDR", registers.PROGRAM_ADDR, 0),
    ]
    assert arguments[5] == ("WEIGHT_ADDR_2", registers.WEIGHT_ADDR + 16, 2)
    assert arguments[-1] == ("KV_ADDR_3", registers.KV_ADDR + 24, 3)


def test_the_wrapper_names_every_port_of_the_card(tmp_path):
    write_build(builds.load_build("kv260"), tmp_path)
    text = (tmp_path / "draft_card_kernel.sv").read_text()
    top = (builds.RTL / "draft_card.sv").read_text()
    declared = set(
        re.findall(r"(?:input|output)\s+(?:wire|logic|reg)?[^,;/]*?(\w+)\s*(?:,|//|\n\))", top)
    )
    wired = set(re.findall(r"\.(\w+)\(", text)) - set(builds.parameter_defaults())
    assert declared == wired - {"BUILD_HASH"}
    assert "m03_axi_awaddr" in text
    assert "m04_axi" not in text
    assert "assign m00_axi_arsize = 3'd4;" in text


def test_the_hash_follows_sources_and_parameters():
    hashes = {builds.load_build(card).build_hash for card in ("kv260", "u250", "u55c")}
    assert len(hashes) == 3
    assert builds.load_build("kv260").build_hash in hashes


def test_unknown_card_and_parameter(monkeypatch):
    with pytest.raises(ConfigError, match="card = u99: use one of kv260"):
        builds.load_build("u99")
    document = builds.card_builds()
    document["kv260"]["parameters"]["LANEZ"] = 1
    monkeypatch.setattr(builds, "card_builds", lambda: document)
    with pytest.raises(ConfigError, match=r"LANEZ: draft_card\.sv has no such parameter"):
        builds.load_build("kv260")
    document["u250"]["port_banks"] = [0]
    with pytest.raises(ConfigError, match="port_banks names 1 of PORTS ports"):
        builds.load_build("u250")


@pytest.mark.parametrize(
    "script,card",
    [
        ("package_kernel.tcl", "u55c"),
        ("package_kernel.tcl", "kv260"),
        ("block_design.tcl", "kv260"),
    ],
)
def test_tcl_scripts_run_against_swallowed_commands(script, card, tmp_path):
    write_build(builds.load_build(card), tmp_path)
    code = TCL_STUB.replace("BUILD", str(tmp_path)).replace("SCRIPT", str(SCRIPTS / script))
    run = subprocess.run(["tclsh"], input=code, capture_output=True, text=True, timeout=30)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "ran to its end", run.stderr


def test_build_script_says_what_is_missing(tmp_path):
    script = SCRIPTS / "build_xclbin.sh"
    run = subprocess.run([script, tmp_path], capture_output=True, text=True, timeout=30)
    assert run.returncode == 2
    assert "v++ is not on PATH" in run.stderr


def test_build_information_is_complete(tmp_path):
    write_build(builds.load_build("u55c"), tmp_path)
    document = json.loads((tmp_path / "draft_card.json").read_text())
    assert document["format"] == "hetero-draft-card-build"
