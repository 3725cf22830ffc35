"""The cycle model: sourced, deterministic, monotonic, and never faster than memory."""

import itertools
import re

import pytest
from support.llama_files import TINY, random_weights, write_checkpoint

from fpga.driver.buffers import LaneCommand
from fpga.program import isa
from fpga.program.artefact import load_artefact
from fpga.program.build import build_artefact
from hetero.core.errors import ConfigError
from sim.calib import profile as calib
from sim.calib.profile import card_names, load_profile
from sim.cycles.model import CycleModel
from sim.schedule import card_passes, chunked, reading

CARDS = card_names()


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cycles")
    source = write_checkpoint(folder / "source", TINY, random_weights(TINY))
    build_artefact(source, folder / "draft", target_tokenizer_sha256="ab" * 32)
    return load_artefact(folder / "draft").program


def lanes(count=1, *, start=10, read=1, drafts=4):
    return [
        LaneCommand(
            slot=slot, start=start, token_ids=tuple(range(read)), num_draft_tokens=drafts,
            output_index=0, seed=0, choice_index=0, inv_temperature=0,
        )
        for slot in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("card", CARDS)
def test_every_constant_has_a_source(card):
    """Those of the engine are read along with each card's."""
    assert load_profile(card).name == card


def test_a_constant_without_source_is_refused(tmp_path, monkeypatch):
    for file in calib.FOLDER.glob("*.toml"):
        (tmp_path / file.name).write_text(file.read_text())
    text = (tmp_path / "u55c.toml").read_text()
    (tmp_path / "u55c.toml").write_text(re.sub(r'(ceiling.*source = )".*"', r'\1""', text))
    monkeypatch.setattr(calib, "FOLDER", tmp_path)
    with pytest.raises(ConfigError, match=r"u55c.toml: ceiling: has no source"):
        load_profile("u55c")


def test_an_unknown_card_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"'v80': use one of kv260, u280, u50, u55c"):
        load_profile("v80")


@pytest.mark.parametrize("card", CARDS)
def test_bandwidth_stays_below_the_ceiling(card, program):
    profile = load_profile(card)
    model = CycleModel(program, profile)
    limit = profile.memory.peak_bytes_per_s * profile.memory.ceiling
    for count, start, read, drafts in itertools.product((1, 4), (0, 100), (1, 20), (0, 1, 8)):
        report = model.start(lanes(count, start=start, read=read, drafts=drafts))
        assert 0 < report.bytes_per_s(profile.kernel.clock_hz) <= limit


@pytest.mark.parametrize("card", CARDS)
def test_a_wide_matrix_comes_close_to_the_ceiling(card):
    """A program that is one long weight stream is bound by memory, as a card must be."""
    op = isa.MatMul(
        weight_beat=0, num_rows=60_000, width=2048, weight_bits=4, row_shift=0, out_vec=0,
        out_frac=16, accumulate=0,
    )  # fmt: skip
    profile = load_profile(card)
    report = CycleModel([op], profile).start(lanes(drafts=0))
    reached = report.bytes_per_s(profile.kernel.clock_hz) / profile.memory.peak_bytes_per_s
    assert profile.memory.ceiling - 0.01 < reached <= profile.memory.ceiling


def test_the_same_work_costs_the_same(program):
    model = CycleModel(program, load_profile("u55c"))
    assert model.start(lanes(3)) == model.start(lanes(3))
    again = CycleModel(program, load_profile("u55c"))
    assert again.start(lanes(3)) == model.start(lanes(3))


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("name", ["start", "drafts", "read"])
def test_more_work_takes_longer(card, name, program):
    model = CycleModel(program, load_profile(card))
    cycles = [model.start(lanes(**{name: value})).cycles for value in (1, 5, 30, 90)]
    assert cycles == sorted(cycles)
    assert cycles[-1] > cycles[0]


@pytest.mark.parametrize("card", CARDS)
def test_lanes_share_the_weights_but_are_not_free(card, program):
    model = CycleModel(program, load_profile(card))
    one, four = (model.start(lanes(n, start=90)).cycles for n in (1, 4))
    assert one <= four < 2 * one
    beyond = model.start(lanes(load_profile(card).kernel.max_lanes + 1, start=90)).cycles
    assert beyond > four


def test_costs_by_instruction_add_up(program):
    report = CycleModel(program, load_profile("kv260")).start(lanes())
    assert report.cycles - 1 < sum(report.by_instruction.values()) <= report.cycles
    kinds = {type(op).__name__ for op in program if not isinstance(op, isa.End)}
    assert set(report.by_instruction) == kinds | {"start"}


def test_tokens_that_only_fill_the_cache_skip_the_head(program):
    model = CycleModel(program, load_profile("u55c"))
    assert "Head" not in model.start(lanes(drafts=0)).by_instruction


# ---- schedule


def test_passes_are_full_but_the_first():
    work = lanes(3, read=5, drafts=3)
    passes = card_passes(work, 4)
    assert [len(rows) for rows in passes] == [3, 4, 4, 4, 3, 3]
    assert [row.sampled for row in passes[3]] == [False, True, True, True]


def test_rows_of_a_lane_are_in_order_and_complete():
    rows = reading(lanes(2, start=7, read=4, drafts=1))
    for lane in (0, 1):
        assert [row.position for row in rows if row.lane == lane] == [7, 8, 9, 10]
    assert sum(row.sampled for row in rows) == 2
    assert list(chunked([], 4)) == []
    assert [list(c) for c in chunked([1, 2, 3, 4], 4)] == [[1, 2, 3, 4]]
