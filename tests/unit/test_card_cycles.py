"""The cycle model: constants with sources, builds, shapes of work, starts worked out by hand."""

import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from fpga.driver.buffers import LaneCommand
from fpga.program import isa
from fpga.vivado.builds import card_builds, load_build
from hetero.core.errors import ConfigError
from sim.calib import profile as calib
from sim.calib.profile import card_names, load_profile
from sim.cycles.model import CycleModel
from sim.rtl.parameters import MemoryTiming
from sim.rtl.timing import ideal_timing

CARDS = ("u55c", "u50", "u280", "u250", "kv260", "zcu104", "v80")
BUILT = CARDS[:-1]
PUBLIC = re.compile(
    r"\b(DS|UG|PG|XD)\d{3,4}\b|arXiv \d{4}\.\d{5}|[\w-]+/[\w.-]+(#\d+|\s\S+\.\w+)|\w+\.io/"
)
OWN_CHOICE = re.compile(r"^(design|estimate|assumed|derived|fitted to the RTL)\b")
PAGE = Path(__file__).parents[2] / "docs" / "simulated-card.md"


def constants(file):
    """Sourced entries of a file of constants, by their names."""
    document = calib.tomllib.loads((calib.FOLDER / file).read_text(encoding="utf-8"))
    found = {}
    for section, entry in document.items():
        sub = {section: entry} if "value" in entry else entry
        if isinstance(sub, dict):
            found |= {key: value for key, value in sub.items() if isinstance(value, dict)}
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
        isa.RopeRow(rope_beat=0, head_dim=32),
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
        norm(hidden),
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


def run(card, work, program=None, **options):
    return CycleModel(program or small_draft(), load_profile(card), **options).start(work)


# ---- constants


def test_the_known_cards_load():
    assert card_names() == sorted(CARDS)
    for name in CARDS:
        assert load_profile(name).name == name


def test_an_unknown_card_is_refused_with_those_that_exist():
    with pytest.raises(ConfigError, match=r"u999.*kv260, u250, u280, u50, u55c, v80, zcu104"):
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
    entries = constants(f"{name}.toml")
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", PAGE.read_text(), flags=re.MULTILINE)
    assert {key for key, _ in rows} >= {"banks", "ceiling", "clock_hz", "start_us", "done_us"}
    for key, cells in rows:
        values = [cell.strip() for cell in cells.split("|")]
        assert len(values) == len(CARDS), key
        assert values[CARDS.index(name)] == f"{entries[key]['value']:,}", key


@pytest.mark.parametrize("name", BUILT)
def test_a_cards_kernel_is_what_is_built_for_it(name):
    build, kernel = load_build(name), load_profile(name).kernel
    assert kernel.clock_hz == build.clock_hz
    assert kernel.ports == len(build.port_banks) == build.parameters["PORTS"]
    assert kernel.max_lanes == build.parameters["LANES"]
    assert kernel.attention_heads == build.parameters["ATTN_HEADS"]
    assert kernel.attention_bytes == build.parameters["ATTN_BYTES"]
    assert kernel.fifo_beats == build.parameters["FIFO_BEATS"]
    assert load_profile(name).memory.bank_bytes == build.bank_bytes
    assert not load_profile(name).cost_model_only


def test_every_build_has_a_card_and_versal_has_none():
    assert sorted(card_builds()) == sorted(BUILT)
    assert "Versal" in load_profile("v80").cost_model_only


@pytest.mark.parametrize("name", CARDS)
def test_host_time_is_a_start_two_syncs_and_a_wait(name):
    host = load_profile(name).host
    assert host.wait in ("interrupt", "poll")
    assert host.seconds == pytest.approx((host.start_us + 2 * host.sync_us + host.done_us) / 1e6)


# ---- what holds on every card


@pytest.mark.parametrize("name", CARDS)
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("context", [1, 100, 2000])
def test_no_start_passes_the_ceiling(name, rows, context):
    card = load_profile(name)
    report = run(name, lanes(min(rows, card.kernel.max_lanes), start=context - 1, drafts=4))
    reachable = card.memory.peak_bytes_per_s * card.memory.ceiling
    assert 0 < report.bytes_per_s(card.kernel.clock_hz) <= reachable
    assert report.bytes_read <= report.cycles * card.bytes_per_cycle


@pytest.mark.parametrize("name", ["u55c", "u50", "u250", "v80"])
def test_a_long_matrix_comes_near_the_ceiling_and_not_past(name):
    card = load_profile(name)
    report = run(name, [lane()], [matmul(65536, 8192)])
    share = report.bytes_read / (report.cycles * card.bytes_per_cycle)
    assert 0.98 < share <= 1


@pytest.mark.parametrize("name", CARDS)
def test_more_context_takes_longer(name):
    cycles = [run(name, [lane(start=start)]).cycles for start in range(0, 2000, 97)]
    assert all(later > 0.98 * earlier for earlier, later in pairwise(cycles))
    assert cycles[0] < cycles[-1]


def test_more_rows_take_longer_and_less_each():
    cycles = [run("u250", lanes(rows, start=255)).cycles for rows in (1, 2, 3, 4)]
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
    filling, sampled = (run("u250", [lane(drafts=drafts)]) for drafts in (0, 1))
    assert filling.cycles < sampled.cycles
    assert filling.bytes_read < sampled.bytes_read
    assert {"Head", "Draw"} <= {kind for kind, spent in sampled.by_instruction.items() if spent}
    assert not {"Head", "Draw"} & {kind for kind, cost in filling.by_instruction.items() if cost}


def test_lanes_share_the_weights_but_not_the_cache():
    """Per port 64 positions, two heads: scales, keys and values of three lanes more."""
    one, four = (run("u250", lanes(rows, start=256)) for rows in (1, 4))
    cache = 64 * 2 * (8 + 32 + 32)
    assert four.bytes_read - one.bytes_read == 4 * 3 * (cache + 64)  # and a row of RoPE angles


def test_the_parts_sum_up_to_the_whole():
    report = run("u50", lanes(2, start=31, drafts=3))
    assert report.spent.sum() == sum(report.by_instruction.values())
    assert report.cycles - 600 < report.spent.sum() < report.cycles


def test_the_kria_is_slower_than_the_alveo():
    def seconds(name):
        return run(name, [lane(start=255, drafts=4)]).cycles / load_profile(name).kernel.clock_hz

    assert seconds("kv260") > seconds("u55c")


def test_loading_the_program_is_paid_once():
    model = CycleModel(small_draft(), load_profile("u50"))
    cold, warm = (model.start([lane()], loads_program=loads).cycles for loads in (True, False))
    assert 0 < cold - warm < 1000


def test_the_same_start_takes_the_same_cycles():
    work = [lane(tokens=9, drafts=4), lane(slot=1, start=40, drafts=2)]
    model = CycleModel(small_draft(), load_profile("u50"))
    assert model.start(work) == model.start(work) == run("u50", work)


def test_a_window_reads_less():
    work = [lane(start=1000)]
    model = CycleModel(small_draft(), load_profile("u50"))
    assert model.start(work, window=64).bytes_read < model.start(work).bytes_read


# ---- what depends on the build and on the memory


def changed(name="u250", **kernel):
    card = load_profile(name)
    return replace(card, kernel=replace(card.kernel, **kernel))


def cycles_of(card, program, work, timing=None):
    return CycleModel(program, card, timing=timing or ideal_timing(card)).start(work).cycles


def test_slower_arrays_attention_and_fifos_cost_cycles():
    """Each parameter of a build that the model knows must matter."""
    work = lanes(2, start=800, drafts=3)
    base = cycles_of(changed(), small_draft(), work)
    assert cycles_of(changed(array_bytes=16), small_draft(), work) > base
    assert cycles_of(changed(attention_heads=1), small_draft(), work) > base
    assert cycles_of(changed(attention_bytes=16), small_draft(), work) > base
    assert cycles_of(changed(fifo_beats=64), small_draft(), work) > base
    assert cycles_of(changed(port_beat_bytes=16), small_draft(), work) > base
    assert cycles_of(changed(ports=2), small_draft(), work) > base


def test_two_arrays_a_lane_take_two_beats_a_cycle():
    """With all lanes in use, and a matrix that the FIFO holds."""
    program = [norm(4096), matmul(64, 1024)]
    few, many = (cycles_of(changed(arrays=n), program, lanes(4)) for n in (4, 8))
    assert many < few


def test_dies_apart_cost_a_little_once():
    near, far = (cycles_of(changed(slr_stages=n), small_draft(), [lane()]) for n in (0, 3))
    assert near <= far <= near + 3


def test_a_fifo_longer_than_the_model_remembers_is_refused():
    with pytest.raises(ConfigError, match=r"u250: fifo_beats = 8192: at most 2048"):
        cycles_of(changed(fifo_beats=8192), small_draft(), [lane()])


def test_latency_shifts_a_start_and_refresh_slows_it():
    card = load_profile("u250")
    program, work = [matmul(4096, 1024)], [lane()]
    fast, slow = (
        cycles_of(card, program, work, MemoryTiming(latency_cycles=latency))
        for latency in (10, 110)
    )
    assert slow - fast == 3 * 100  # command, first beat, result
    refreshing = MemoryTiming(
        is_banked=True,
        channels=4,
        latency_cycles=10,
        refresh_interval_units=1_000_000,
        refresh_units=100_000,
    )
    assert 1.08 < cycles_of(card, program, work, refreshing) / fast < 1.12


def test_ports_that_share_a_memory_share_its_rate():
    card = changed("kv260", port_beat_bytes=64, array_bytes=64)
    timing = MemoryTiming(is_banked=True, channels=4, latency_cycles=96)
    program, work = [matmul(8192, 1024)], [lane()]
    own = cycles_of(card, program, work, timing)
    shared = cycles_of(card, program, work, replace(timing, channels=1))
    assert 3.8 < shared / own < 4.1


def test_a_tokens_row_is_gathered_from_its_port():
    """Four rows on one port come one after the other, on four ports beside each other."""
    model = CycleModel([embed(1024)], load_profile("u250"))
    work = [replace(one, token_ids=(4 * slot,)) for slot, one in enumerate(lanes(4))]
    same = [replace(one, token_ids=(16 * slot,)) for slot, one in enumerate(lanes(4))]
    beats = 2 * 1024 // 32
    assert model.start(same).cycles - model.start(work).cycles > 2 * beats


def test_drafted_tokens_need_not_be_known():
    model = CycleModel(small_draft(), load_profile("u250"))
    work = lanes(2, start=9, drafts=3)
    told = model.start(work, drafted=[(1, 2, 3), (4, 5, 6)]).cycles
    assert model.start(work).cycles == pytest.approx(told, rel=0.05)
