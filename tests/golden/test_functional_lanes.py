"""Lanes that share and see in every way, functional executor against golden model.

The golden side executes the artefact, the functional one the draft as it was linked for a card.
"""

import numpy as np
import pytest
from support.functional import GARBAGE, assert_same_cache, functional_executor, in_card_form, run
from support.llama_files import TINY, random_weights, write_checkpoint

from fpga.golden.executor import GoldenExecutor
from fpga.program.artefact import load_artefact
from fpga.program.build import build_artefact
from hetero.core.types import LaneWork

CONTEXT = 61
PREFIXES = 2  # slots 0 and 1 hold what lanes share
SLOTS = 10
ODD = {
    **TINY, "hidden_size": 96, "intermediate_size": 160, "num_attention_heads": 3,
    "num_key_value_heads": 1, "head_dim": 32, "num_hidden_layers": 2,
}  # fmt: skip


@pytest.fixture(scope="module", params=["tiny", "odd", "reduced"])
def artefact(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    config = ODD if request.param == "odd" else TINY
    weights = random_weights(config, seed=13)
    if request.param == "reduced":
        targets = np.random.default_rng(0).choice(config["vocab_size"], 70, replace=False)
        weights["d2t"] = (targets - np.arange(70)).astype(np.int64)
    source = write_checkpoint(folder / "source", config, weights)
    build_artefact(source, folder / "draft", target_tokenizer_sha256="ab" * 32)
    return load_artefact(folder / "draft")


def work(rng, slot, start, num_read, drafts, **changes):
    return LaneWork(
        slot=slot, start=start,
        token_ids=tuple(rng.integers(0, TINY["vocab_size"], num_read).tolist()),
        num_draft_tokens=drafts, output_index=int(rng.integers(0, 2**31)),
        seed=int(rng.integers(0, 2**63)), choice_index=int(rng.integers(0, 4)),
        temperature=float(rng.choice([0, 0.4, 1.5])), **changes,
    )  # fmt: skip


def tails(rng, held):
    """Continuations of both prefixes, the prefixes' own among them."""
    lanes = []
    for slot in range(SLOTS):
        prefix = slot if slot < PREFIXES else int(rng.integers(PREFIXES))
        start, shared = held[prefix], {}
        if slot >= PREFIXES:
            shared = {"tail_slot": slot, "prefix_len": start}
        if rng.random() < 0.5:
            read, drafts = int(rng.integers(1, 7)), int(rng.integers(0, 5))
            lanes.append(work(rng, prefix, start, read, drafts, **shared))
    order = rng.permutation(len(lanes))
    return [lanes[i] for i in order] or [work(rng, 0, held[0], 1, 1)]


def tree(rng, held):
    """Random parents; a node's ancestors are its parent's and its parent."""
    count = int(rng.integers(2, SLOTS - PREFIXES + 1))
    order = [int(i) for i in rng.permutation(count)]  # node -> lane
    nodes = []
    for node in range(count):
        parent = int(rng.integers(-1, node)) if node else -1
        prefix, mask, depth = int(rng.integers(PREFIXES)), 0, 0
        if parent >= 0:
            prefix, mask, depth = nodes[parent]
        nodes.append((prefix, mask | 1 << order[node], depth + 1))
    lanes = [None] * count
    for node, (prefix, mask, depth) in enumerate(nodes):
        lanes[order[node]] = work(
            rng, prefix, held[prefix] + depth - 1, 1, int(rng.integers(0, 4 if depth == 1 else 2)),
            tail_slot=PREFIXES + node, prefix_len=held[prefix], ancestor_mask=mask,
        )  # fmt: skip
    return lanes


def held_after(held, lanes):
    """How far the prefixes reach, when each grows by what its own lane read."""
    for lane in lanes:
        if lane.tail_slot is None:
            held[lane.slot] = lane.start + len(lane.token_ids)


@pytest.mark.parametrize("window", [0, 1, 7, 24])
@pytest.mark.parametrize("num_ports", [1, 2, 4, 32])
def test_prefixes_tails_and_trees(artefact, num_ports, window):
    """Drawn tokens, their runners-up, and every byte of the cache."""
    rng = np.random.default_rng([num_ports, window])
    golden = GoldenExecutor(artefact, SLOTS, CONTEXT)
    golden.kv.memory[:] = GARBAGE
    functional = functional_executor(artefact, SLOTS, CONTEXT, num_ports=num_ports)
    held = [0] * PREFIXES
    first = [work(rng, slot, 0, 5 + slot, 0) for slot in range(PREFIXES)]
    drafted = 0
    for make in (lambda *_: first, tails, tree, tails, tree):
        lanes = make(rng, held)
        want = in_card_form(golden.run(lanes, window=window), artefact)
        assert run(functional, lanes, window=window) == want
        assert_same_cache(functional, golden)
        held_after(held, lanes)
        drafted += sum(len(tokens) for _, tokens in want)
    assert drafted > 5
