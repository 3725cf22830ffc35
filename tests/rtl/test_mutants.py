"""Bugs planted in modules that carry none of their own; the bench above them must notice."""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.rtl import RTL, Mutant, expect_mutant_caught
from support.rtl_card import open_small, write_draft
from test_attention import options
from test_memory_port import SMALL as MEMORY_PORT
from test_scale_units import TESTS
from test_vector_lanes import SIZES, WIRED
from test_whole_card import ROUGH, assert_equal, ragged_starts

from hetero.core.errors import HeteroError
from sim.rtl import open_card
from sim.rtl.build import card_source

pytestmark = pytest.mark.rtl


@dataclass(frozen=True, slots=True)
class Bench:
    """What runs a module: ``top`` under ``bench``."""

    top: str
    bench: str
    options: dict[str, object] = field(default_factory=dict)


def part(module: str, **options: object) -> Bench:
    """A test of attention's parts on their own."""
    return Bench(module, "bench_attention_parts", {"testcase": module, **options})


ATTENTION = Bench(
    "attention_unit",
    "bench_attention_unit",
    {"testcase": "random_passes", **options(1, 2, 3, 16, passes=8)},
)
TREE = {"COUNT": 5, "WIDTH": 20, "OP": 2}

MUTANTS = {
    "attention_values": (
        Mutant("attention_values", "if (clear) sum_seen <= '0;", ""),
        ATTENTION,
    ),
    "beat_bank": (
        Mutant("beat_bank", "write_at != read_at && !claimed[3]", "write_at != read_at"),
        Bench("beat_fifo", "bench_beat_fifo", {"parameters": {"FIFO_BEATS": 64}}),
    ),
    "counters": (
        Mutant("counters", "if (busy[i]) counts", "if (busy[0]) counts"),
        Bench("counters", "bench_counters"),
    ),
    "dot_int8": (
        Mutant("dot_int8", "$signed(in_a[i*8 +: 8])", "$signed({1'b0, in_a[i*8 +: 8]})"),
        part("dot_int8", parameters={"BYTES": 16}),
    ),
    "fresh_kv": (
        Mutant("fresh_kv", "rows <= rows & (rows - LANES'(1));", "rows <= '0;"),
        ATTENTION,
    ),
    "memory_port": (
        Mutant("memory_port", "(cfg_kv_addr)", "(cfg_weight_addr)"),
        Bench(
            "memory_port",
            "bench_memory_port",
            {"parameters": MEMORY_PORT},
        ),
    ),
    "order_ram": (
        Mutant("order_ram", "if (pop) head <= head + BITS'(1);", "if (pop || push) head <= tail;"),
        ATTENTION,
    ),
    "philox": (
        Mutant("philox", "{tag[(STAGES-1)*TAG_BITS-1:0], in_tag}", "{STAGES{in_tag}}"),
        Bench("philox", "bench_philox"),
    ),
    "query_writer": (
        Mutant("query_writer", "last_in_entry = last_in_group || slot", "last_in_entry = slot"),
        Bench(
            "attention_unit",
            "bench_attention_unit",
            {"testcase": "random_passes", **options(1, 1, 2, 16, passes=4)},
        ),
    ),
    "reduce_tree": (
        Mutant("reduce_tree", "else node = a_i < b_i ? a_i : b_i;", "else node = a_i;"),
        part(
            "reduce_tree",
            parameters=TREE,
            environment={f"HETERO_TREE_{name}": str(value) for name, value in TREE.items()},
        ),
    ),
    "round_sat": (
        Mutant("round_sat", "+ $signed({63'd0, shifted2[0]})", ""),
        part("round_sat", parameters={"WIDTH": 8}),
    ),
    "silu_values": (
        Mutant("silu_values", "in_up[i*64 +: 64]", "in_up[0 +: 64]"),
        Bench(
            "vector_lanes", "bench_vector_lanes", {"testcase": "silu", "parameters": SIZES, **WIRED}
        ),
    ),
    "slr_stage": (
        Mutant("slr_stage", ".out_ready(link_ready[i+1])", ".out_ready(link_ready[STAGES])"),
        Bench("slr_stage", "bench_slr_stage", {"parameters": {"STAGES": 3, "WIDTH": 37}}),
    ),
    "stream_fifo": (
        Mutant("stream_fifo", "assign in_ready  = !level[ADDR_BITS];", "assign in_ready = 1'b1;"),
        Bench(
            "port_reader",
            "bench_port_reader",
            {"parameters": {"PORT_BYTES": 64, "FIFO_BEATS": 64, "OUTSTANDING": 16}},
        ),
    ),
}

BUGS_BY_MODULE = {"philox_round", "gumbel", *TESTS}
"""Expected by a test that makes a bug's name of the module's."""

# What only the whole card exercises: a Verilator build each.
WHOLE_CARD = {
    "control_unit": Mutant(
        "control_unit", "draw_beat[`TOKEN_TOKEN_ID +: 32]", "draw_beat[`TOKEN_CONFIDENCE +: 32]"
    ),
    "row_context": Mutant("row_context", "+ 32'(front_step[l*16 +: 16])", ""),
    "lane_unit": Mutant("lane_unit", "any_mask = w_en ? w_mask : attn_we", "any_mask = attn_we"),
    "port_slice": Mutant("port_slice", ".cfg_kv_addr(kv_addr)", ".cfg_kv_addr(weight_addr)"),
    "draft_card": Mutant("draft_card", "w_strobe[p*64 +: 64])", "w_strobe[0 +: 64])"),
}


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.rtl_sweep
def test_the_bench_notices(name: str):
    mutant, bench = MUTANTS[name]
    assert mutant.module == name
    expect_mutant_caught(bench.top, bench.bench, mutant, **bench.options)


@pytest.mark.parametrize("name", WHOLE_CARD)
@pytest.mark.rtl_sweep
@pytest.mark.timeout(1800)
def test_the_whole_card_notices(name: str, tmp_path, monkeypatch):
    changed = WHOLE_CARD[name].write(tmp_path)

    def mutant_source(build):
        source = card_source(build)
        files = [changed if path.stem == name else path for path in source.files]
        return replace(source, files=tuple(files))

    monkeypatch.setattr(open_card, "card_source", mutant_source)
    draft = write_draft(tmp_path)
    card = open_small(draft, ports=2, lanes=2, timing=ROUGH)
    try:
        with pytest.raises((AssertionError, HeteroError)):
            assert_equal(card, draft, ragged_starts(2, 8))
    finally:
        card.close()


def test_every_module_has_a_planted_bug():
    tests = "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py"))
    lacking = set()
    for path in RTL.glob("*.sv"):
        stem = f"BUG_{path.stem.upper()}_"
        in_source = re.search(rf"\b{stem}\d\b", path.read_text(encoding="utf-8"))
        is_expected = stem in tests or path.stem in BUGS_BY_MODULE
        if path.stem not in MUTANTS | WHOLE_CARD and not (in_source and is_expected):
            lacking.add(path.stem)
    assert lacking == set()
