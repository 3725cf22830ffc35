"""``hetero card report``: what is counted as information, what a trace shows, what is printed."""

import dataclasses
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fpga.program import isa
from fpga.program.artefact import load_artefact
from hetero.cli.main import cli
from hetero.core.errors import ConfigError
from sim.calib.profile import load_profile
from sim.report import measure
from sim.report.information import pass_bytes, row_bytes, shared_bytes
from sim.report.measure import RtlFigures, RunConfig, one_token
from sim.report.picture import utilisation_svg
from sim.report.scaling import model_card
from sim.report.units import UNITS, binned, busy_share, cycles_by_instruction
from sim.shapes import SHAPES, DraftSize, random_draft

SMALL = DraftSize(
    hidden_size=64, intermediate_size=96, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=32,
    vocab_size=100, context_tokens=128,
)  # fmt: skip


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    return random_draft(SMALL, tmp_path_factory.mktemp("random"))


@pytest.fixture
def config(draft, tmp_path):
    return RunConfig(draft=draft, cache_dir=tmp_path, progress=lambda _: None, position=10)


# ---- drafts of a given size


def test_a_random_draft_has_the_size_it_was_asked_for(draft):
    layer = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 96 + 2 * 64
    assert load_artefact(draft).manifest.num_params == 100 * 64 + 2 * layer + 64


def test_a_random_draft_is_built_once(draft):
    before = (draft / "draft.json").stat().st_mtime_ns
    assert random_draft(SMALL, draft.parent) == draft
    assert (draft / "draft.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("name, params", [("5m", 5.0e6), ("10m", 10.0e6), ("15m", 15.5e6)])
def test_sizes_are_what_their_names_say(name, params):
    size = SHAPES[name]
    total = sum(rows * columns for rows, columns in size.matrices().values())
    assert total == pytest.approx(params, rel=0.01)


# ---- information bytes


def test_information_bytes_by_hand(draft):
    program = load_artefact(draft).program

    def int4(rows, columns):
        return rows * columns // 2 + rows * columns // 32 + 2 * rows

    layer = int4(128, 64) + int4(64, 64) + 2 * int4(96, 64) + int4(64, 96) + 2 * 2 * 64
    assert shared_bytes(program) == 2 * layer + 2 * 64 + 100 * 64 + 2 * 100
    assert row_bytes(program, 0) == 64 + 2 + 2 * 32
    assert row_bytes(program, 7) - row_bytes(program, 6) == 2 * 2 * (32 + 4)
    two = pass_bytes(program, [3, 5])
    assert two == shared_bytes(program) + row_bytes(program, 3) + row_bytes(program, 5)


def test_rows_of_a_vocabulary_beyond_the_tokenizers_are_filler(draft):
    program = list(load_artefact(draft).program)
    index = next(i for i, op in enumerate(program) if isinstance(op, isa.Head))
    before = shared_bytes(program)
    program[index] = dataclasses.replace(program[index], valid_rows=90)
    assert before - shared_bytes(program) == 10 * (64 + 2)


# ---- traces


def trace_of(*runs):
    """(busy word, opcode, cycles) one after the other."""
    return np.array(
        [[busy, opcode << 24 | 3] for busy, opcode, cycles in runs for _ in range(cycles)],
        dtype=np.uint32,
    )


TOKEN = ((1 << 7, isa.Embed.opcode, 10), (0b1110, isa.MatMul.opcode, 60), (0, isa.Draw.opcode, 30))


def test_one_token_lies_between_two_embeds():
    trace = trace_of((0, 0, 5), *TOKEN, *TOKEN, (1 << 7, isa.Embed.opcode, 4), (0, 4, 50))
    token = one_token(trace)
    np.testing.assert_array_equal(token, trace_of(*TOKEN))
    with pytest.raises(ConfigError, match="no whole token"):
        one_token(trace_of((0, 0, 5), *TOKEN))


def test_shares_of_units_and_instructions():
    trace = trace_of(*TOKEN)
    shares = busy_share(trace)
    assert shares["EMBED"] == pytest.approx(0.1)
    assert shares["an array takes a beat"] == pytest.approx(0.6)
    assert shares["a beat arrives on some port"] == 0
    assert set(shares) == set(UNITS)
    assert cycles_by_instruction(trace) == {"Embed": 10, "MatMul": 60, "Draw": 30}
    in_bins = binned(trace, 7)
    assert all(values.size == 7 for values in in_bins.values())
    np.testing.assert_allclose(in_bins["EMBED"], [10 / 14, 0, 0, 0, 0, 0, 0])


def test_the_picture_is_svg_with_a_row_for_each_unit():
    root = ElementTree.fromstring(utilisation_svg(trace_of(*TOKEN), "a < b & c"))
    names = {"svg": "http://www.w3.org/2000/svg"}
    texts = [text.text for text in root.findall("svg:text", names)]
    assert texts[0] == "a < b & c"
    assert set(UNITS) <= set(texts)
    assert "60.0%" in texts
    bars = [r for r in root.findall("svg:rect", names) if r.get("fill") == "#1f5a96"]
    assert len(bars) == 4  # EMBED, an array and its instruction, beats on every port
    matmul = next(bar for bar in bars if float(bar.get("width")) > 300)
    assert float(matmul.get("x")) == pytest.approx(220 + 60)
    assert float(matmul.get("width")) == pytest.approx(360)


# ---- whole cards


@pytest.mark.parametrize("device", ["u55c", "kv260"])
def test_more_sequences_draft_more_until_the_lanes_are_full(config, device):
    card = model_card(dataclasses.replace(config, device=device), accepted=2.0)
    rates = [point.tokens_per_s for point in card.points]
    full = next(i for i, point in enumerate(card.points) if point.sequences == card.lanes)
    assert rates[: full + 1] == sorted(rates[: full + 1])
    assert rates[full:] == pytest.approx([rates[full]] * len(rates[full:]))
    for point in card.points:
        assert point.starts == -(-point.sequences // card.lanes)
        total_s = point.card_s + point.host_s
        assert point.tokens_per_s == pytest.approx(point.sequences * 4 / total_s)
        assert point.pays_above_step_s == pytest.approx(total_s / 2)
    assert 0 < card.bandwidth_utilisation < 1
    assert 0 < card.memory_efficiency < 1


# ---- the command


@pytest.fixture
def run(draft, monkeypatch):
    """The command with an RTL run that took what we say."""
    asked = []

    def measured(cfg):
        asked.append(cfg)
        return RtlFigures(
            cycles_per_token=2000.0, ideal_cycles_per_token=1800.0, information_bytes=460_800.0,
            bytes_per_cycle=256, trace=trace_of(*TOKEN),
        )  # fmt: skip

    monkeypatch.setattr(measure, "measure_rtl", measured)

    def invoke(*arguments):
        options = ["card", "report", "--draft", str(draft), "--position", "10", *arguments]
        return CliRunner().invoke(cli, options, catch_exceptions=True), asked

    return invoke


def test_the_report_says_what_was_measured_and_what_modelled(run, tmp_path):
    plot = tmp_path / "token.svg"
    result, asked = run("--json", "--card-device", "kv260", "--rtl-ports", "2", "--plot", str(plot))
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["rtl"]["bandwidth_utilisation"] == pytest.approx(0.9)
    assert "RTL simulation" in document["rtl"]["source"]
    assert (asked[0].device, asked[0].ports) == ("kv260", 2)
    sim = document["sim"]
    assert sim["error_vs_rtl"] == pytest.approx(sim["cycles_per_token"] / 2000 - 1)
    assert "model" in document["modelled"]["source"]
    assert document["modelled"]["host_us_per_start"] == pytest.approx(
        load_profile("kv260").host.seconds * 1e6
    )
    assert plot.read_text().startswith("<svg")


def test_the_report_can_be_read(run):
    result, _ = run()
    assert result.exit_code == 0, result.output
    assert "90.0% of the ports' bytes are information" in result.stdout
    assert "host time of each start, on top: 151 us" in result.stdout


@pytest.mark.parametrize(
    "arguments, fault",
    [
        (["--memory", "fast"], "ideal, card"),
        (["--accepted", "0"], "--accepted 0"),
        (["--card-device", "u99"], "u99"),
        (["--draft", "nothing"], "no such folder"),
        (["--plot", "/proc/none/x.svg"], "--plot /proc/none/x.svg"),
    ],
)
def test_what_cannot_be_is_refused(run, arguments, fault):
    result, _ = run(*arguments)
    assert result.exit_code != 0
    assert fault in str(result.exception)


@pytest.mark.rtl
@pytest.mark.timeout(1800)
def test_an_rtl_run_is_measured(config):
    """The least card, for real: everything that is counted lies in what it can be."""
    from support.rtl_card import CACHE
    from support.rtl_card import SMALL as BUILD

    figures = measure.measure_rtl(
        dataclasses.replace(config, ports=1, cache_dir=Path(CACHE), build=BUILD)
    )
    assert 0.2 < figures.utilisation < 1
    assert figures.ideal_cycles_per_token < figures.cycles_per_token
    # The last token of a start is not the mean one, but nearly so.
    assert len(figures.trace) == pytest.approx(figures.cycles_per_token, rel=0.02)
    shares = busy_share(figures.trace)
    assert shares["MATMUL or HEAD in execution"] > 0.3
    assert set(cycles_by_instruction(figures.trace)) >= {"Embed", "MatMul", "Attention", "Draw"}
