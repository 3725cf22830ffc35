"""ROPE_KV and ATTENTION: attention_unit as a whole and its parts, against the golden functions.

In the whole: rope_kv, query_writer, fresh_kv, fresh_reader, kv_unpack, attention_port,
attention_keys, attention_values, attention_combine, dot_int8, order_ram.
"""

import json

import pytest
from support.rtl import expect_caught, run_bench

pytestmark = pytest.mark.rtl

SMALL = {"heads": 6, "kv_heads": 2, "head_dim": 32, "context": 24}
PARTS = "bench_attention_parts"
EXTREME = {"spread": 12, "exponents": [-10, 45]}


def options(ports, lanes, attn_heads, attn_bytes, **settings):
    """Parameters of the unit and environment of its bench."""
    sizes = {**SMALL, **settings}
    shape = {"ports": ports, "lanes": lanes, **sizes}
    parameters = {
        "PORTS": ports,
        "LANES": lanes,
        "ATTN_HEADS": attn_heads,
        "ATTN_BYTES": attn_bytes,
        "MAX_POSITIONS": sizes["context"],
        "MAX_HEADS": max(sizes["heads"], 2),
        "MAX_KV_HEADS": sizes["kv_heads"],
        "MAX_HEAD_DIM": sizes.pop("max_head_dim", sizes["head_dim"]),
        "WORD_BITS": 10,
    }
    shape.pop("max_head_dim", None)
    return {"parameters": parameters, "environment": {"HETERO_ATTENTION": json.dumps(shape)}}


def _run_unit(testcase, chosen):
    defines = ["HETERO_ASSERT"]
    run_bench(
        "attention_unit", "bench_attention_unit", testcase=testcase, defines=defines, **chosen
    )


QUICK = {
    "one port, sets of 2 for 3 heads": options(1, 1, 2, 16, passes=4),
    "two lanes, extreme scales": options(1, 2, 3, 16, passes=6, **EXTREME),
    "four ports, two lanes, 64": options(4, 2, 3, 32, passes=4, head_dim=64, heads=3, kv_heads=1),
    "128 in two chunks": options(2, 1, 1, 64, passes=3, head_dim=128, heads=4, kv_heads=2),
    "32 in a unit for 128": options(2, 1, 3, 16, passes=3, max_head_dim=128),
}


@pytest.mark.parametrize("name", QUICK)
def test_attention_unit(name):
    _run_unit("random_passes", QUICK[name])


SPEED = {
    "one port, two sets": options(1, 1, 2, 16, gaps=0),
    "four ports": options(4, 1, 3, 64, gaps=0, head_dim=64, context=64),
    "two chunks": options(1, 1, 3, 64, gaps=0, head_dim=128),
}


@pytest.mark.parametrize("name", SPEED)
def test_attention_takes_its_cycles(name):
    _run_unit("full_speed", SPEED[name])


@pytest.mark.rtl_sweep
@pytest.mark.parametrize("head_dim", [32, 64, 128])
@pytest.mark.parametrize("group", [1, 3, 4])
@pytest.mark.parametrize("ports, lanes", [(1, 1), (1, 4), (4, 1), (4, 2), (8, 2)])
@pytest.mark.parametrize("attn_heads, attn_bytes", [(1, 16), (2, 32), (3, 64)])
@pytest.mark.parametrize("scales", [{}, EXTREME], ids=["usual", "extreme"])
def test_attention_unit_sweep(head_dim, group, ports, lanes, attn_heads, attn_bytes, scales):
    kv_heads = 3 if head_dim == 32 else 1
    sizes = {"heads": group * kv_heads, "kv_heads": kv_heads, "head_dim": head_dim}
    chosen = options(ports, lanes, attn_heads, attn_bytes, passes=6, **sizes, **scales)
    _run_unit("random_passes", chosen)


BUGS = {
    "BUG_KV_UNPACK_1": options(1, 1, 3, 16, passes=6, kv_heads=1),
    "BUG_ATTENTION_KEYS_1": options(1, 1, 3, 16),
    "BUG_ATTENTION_PORT_1": options(1, 1, 3, 16, passes=6),
    "BUG_ATTENTION_COMBINE_1": options(1, 1, 3, 16),
    "BUG_ATTENTION_UNIT_1": options(1, 4, 2, 16, passes=12, seed=3),
    "BUG_FRESH_READER_1": options(1, 2, 3, 16, passes=8),
    "BUG_ROPE_KV_1": options(1, 1, 3, 16),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_noticed(bug):
    expect_caught(
        "attention_unit", "bench_attention_unit", bug=bug, testcase="random_passes", **BUGS[bug]
    )


ROPE = [(1, 32, 0), (1, 64, 0.6), (4, 64, 0), (8, 128, 0.6), (32, 32, 0.6), (32, 64, 0)]


@pytest.mark.parametrize("ports, head_dim, gaps", ROPE)
def test_rope_kv(ports, head_dim, gaps):
    shape = {"lanes": 1, "heads": 5, "kv_heads": 2, "head_dim": head_dim, "ports": ports}
    settings = {**shape, "gaps": gaps, "rows": 3, "spread": 14}
    run_bench(
        "rope_kv",
        "bench_rope_kv",
        parameters={"PORTS": ports, "MAX_HEAD_DIM": head_dim},
        environment={"HETERO_ROPE": json.dumps(settings)},
    )


def test_exp2n():
    run_bench("exp2n", PARTS, testcase="exp2n")


def test_exp2n_bug_is_noticed():
    expect_caught("exp2n", PARTS, bug="BUG_EXP2N_1", testcase="exp2n")


@pytest.mark.parametrize("width", [8, 56])
def test_round_sat(width):
    run_bench("round_sat", PARTS, parameters={"WIDTH": width}, testcase="round_sat")


@pytest.mark.parametrize("size", [16, 32])
def test_dot_int8(size):
    run_bench("dot_int8", PARTS, parameters={"BYTES": size}, testcase="dot_int8")


@pytest.mark.parametrize("count, op", [(5, 2), (8, 0), (6, 1)])
def test_reduce_tree(count, op):
    sizes = {"COUNT": count, "WIDTH": 20, "OP": op}
    environment = {f"HETERO_TREE_{name}": str(value) for name, value in sizes.items()}
    run_bench(
        "reduce_tree", PARTS, parameters=sizes, testcase="reduce_tree", environment=environment
    )
