"""Whole tokens: the accelerator's RTL under the ordinary driver, against the golden model.

Not one token and not one confidence may differ, whatever the number of ports and lanes, the
memory's mood, the order of work in lanes and slots.
"""

import random
import sys
from dataclasses import replace

import numpy as np
import pytest
from support.golden_card import GoldenCard
from support.rtl_card import SMALL, kv_shares, model_of, open_small, write_draft

from fpga.golden.executor import GoldenExecutor
from fpga.program.artefact import load_artefact
from fpga.program.port_kv import deal_cache
from fpga.regmap import registers
from hetero.core.errors import CardError, CardTimeoutError
from hetero.core.types import LaneWork
from sim.rtl.parameters import MemoryTiming

pytestmark = [pytest.mark.rtl, pytest.mark.timeout(1800)]

SLOTS, CONTEXT, VOCAB = 6, 160, 203
ROUGH = MemoryTiming(
    is_banked=True,
    channels=2,
    latency_cycles=30,
    access_units=1100,
    row_miss_units=20_000,
    row_cycle_units=40_000,
    turnaround_units=9_000,
    refresh_interval_units=2_000_000,
    refresh_units=150_000,
    throttle_permille=200,
    skew_cycles=13,
    max_bursts=8,
)
"""Everything that memory can do at once, with numbers of no card."""


def work(slot=0, start=0, tokens=range(9), drafts=4, **changes):
    values = dict(output_index=start, seed=9 + slot, choice_index=0, temperature=0.8)
    return LaneWork(
        slot=slot, start=start, token_ids=tuple(tokens), num_draft_tokens=drafts,
        **{**values, **changes},
    )  # fmt: skip


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    return write_draft(tmp_path_factory.mktemp("rtl"))


def golden(draft):
    return GoldenCard(draft, num_slots=SLOTS, max_context_tokens=CONTEXT)


def assert_equal(card, draft, starts):
    """The same starts on both; every lane's tokens and confidences equal."""
    reference = golden(draft)
    for number, lanes in enumerate(starts):
        wanted, got = reference.run(lanes).lanes, card.run(lanes).lanes
        assert got == wanted, f"start {number}: {lanes}"


def ragged_starts(lanes, num_starts, rng_seed=1):
    """Random prompts, drafts, rollbacks and temperatures over all slots."""
    rng = random.Random(rng_seed)
    valid = dict.fromkeys(range(SLOTS), 0)
    starts = []
    for _ in range(num_starts):
        start = []
        for slot in rng.sample(range(SLOTS), rng.randint(1, lanes)):
            begin = rng.randint(0, min(valid[slot], CONTEXT // 2))
            tokens = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 11))]
            drafts = rng.choice([0, 1, 2, 5])
            temperature = rng.choice([0.0, 0.7, 1.3])
            start.append(work(slot, begin, tokens, drafts, temperature=temperature))
            valid[slot] = begin + len(tokens) + max(drafts - 1, 0)
        starts.append(start)
    return starts


@pytest.mark.parametrize(
    "ports, lanes",
    [
        (2, 2),
        pytest.param(1, 1, marks=pytest.mark.rtl_sweep),
        pytest.param(4, 1, marks=pytest.mark.rtl_sweep),
        pytest.param(4, 4, marks=pytest.mark.rtl_sweep),
        pytest.param(2, 8, marks=pytest.mark.rtl_sweep),
        pytest.param(8, 2, marks=pytest.mark.rtl_sweep),
    ],
)
def test_ports_and_lanes(draft, ports, lanes):
    card = open_small(draft, ports=ports, lanes=lanes, timing=ROUGH)
    try:
        greedy = work(0, 0, range(5), 3, temperature=0.0)
        starts = ragged_starts(min(lanes, SLOTS), 8)
        assert_equal(card, draft, [[greedy], [work(1, 0, [7], 1)], *starts])
        assert card.info.backend == "rtl"
    finally:
        card.close()


def shared_work(rng, slot, start, num_read, drafts, **shared):
    tokens = [rng.randrange(VOCAB) for _ in range(num_read)]
    return work(slot, start, tokens, drafts, temperature=rng.choice([0.0, 0.9]), **shared)


def tree(rng, held, lanes):
    """Nodes with random parents over what slot 0 holds, each with a tail of its own."""
    nodes = []
    for node in range(lanes):
        parent = rng.randrange(-1, node) if node else -1
        mask, depth = (0, 0) if parent < 0 else nodes[parent]
        nodes.append((mask | 1 << node, depth + 1))
    return [
        shared_work(
            rng, 0, held + depth - 1, 1, rng.randrange(3) if depth == 1 else 1,
            tail_slot=1 + node, prefix_len=held, ancestor_mask=mask,
        )
        for node, (mask, depth) in enumerate(nodes)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "ports, lanes, window",
    [
        (2, 2, 0),
        (2, 2, 5),
        pytest.param(4, 4, 0, marks=pytest.mark.rtl_sweep),
        pytest.param(4, 4, 1, marks=pytest.mark.rtl_sweep),
        pytest.param(4, 4, 17, marks=pytest.mark.rtl_sweep),
    ],
)
def test_tails_trees_and_windows(draft, ports, lanes, window):
    """Lanes share a prefix; every byte of the KV cache must be the golden one too."""
    artefact = load_artefact(draft)
    reference = GoldenExecutor(artefact, SLOTS, CONTEXT)
    card = open_small(draft, ports=ports, lanes=lanes, window=window, timing=ROUGH)
    rng = random.Random(window)
    held = 23
    starts = [[work(0, 0, range(held), 0)]]
    for _ in range(4):
        tails = [
            shared_work(rng, 0, held, 3, rng.randrange(4), tail_slot=1 + i, prefix_len=held)
            for i in range(lanes)
        ]
        starts += [tails, tree(rng, held, lanes)]
    try:
        for number, start in enumerate(starts):
            wanted = tuple(reference.run(start, window=window))
            assert card.run(start).lanes == wanted, f"start {number}"
        layout = reference.kv.layout
        used = deal_cache(np.ones(layout.total_bytes, dtype=np.uint8), layout, ports)
        wanted = deal_cache(reference.kv.memory, layout, ports)
        for share, want, is_used in zip(kv_shares(card, ports), wanted, used, strict=True):
            np.testing.assert_array_equal(np.where(is_used, share, 0), np.where(is_used, want, 0))
    finally:
        card.close()


@pytest.mark.rtl_sweep
def test_a_hundred_tokens_in_two_lanes(draft):
    """Drafted tokens fed back over many starts, context growing to its limit."""
    card = open_small(draft, ports=4, lanes=2)
    reference = golden(draft)
    try:
        state = {0: [3, 1, 4, 1, 5], 1: [2, 7]}
        told = dict.fromkeys(state, 0)
        for _ in range(14):
            lanes = [
                work(slot, told[slot], tokens[told[slot] :], 8, temperature=0.6 * slot)
                for slot, tokens in state.items()
            ]
            wanted, got = reference.run(lanes).lanes, card.run(lanes).lanes
            assert got == wanted
            for lane in got:
                told[lane.slot] = len(state[lane.slot]) + 7
                state[lane.slot] += lane.token_ids
        assert min(len(tokens) for tokens in state.values()) > 100
    finally:
        card.close()


@pytest.mark.rtl_sweep
@pytest.mark.parametrize(
    "changes",
    [
        {"head_dim": 64, "num_attention_heads": 2, "num_key_value_heads": 1},
        {"head_dim": 128, "num_attention_heads": 1, "num_key_value_heads": 1},
        {"num_attention_heads": 3, "num_key_value_heads": 1, "hidden_size": 96},
        {"intermediate_size": 224, "vocab_size": 517},
        {"tie_word_embeddings": False},
    ],
    ids=["head_dim 64", "head_dim 128", "3 heads", "odd sizes", "own head"],
)
def test_shapes(tmp_path, changes):
    draft = write_draft(tmp_path, **changes)
    card = open_small(draft, ports=2, lanes=2, timing=ROUGH)
    try:
        assert_equal(card, draft, ragged_starts(2, 5, rng_seed=3))
    finally:
        card.close()


@pytest.mark.rtl_sweep
@pytest.mark.parametrize("stages", [1, 3])
def test_register_stages_between_dies_change_nothing(draft, stages):
    card = open_small(draft, build=replace(SMALL, slr_stages=stages), ports=2, lanes=2)
    try:
        assert_equal(card, draft, ragged_starts(2, 4))
    finally:
        card.close()


def test_a_run_repeats_cycle_for_cycle(draft):
    cycles = set()
    for _ in range(2):
        card = open_small(draft, ports=2, lanes=2, timing=ROUGH)
        cycles.add(card.run([work(0, 0, range(5), 2)]).usage.cycles)
        card.close()
    assert len(cycles) == 1
    assert min(cycles) > 0


def test_a_hung_port_ends_as_a_timeout_and_must_be_reset(draft):
    """What was asked of a port that answers nothing can't be waited for."""
    card = open_small(draft, ports=2, lanes=2)
    model_of(card).hang(0)
    with pytest.raises(CardTimeoutError, match=r"not done.*did not drain.*must be reset"):
        card.run([work()])
    with pytest.raises(CardError, match="hung"):
        card.run([work()])
    card.close()


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.rtl_sweep) for n in range(1, 12))]
)
def test_after_a_soft_reset_the_next_start_is_right(draft, seed):
    """Given up at any cycle, with reads and writes on their way; then to the bit as golden."""
    rng = random.Random(seed)
    card = open_small(draft, ports=2, lanes=2, timing=ROUGH)
    model, starts = model_of(card), ragged_starts(2, 2, rng_seed=seed)
    try:
        assert_equal(card, draft, starts)
        for _ in range(4):
            model.write(registers.CTRL, registers.CTRL_START)
            model.run(max_cycles=rng.randint(1, 9000), stall_cycles=100_000)
            model.write(registers.RESET, registers.RESET_DRAIN)
            model.run(max_cycles=50_000, stall_cycles=5000)
            assert model.read(registers.RESET) & registers.RESET_DRAINED
            assert not model.complaint
            assert_equal(card, draft, starts)
    finally:
        card.close()


def test_an_error_response_is_told_by_port(draft):
    card = open_small(draft, ports=2, lanes=2)
    model = model_of(card)
    low, high = (model.read(registers.WEIGHT_ADDR + 8 + at) for at in (0, 4))
    model.fail_at(1, low | high << 32)
    with pytest.raises(CardError, match="memory port 1 answered with an error"):
        card.run([work()])
    card.close()


@pytest.mark.rtl_sweep
def test_assertions_hold_and_coverage_is_reached(draft, capsys):
    """With the RTL's own assertions; what its counters call worth testing has all happened."""
    card = open_small(draft, build=replace(SMALL, checks=True), ports=2, lanes=2, timing=ROUGH)
    rng, held = random.Random(4), 23
    try:
        assert_equal(card, draft, ragged_starts(2, 30))
        reference = golden(draft)
        for start in ([work(0, 0, range(held), 0)], tree(rng, held, 2), tree(rng, held, 2)):
            assert card.run(start).lanes == reference.run(start).lanes
        counts = model_of(card).coverage()
    finally:
        card.close()
    with capsys.disabled():
        lines = (f"{count:>10} {name}" for name, count in sorted(counts.items()))
        sys.stdout.write("\n" + "\n".join(lines) + "\n")
    assert len(counts) >= 10
    assert [name for name, count in counts.items() if not count] == []
