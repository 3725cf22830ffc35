"""The cycle model against what was measured on the RTL, on a host without Verilator."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from sim.calib import record as records
from sim.calib.cases import CASES, DRAFTS, FITTED_BUILDS, Case, starts
from sim.calib.errors import Miss, StartMiss, Subject
from sim.calib.fit import fit, loss
from sim.calib.measure import Measured, cycles_by_pass
from sim.calib.profile import ENGINE_FILE, FOLDER, Constants, engine_entries, load_profile
from sim.calib.record import Record, load_record, rtl_sha256, save_constants, save_record
from sim.calib.summary import CaseErrors, beyond_limits, errors_of, summary

CONSTANTS = load_profile("u55c").constants
STALE = "the RTL has changed since the cycle model was calibrated: run make rtl-calibrate"


@pytest.fixture(scope="module")
def drafts_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("drafts")


@pytest.fixture(scope="module")
def record():
    return load_record()


@pytest.fixture(scope="module")
def subjects(record, drafts_dir):
    return [Subject(case, record.measured[case.name], drafts_dir) for case in CASES]


@pytest.fixture(scope="module")
def errors(subjects):
    return errors_of(subjects, CONSTANTS)


# ---- what is committed


def test_the_record_is_of_the_present_rtl(record):
    assert record.rtl_sha256 == rtl_sha256(), STALE


def test_the_constants_are_fitted_to_the_recorded_rtl(record):
    for name, entry in engine_entries(FOLDER / ENGINE_FILE).items():
        assert f"fitted to the RTL {record.rtl_sha256[:12]}: " in entry["source"], name


def test_every_case_is_on_record(record):
    assert list(record.measured) == [case.name for case in CASES]
    for case in CASES:
        assert len(record.measured[case.name]) == len(case.starts)


def test_the_model_is_as_near_as_it_must_be(errors):
    """1 % or 8 cycles an instruction, but where chance decides; a token 2 %, 3 % with HBM and on 8
    ports."""
    assert beyond_limits(errors) == []


def test_the_committed_errors_are_the_models(errors, record):
    """Whoever changes the model sees here what it costs; --write keeps the new figures."""
    kept = json.loads(records.ERRORS_FILE.read_text())
    assert kept["rtl_sha256"] == record.rtl_sha256
    for key, value in summary(errors).items():
        assert kept[key] == json.loads(json.dumps(value)), key


def test_the_page_shows_the_committed_errors():
    page = (FOLDER.parents[1] / "docs" / "simulated-card.md").read_text()
    kept = json.loads(records.ERRORS_FILE.read_text())
    for kernel in kept["kernels"]:
        name, worst, mean = kernel["kernel"], kernel["max_error"], kernel["mean_error"]
        assert re.search(rf"^\| {name} \|.*\| {worst:.2%} \| {mean:.2%} \|$", page, re.M), name
    for group in ("token", "token_8_ports", "token_card_memory", "token_shared_memory"):
        assert f"| {kept[group]['max_error']:.2%} |" in page, group


# ---- what is fitted and what is held out


def test_ports_lanes_lengths_and_a_draft_are_held_out():
    fitted = [case for case in CASES if case.fitted]
    assert {case.rtl.ports for case in fitted} == {1, 2, 4}
    assert {case.memory for case in fitted} == {"ideal"}
    assert "held_out" not in {case.draft for case in fitted}
    held_out = [case for case in CASES if not case.fitted]
    assert {8} <= {case.rtl.ports for case in held_out}
    assert {"ideal", "card"} == {case.memory for case in held_out}
    assert {case.build for case in fitted} == set(FITTED_BUILDS)
    assert {case.draft for case in CASES} == set(DRAFTS)


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_starts_are_fitted_or_unseen(lanes):
    seen = {work.start for start in starts(lanes) if start.fitted for work in start.lanes}
    unseen = {work.start for start in starts(lanes) if not start.fitted for work in start.lanes}
    assert {0, 100, 256} <= seen
    assert 173 in unseen - seen
    for start in starts(lanes):
        work = start.work()
        assert len({lane.write_slot for lane in work}) == len(work) <= lanes


def test_a_tree_is_a_chain_on_a_prefix():
    lanes = starts(4)[-1].work()
    assert [lane.ancestor_mask for lane in lanes] == [0b1, 0b11, 0b111, 0b1111]
    assert {lane.prefix_len for lane in lanes} == {60}
    assert [lane.start for lane in lanes] == [60, 61, 62, 63]


# ---- measuring, fitting, keeping


def test_a_trace_is_cut_into_passes_and_instructions():
    running, between, idle = 1 << 11, 1 << 11 | 1 << 9, 0
    rows = [
        *[(idle, 7)] * 3, *[(running, 0)] * 5, (between, 0), *[(running, 1)] * 2,
        *[(running, 0)] * 4, *[(running, 2)] * 3, (idle, 2),
    ]  # fmt: skip
    trace = np.array(rows, dtype=np.uint32)
    assert cycles_by_pass(trace, 3) == ((5, 2, 0), (4, 0, 3))


def test_an_error_of_one_percent_is_eight_cycles_or_one_percent():
    def error(modelled, measured):
        return Miss("MatMul", (), fitted=True, modelled=modelled, measured=measured).error

    assert error(108, 100) == error(92, 100) == pytest.approx(0.01)
    assert error(808, 800) == pytest.approx(0.01)
    assert error(10_100, 10_000) == pytest.approx(0.01)
    assert error(110, 100) > 0.01


def case_errors(case, *, op=100, start=1000, token=1000):
    miss = Miss("Quant", (1,), fitted=False, modelled=op, measured=100)
    whole = StartMiss(fitted=False, modelled=start, measured=1000, passes=((token, 1000),))
    return CaseErrors(case=case, ops=[miss], starts=[whole])


@pytest.mark.parametrize(
    "case, limit",
    [
        (Case(draft="square", build="4p4l"), 0.02),
        (Case(draft="square", build="8p2l"), 0.03),
        (Case(draft="square", build="4p4l", memory="card"), 0.03),
    ],
)
def test_what_is_beyond_the_limits_is_told(case, limit):
    good = round(1000 * (1 + limit)) - 1
    assert beyond_limits([case_errors(case, token=good, start=good)]) == []
    for worse in (case_errors(case, token=good + 2), case_errors(case, start=good + 2)):
        assert beyond_limits([worse]) == [f"{case.name}: a token is {limit + 0.001:.2%} off"]


def test_an_instruction_that_is_off_is_told_by_name():
    assert beyond_limits([case_errors(Case(draft="square", build="4p4l"), op=109)]) == [
        "Quant: 1.12% of max(cycles, 800)"
    ]


def test_constants_find_their_way_back(subjects):
    """From constants that are off, the fit comes to where its own measurements were made."""
    subject = next(s for s in subjects if s.case.name == "slim-1p1l-ideal")
    model, made = subject.model(CONSTANTS), []
    for start, real in zip(subject.case.starts, subject.measured, strict=True):
        report = subject.modelled(model, start, real)
        passes = tuple(map(tuple, report.spent.tolist()))
        made.append(replace(real, cycles=report.cycles, passes=passes))
    exact = subject.with_measured(made)
    assert loss([exact], CONSTANTS) == 0
    off = CONSTANTS._replace(norm=CONSTANTS.norm + 9, draw=CONSTANTS.draw + 4, silu=0)
    assert loss([exact], off) > 0
    found = fit([exact], off, lambda _line: None)
    assert (found.norm, found.draw, found.silu) == (CONSTANTS.norm, CONSTANTS.draw, CONSTANTS.silu)


def test_a_record_comes_back_as_it_was_kept(tmp_path):
    start = Measured(cycles=9, passes=((1, 2), (3, 0)), drafted=((5,), (6, 7)), at_cycle=4)
    kept = Record(rtl_sha256="ab", measured={"one": [start, start], "two": [start]})
    save_record(kept, tmp_path / "measured.json")
    assert load_record(tmp_path / "measured.json") == kept


def test_fitted_constants_keep_their_meaning(tmp_path):
    path = tmp_path / ENGINE_FILE
    path.write_text((FOLDER / ENGINE_FILE).read_text())
    before = engine_entries(path)
    save_constants(Constants(*range(len(Constants._fields))), "cd" * 32, path)
    after = engine_entries(path)
    assert list(after) == list(before) == list(Constants._fields)
    assert [entry["value"] for entry in after.values()] == list(range(len(after)))
    for name, entry in after.items():
        meaning = before[name]["source"].partition(": ")[2]
        assert entry["source"] == f"fitted to the RTL {'cd' * 6}: {meaning}"


def test_comments_of_the_rtl_are_no_matter_and_its_text_is(tmp_path, monkeypatch):
    file = tmp_path / "draft_card.sv"
    file.write_text("module draft_card;  // one\nendmodule\n")
    source = records.card_source(records.RtlBuild())
    changed = type(source)(files=(file,), top=source.top, parameters={})
    monkeypatch.setattr(records, "card_source", lambda _build: changed)
    monkeypatch.setattr(records, "include_files", list)
    first = rtl_sha256()
    file.write_text("module  draft_card; // two\n\nendmodule\n")
    assert rtl_sha256() == first
    file.write_text("module draft_card; wire x;\nendmodule\n")
    assert rtl_sha256() != first
