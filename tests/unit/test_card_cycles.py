"""The cycle model: sourced constants, a ceiling nothing passes, and cases worked by hand."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fpga.driver.buffers import LaneCommand
from fpga.program import isa
from hetero.core.errors import ConfigError
from sim.calib import profile as calib
from sim.calib.profile import card_names, load_profile
from sim.cycles.model import CycleModel

CARDS = ("u55c", "u50", "u280", "kv260")
PUBLIC = re.compile(
    r"\b(DS|UG)\d{3,4}\b|arXiv \d{4}\.\d{5}|[\w.-]+/[\w.-]+(#\d+| [\w./-]+\.csv)|https?:|\.\w+/t/"
)
OWN_CHOICE = re.compile(r"^(assumed|assumption|design|design choice|estimate|derived)\b")
PAGE = Path(__file__).parents[2] / "docs" / "simulated-card.md"


def constants(file):
    """Sourced entries of a file of constants, by their dotted names."""
    document = calib.tomllib.loads((calib.FOLDER / file).read_text(encoding="utf-8"))
    found = {}
    for section, entry in document.items():
        sub = {section: entry} if "value" in entry else entry
        if isinstance(sub, dict):
            found |= {key: value for key, value in sub.items() if key != "kind"}
    return found


def matmul(num_rows, width, *, bits=4, sampled_only=False):
    return isa.MatMul(
        sampled_only=sampled_only,
        weight_beat=0,
        num_rows=num_rows,
        width=width,
        weight_bits=bits,
        row_shift=0,
        out_vec=0,
        out_frac=16,
        accumulate=0,
    )


def norm(width):
    return isa.NormQuant(in_vec=0, width=width, gamma_beat=0, gamma_shift=14, eps_q=1)


def embed(width):
    return isa.Embed(weight_beat=0, num_rows=512, width=width, row_shift=0, out_vec=0, out_frac=16)


def attention(num_heads, num_kv_heads, head_dim):
    return isa.Attention(
        layer=0,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        out_vec=0,
        out_frac=16,
    )


def head(num_rows, width):
    return isa.Head(
        sampled_only=True,
        weight_beat=0,
        num_rows=num_rows,
        width=width,
        weight_bits=8,
        row_shift=0,
        out_frac=16,
        num_candidates=64,
        d2t_beat=isa.NO_BEAT,
        valid_rows=num_rows,
    )


def small_draft(hidden=256):
    """One decoder layer and a head, in the compiler's order."""
    heads = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 32}
    return [
        embed(hidden),
        norm(hidden),
        matmul(12 * 32, hidden),
        isa.RopeKv(in_vec=0, in_frac=16, layer=0, **heads),
        attention(**heads),
        isa.Quant(in_vec=0, width=hidden, in_frac=16),
        matmul(hidden, hidden),
        norm(hidden),
        matmul(4 * hidden, hidden),
        isa.SiluGate(gate_vec=0, up_vec=0, width=2 * hidden, in_frac=16, out_vec=0, out_frac=16),
        isa.Quant(in_vec=0, width=2 * hidden, in_frac=16),
        matmul(hidden, 2 * hidden, sampled_only=True),
        head(4096, hidden),
        isa.Draw(sampled_only=True, logit_frac=16),
        isa.End(),
    ]


def lane(*, slot=0, start=0, tokens=1, drafts=1):
    return LaneCommand(
        slot=slot,
        start=start,
        token_ids=(1,) * tokens,
        num_draft_tokens=drafts,
        output_index=0,
        seed=0,
        choice_index=0,
        inv_temperature=0,
    )


def lanes(count, **work):
    return [lane(slot=slot, **work) for slot in range(count)]


def run(card, work, program=None):
    return CycleModel(program or small_draft(), load_profile(card)).start(work)


@pytest.fixture
def tiny():
    """64 bytes a cycle from memory, 128 into the array; FIFOs of 512 bytes; latency 10."""
    card = load_profile("u55c")
    return replace(
        card,
        memory=replace(card.memory, peak_bytes_per_s=64 * 10**9, ceiling=1.0, latency_cycles=10),
        kernel=replace(card.kernel, clock_hz=10**9, ports=2, port_beat_bytes=64, max_lanes=2),
        engine=replace(
            card.engine,
            fifo_beats=4,
            tile_pipeline_cycles=3,
            vector_elements_per_cycle=8,
            vector_pipeline_cycles=5,
            attention_products_per_cycle=64,
            softmax_scores_per_cycle=4,
            sample_cycles=20,
            instruction_cycles=2,
            start_cycles=100,
        ),
    )


def test_the_known_cards_load():
    assert card_names() == sorted(CARDS)
    for name in CARDS:
        assert load_profile(name).name == name


def test_an_unknown_card_is_refused_with_those_that_exist():
    with pytest.raises(ConfigError, match=r"u999.*kv260, u280, u50, u55c"):
        load_profile("u999")


@pytest.mark.parametrize("file", [*(f"{name}.toml" for name in CARDS), calib.ENGINE_FILE])
def test_every_constant_has_a_source(file):
    entries = constants(file)
    assert entries
    for key, entry in entries.items():
        source = entry["source"]
        assert PUBLIC.search(source) or OWN_CHOICE.match(source), f"{key}: {source}"


def test_a_constant_without_source_is_refused(tmp_path, monkeypatch):
    shutil.copytree(calib.FOLDER, tmp_path / "calib")
    file = tmp_path / "calib" / "u50.toml"
    text, count = re.subn(
        r"(ceiling = \{ value = [\d.]+), source = \".*\" }", r"\1 }", file.read_text()
    )
    assert count == 1
    file.write_text(text)
    monkeypatch.setattr(calib, "FOLDER", tmp_path / "calib")
    assert load_profile("u280").name == "u280"
    with pytest.raises(ConfigError, match=r"u50\.toml: ceiling"):
        load_profile("u50")


@pytest.mark.parametrize("name", CARDS)
def test_the_page_shows_the_constants_as_they_are(name):
    entries = constants(f"{name}.toml") | constants(calib.ENGINE_FILE)
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", PAGE.read_text(), flags=re.MULTILINE)
    assert rows
    for key, cells in rows:
        values = [cell.strip() for cell in cells.split("|")]
        shown = values[CARDS.index(name)] if len(values) == len(CARDS) else values[0]
        assert shown == f"{entries[key]['value']:,}", key


@pytest.mark.parametrize("name", CARDS)
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("context", [1, 100, 2000])
def test_no_start_passes_the_ceiling(name, rows, context):
    card = load_profile(name)
    report = run(name, lanes(rows, start=context - 1, drafts=4))
    reachable = card.memory.peak_bytes_per_s * card.memory.ceiling
    assert 0 < report.bytes_per_s(card.kernel.clock_hz) <= reachable
    assert report.bytes_read <= report.cycles * card.bytes_per_cycle


@pytest.mark.parametrize("name", CARDS)
def test_a_long_matrix_comes_near_the_ceiling_and_not_past(name):
    card = load_profile(name)
    report = run(name, [lane()], [matmul(65536, 8192)])
    share = report.bytes_read / (report.cycles * card.bytes_per_cycle)
    assert 0.98 < share <= 1


@pytest.mark.parametrize("name", CARDS)
def test_more_context_takes_longer(name):
    cycles = [run(name, [lane(start=start)]).cycles for start in range(0, 2000, 97)]
    assert cycles == sorted(cycles)
    assert cycles[0] < cycles[-1]


@pytest.mark.parametrize("name", CARDS)
def test_more_rows_take_longer_and_less_each(name):
    cycles = [run(name, lanes(rows, start=255)).cycles for rows in (1, 2, 3, 4)]
    assert cycles == sorted(cycles)
    assert cycles[0] < cycles[3] < 4 * cycles[0]


@pytest.mark.parametrize("name", CARDS)
def test_more_passes_take_longer(name):
    reports = [run(name, [lane(start=64, drafts=drafts)]) for drafts in range(1, 6)]
    assert [report.passes for report in reports] == [1, 2, 3, 4, 5]
    assert [r.cycles for r in reports] == sorted({r.cycles for r in reports})


def test_tokens_to_read_share_passes():
    width = load_profile("u55c").kernel.max_lanes
    assert run("u55c", [lane(tokens=3 * width, drafts=0)]).passes == 3
    assert run("u55c", [lane(tokens=3 * width + 1, drafts=2)]).passes == 5


def test_rows_that_only_fill_the_cache_skip_the_sampled_tail():
    filling, sampled = (run("u55c", [lane(drafts=drafts)]) for drafts in (0, 1))
    assert filling.cycles < sampled.cycles
    down = 2 * 256 + 17 * 256 * 512 // 32  # mantissas, and 16 weight beats to one of scales
    assert sampled.bytes_read - filling.bytes_read == down + 4096 * (256 + 2)
    assert {"Head", "Draw"} <= sampled.by_instruction.keys() - filling.by_instruction.keys()


def test_lanes_share_the_weights_but_not_the_cache():
    one, four = (run("u55c", lanes(rows, start=255)) for rows in (1, 4))
    cache = 2 * 2 * 256 * (32 + 4)
    assert four.bytes_read - one.bytes_read == 3 * (cache + 256)  # and a row of the embedding


def test_the_parts_sum_up_to_the_whole():
    report = run("u50", lanes(2, start=31, drafts=3))
    assert report.cycles - 1 < sum(report.by_instruction.values()) <= report.cycles


def test_the_kria_is_slower_than_the_alveo():
    def seconds(name):
        work = lanes(4, start=255, drafts=4)
        return run(name, work).cycles / load_profile(name).kernel.clock_hz

    assert seconds("kv260") > seconds("u55c")


def tiny_start(card, *program, **work):
    report = CycleModel([*program, isa.End()], card).start([lane(**work)])
    return report.cycles, report.bytes_read


def test_a_matrix_by_hand(tiny):
    """A beat of mantissas, 4 of weights: 5 cycles from memory, 100 to 105; drain 3; hand on 2."""
    assert tiny_start(tiny, matmul(8, 32, bits=8)) == (110, 5 * 64)


def test_a_matrix_that_lies_in_the_fifos_by_hand(tiny):
    """The norm's 8 + 5 + 2 cycles bring all 5 beats; the array takes 2.5, to 117.5; 3 + 2."""
    assert tiny_start(tiny, norm(64), matmul(8, 32, bits=8)) == (123, 320)


def test_a_fifo_holds_no_more_than_its_size_by_hand(tiny):
    """No FIFO: all 5 beats from 115 on, to 120; 3 + 2."""
    none = replace(tiny, engine=replace(tiny.engine, fifo_beats=0))
    assert tiny_start(none, norm(64), matmul(8, 32, bits=8)) == (125, 320)


def test_a_gather_waits_for_its_address_by_hand(tiny):
    """Latency 10, a beat 1, vector pass 8 + 5, hand on 2."""
    assert tiny_start(tiny, embed(64)) == (126, 64)


def test_attention_that_waits_for_memory_by_hand(tiny):
    """8 positions of 72 bytes: 9 cycles after latency 10, to 119; products 16, to 116.

    Two vector pipelines, 10; hand on 2.
    """
    assert tiny_start(tiny, attention(2, 1, 32), start=7) == (131, 576)


def test_attention_that_computes_longer_by_hand(tiny):
    """Keys take 8, then values 8 beside 16 scores at one a cycle: 124; 10 and 2 as above."""
    slow = replace(tiny, engine=replace(tiny.engine, softmax_scores_per_cycle=1))
    assert tiny_start(slow, attention(2, 1, 32), start=7) == (136, 576)


def test_drawing_by_hand(tiny):
    assert tiny_start(tiny, isa.Draw(logit_frac=16)) == (122, 0)


def test_the_same_start_takes_the_same_cycles():
    work = [lane(tokens=9, drafts=4), lane(slot=1, start=40, drafts=2)]
    model = CycleModel(small_draft(), load_profile("u50"))
    assert model.start(work) == model.start(work) == run("u50", work)
