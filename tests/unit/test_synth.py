"""Resource counting without yosys: cells, RTLIL, sums, comparison, the committed files."""

import dataclasses

import pytest

from fpga.synth import budget, devices, page, results
from fpga.synth.cells import Resources, count_cells
from fpga.synth.hierarchy import instances, parse_modules
from fpga.synth.synthesis import parse_statistics
from fpga.vivado import builds
from hetero.core.errors import ConfigError

TOO_LARGE = {"kv260", "u55c"}
"""More than the device has, by yosys's count: docs/resources.md says so."""

RTLIL = """\
module $paramod\\leaf\\WIDTH=s32'00000000000000000000000000000110
  parameter \\WIDTH 128'0110
  wire input 1 \\clk
  wire width 6 input 2 \\in_data
  wire width 26 signed output 3 \\out_data
  wire width 6 \\inside
  cell $and $1
  end
end
attribute \\top 1
module \\middle
  parameter \\COUNT 2
  wire input 1 \\clk
  cell $paramod\\leaf\\WIDTH=s32'00000000000000000000000000000110 \\a
  end
  cell $paramod\\leaf\\WIDTH=s32'00000000000000000000000000000110 \\b
  end
end
module \\card_top
  cell \\middle \\u_0
  end
  cell \\middle \\u_1
  end
  cell \\middle \\u_2
  end
end
"""
STATISTICS = """
5. Printing statistics.

=== $paramod$0a66\\order_ram ===

   Number of wires:                  2
   Number of cells:                 14
     FDRE                           12
     RAM32M16                        2

=== batch ===

   Number of cells:                  0

=== design hierarchy ===

   batch                             1
"""
LEAF = "$paramod\\leaf\\WIDTH=s32'00000000000000000000000000000110"


def result(**changes):
    modules = (
        results.ModuleResult("leaf", {"WIDTH": 6}, 6, Resources(lut=10, ff=20, dsp=1)),
        results.ModuleResult("middle", {}, 3, Resources(lut=5, lut_memory=2, bram18=3)),
    )
    values = dict(
        card="kv260", yosys="Yosys 0.23", script="synth", sources="ab", clock_hz=1,
        parameters={"PORTS": 4}, modules=modules,
    )  # fmt: skip
    return results.CardResult(**{**values, **changes})


def test_cells_become_resources():
    cells = {"LUT6": 3, "RAM32M16": 1, "SRL16E": 2, "FDRE": 4, "FDSE": 1, "MUXF7": 9}
    cells |= {"RAMB36E2": 2, "RAMB18E2": 1, "DSP48E2": 7, "URAM288": 1, "CARRY4": 3, "CARRY8": 1}
    assert count_cells(cells) == Resources(
        lut=3 + 8 + 2, lut_memory=10, carry=5, ff=5, dsp=7, bram18=5, uram=1
    )
    assert count_cells(cells).bram36 == 2.5


@pytest.mark.parametrize("cell", ["$dff", "RAMB36E1", "\\mystery"])
def test_a_cell_that_no_list_has_is_refused(cell):
    """Else logic that was left unmapped, or a submodule taken for a cell, would count nothing."""
    with pytest.raises(ConfigError, match="is in no list"):
        count_cells({cell: 1})


def test_modules_parameters_and_instances_are_read_from_rtlil():
    modules = parse_modules(RTLIL)
    assert modules[LEAF].name == "leaf"
    assert modules[LEAF].parameters == {"WIDTH": 6}
    assert modules["\\middle"].title == "middle(COUNT=2)"
    assert instances(modules) == {"\\card_top": 1, "\\middle": 3, LEAF: 6}


def test_cells_are_read_from_what_yosys_prints():
    found = parse_statistics(STATISTICS)
    assert found["$paramod$0a66\\order_ram"] == {"FDRE": 12, "RAM32M16": 2}
    assert found["batch"] == {}


def test_generated_names_depend_on_nothing_outside_the_module():
    body = "  wire $add$/a/x.sv:7$31_Y\n  wire $0$memwr$\\m$/a/x.sv:8$40_EN[3:0]$41\n"
    moved = body.replace("/a/x.sv:7", "/b/c/x.sv:9").replace("$31", "$17").replace("$4", "$10")
    first, second = (parse_modules(f"module \\m\n{text}end\n")["\\m"] for text in (body, moved))
    assert first.body == second.body
    assert "$add$$000000_Y" in first.body
    assert "$0$memwr$\\m$$000001_EN[3:0]$000002" in first.body


def test_a_black_box_keeps_the_ports_and_nothing_else():
    stub = parse_modules(RTLIL)[LEAF].stub()
    assert stub.count("  wire ") == 3
    assert "signed output 3 \\out_data" in stub
    assert "inside" not in stub
    assert "cell" not in stub


def test_sums_go_over_instances_and_survive_the_file():
    found = result()
    assert found.resources == Resources(lut=75, lut_memory=6, ff=120, dsp=6, bram18=9)
    assert results.parse(found.to_json()) == found


def test_a_sum_of_a_part_says_that_it_is_one():
    part = result(uncounted=("order_ram", "silu_pair"))
    assert results.parse(part.to_json()) == part
    assert "at least: 2 modules not counted" in part.summary()["source"]
    assert "at least" not in result().summary()["source"]


def test_comparison_is_exact_for_the_same_yosys_and_loose_for_another():
    found = result()
    leaf, middle = found.modules
    assert results.compare(found, found) == []
    one_more = dataclasses.replace(leaf, each=leaf.each + Resources(lut=1))
    changed = result(modules=(one_more, middle))
    assert results.compare(found, changed) == [
        "sum: lut 75 -> 81", 'leaf{"WIDTH": 6}: lut 10 -> 11'
    ]  # fmt: skip
    assert results.compare(found, result(modules=(leaf,)))[-1] == "middle{}: gone"
    assert results.compare(result(modules=(leaf,)), found)[-1] == "middle{}: new"
    fewer = dataclasses.replace(leaf, instances=5)
    assert 'leaf{"WIDTH": 6}: 6 -> 5 instances' in results.compare(
        found, result(modules=(fewer, middle))
    )
    other = dataclasses.replace(changed, yosys="Yosys 0.52")
    assert results.compare(found, other) == []
    much = dataclasses.replace(leaf, each=leaf.each * 2)
    lines = results.compare(found, result(modules=(much, middle), yosys="Yosys 0.52"))
    assert "sum: lut 75 -> 135 (Yosys 0.52, committed with Yosys 0.23)" in lines


@pytest.mark.parametrize("card", sorted(builds.card_builds()))
def test_every_card_has_a_device_with_a_source(card):
    device = devices.load_device(card)
    assert device.source
    used = Resources(lut=device.lut // 2, dsp=device.dsp)
    assert device.fraction(used) == pytest.approx(
        {"lut": 0.5, "ff": 0, "dsp": 1, "bram36": 0, "uram": 0}
    )


def test_unknown_cards_are_refused():
    with pytest.raises(ConfigError, match="card = u99: use one of kv260"):
        devices.load_device("u99")
    with pytest.raises(ConfigError, match=r"resources of u99: never counted.*kv260"):
        results.load("u99")


@pytest.mark.parametrize("card", results.result_names())
def test_committed_results_belong_to_the_build_and_fit_the_device(card):
    found = results.load(card)
    build = builds.load_build(card)
    assert (found.parameters, found.clock_hz) == (build.parameters, build.clock_hz)
    summary = found.summary()
    assert summary["fits"] == (card not in TOO_LARGE)
    assert summary["device_fraction"]["dsp"] == pytest.approx(
        summary["dsp"] / devices.load_device(card).dsp, abs=1e-4
    )
    assert (results.FOLDER / f"{card}.json").read_text() == found.to_json()


def test_the_build_that_ci_counts_is_committed():
    assert "kv260" in results.result_names()


def test_sizes_are_judged_by_what_is_scarcest():
    size = budget.Size(
        like="kv260", ports=4, lanes=1, sources="ab", resources=Resources(lut=58_560, bram18=240)
    )
    assert size.share("kv260") == (120 / 144, "bram36")
    assert not size.fits("kv260")
    assert size.fits("zcu104")


def test_the_page_is_what_the_results_say():
    assert page.PLACE.read_text() == page.text(), "run `python -m fpga.synth.report --page`"
