"""What lanes share and see: shared prefixes with tails of their own, token trees, windows.

Everything is held against ordinary lanes that read the same tokens into a slot of their own.
"""

import numpy as np
import pytest
from support.llama_files import TINY, random_weights, write_checkpoint

from fpga.golden.executor import GoldenExecutor
from fpga.program.artefact import load_artefact
from fpga.program.build import build_artefact
from hetero.core.errors import CardError
from hetero.core.types import LaneWork

PROMPT = tuple(int(t) for t in np.random.default_rng(4).integers(0, 200, 20))
GARBAGE = 0x5A
SLOTS = 8


@pytest.fixture(scope="module", params=[3, 1], ids=["three_layers", "one_layer"])
def artefact(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lanes")
    config = {**TINY, "num_hidden_layers": request.param}
    source = write_checkpoint(folder / "source", config, random_weights(config, seed=5))
    build_artefact(source, folder / "draft", target_tokenizer_sha256="ab" * 32)
    return load_artefact(folder / "draft")


def golden(artefact):
    executor = GoldenExecutor(artefact, SLOTS, 64)
    executor.kv.memory[:] = GARBAGE
    return executor


def work(token_ids, **changes):
    values = {
        "slot": 0, "start": 0, "token_ids": tuple(token_ids), "num_draft_tokens": 1,
        "output_index": 0, "seed": 9, "choice_index": 0, "temperature": 0.9,
    }  # fmt: skip
    return LaneWork(**{**values, **changes})


def with_prompt(artefact):
    executor = golden(artefact)
    executor.run([work(PROMPT, num_draft_tokens=0)])
    return executor


def draws(results):
    """Everything that a lane drew but where: tokens with their logits."""
    return [result.top for result in results]


def alone(artefact, token_ids, **changes):
    return draws(golden(artefact).run([work((*PROMPT, *token_ids), **changes)]))[0]


# ---- tails


def test_continuations_share_a_prefix(artefact):
    """Each lane goes on from the same prompt in a slot of its own, over several starts."""
    executor = with_prompt(artefact)
    before = executor.kv.memory.copy()
    tails = {1: [3, 4], 2: [150], 3: [7] * 5}
    lanes = [
        work(tokens, start=20, tail_slot=slot, prefix_len=20, num_draft_tokens=3, seed=slot)
        for slot, tokens in tails.items()
    ]
    first = executor.run(lanes)
    for result, (slot, tokens) in zip(draws(first), tails.items(), strict=True):
        assert result == alone(artefact, tokens, num_draft_tokens=3, seed=slot)
    prefix = executor.kv.layout.slot_bytes
    np.testing.assert_array_equal(executor.kv.memory[:prefix], before[:prefix])
    # One draft of each accepted: go on in the tails.
    drafted = {slot: r.token_ids[0] for slot, r in zip(tails, first, strict=True)}
    again = [
        work([drafted[slot]], start=20 + len(tail), tail_slot=slot, prefix_len=20)
        for slot, tail in tails.items()
    ]
    for result, slot in zip(draws(executor.run(again)), tails, strict=True):
        assert result == alone(artefact, [*tails[slot], drafted[slot]])


def test_the_prefix_itself_may_go_on_beside_its_tails(artefact):
    executor = with_prompt(artefact)
    lanes = [
        work([11], start=20, num_draft_tokens=2),
        work([12], start=20, num_draft_tokens=2, tail_slot=5, prefix_len=20),
    ]
    got = draws(executor.run(lanes))
    assert got == [alone(artefact, [token], num_draft_tokens=2) for token in (11, 12)]


# ---- trees

#: (token, parent): two roots, one of them with two children and a grandchild.
NODES = [(30, None), (40, None), (50, 0), (60, 0), (70, 3)]


def path(node):
    """Nodes from a root to this one."""
    parent = NODES[node][1]
    return [*([] if parent is None else path(parent)), node]


def tree(order, **changes):
    """Lanes of the tree in any order."""
    lane_of = {node: lane for lane, node in enumerate(order)}
    return [
        work(
            [NODES[node][0]],
            start=19 + len(path(node)),
            tail_slot=1 + node,
            prefix_len=20,
            ancestor_mask=sum(1 << lane_of[n] for n in path(node)),
            **{"seed": node, **changes},
        )
        for node in order
    ]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1]])
def test_nodes_of_a_tree_are_their_paths(artefact, order):
    got = draws(with_prompt(artefact).run(tree(order)))
    for node, result in zip(order, got, strict=True):
        tokens = [NODES[n][0] for n in path(node)]
        assert result == alone(artefact, tokens, seed=node)


def test_nodes_that_only_fill_are_seen_too(artefact):
    """Inner nodes without a draw: their program ends before the last layer's attention."""
    lanes = tree(range(5))
    inner = {0, 3}
    lanes = [
        LaneWork(**{**_fields(lane), "num_draft_tokens": int(i not in inner)})
        for i, lane in enumerate(lanes)
    ]
    results = with_prompt(artefact).run(lanes)
    for node, result in enumerate(results):
        tokens = [NODES[n][0] for n in path(node)]
        expected = () if node in inner else alone(artefact, tokens, seed=node)
        assert result.top == expected


def test_a_root_may_draft_on(artefact):
    got = draws(with_prompt(artefact).run(tree([0, 1], num_draft_tokens=4)))
    assert got == [
        alone(artefact, [NODES[node][0]], num_draft_tokens=4, seed=node) for node in (0, 1)
    ]


def _fields(lane):
    return {name: getattr(lane, name) for name in LaneWork.__dataclass_fields__}


# ---- windows


def test_a_window_forgets_what_lies_before_it(artefact):
    """In one layer only the window counts; through more layers also what its tokens saw."""
    layers = artefact.shape.num_layers
    other = list(PROMPT)
    other[3] = (other[3] + 1) % 200
    for window, same in ((16, layers == 1), (17, False), (0, False)):
        got = [
            draws(golden(artefact).run([work(tokens, temperature=0.0)], window=window))
            for tokens in (PROMPT, other)
        ]
        assert (got[0] == got[1]) == same, window


def test_a_window_changes_nothing_while_all_fits(artefact):
    whole = golden(artefact).run([work(PROMPT, num_draft_tokens=5)])
    assert golden(artefact).run([work(PROMPT, num_draft_tokens=5)], window=24) == whole
    assert golden(artefact).run([work(PROMPT, num_draft_tokens=5)], window=12) != whole


def test_reading_in_chunks_through_a_window_is_reading_at_once(artefact, monkeypatch):
    lanes = [work(PROMPT, num_draft_tokens=5)]
    whole = golden(artefact).run(lanes, window=6)
    monkeypatch.setattr("fpga.golden.executor.CHUNK_TOKENS", 4)
    monkeypatch.setattr("fpga.golden.attention._MAX_TOKENS", 3)
    assert golden(artefact).run(lanes, window=6) == whole


@pytest.mark.parametrize("window", [1, 2, 3, 19, 22])
def test_a_windowed_tree_is_its_windowed_paths(artefact, window):
    executor = golden(artefact)
    executor.run([work(PROMPT, num_draft_tokens=0)], window=window)
    got = draws(executor.run(tree(range(5)), window=window))
    for node, result in enumerate(got):
        lane = work((*PROMPT, *(NODES[n][0] for n in path(node))), seed=node)
        assert [result] == draws(golden(artefact).run([lane], window=window))


# ---- what comes back


def test_the_best_candidates_come_back_in_order(artefact):
    greedy = golden(artefact).run([work(PROMPT, num_draft_tokens=3, temperature=0.0)])[0]
    assert [t[0].token_id for t in greedy.top] == list(greedy.token_ids)
    assert [t[0].confidence for t in greedy.top] == list(greedy.confidence)
    for token in greedy.top:
        assert len({c.token_id for c in token}) == 4
        logits = [c.logit for c in token]
        assert logits == sorted(logits, reverse=True)
    logits = golden(artefact).logits(0, PROMPT, num_last=1)[0]
    best = np.argsort(-logits, kind="stable")[:4]
    assert [c.token_id for c in greedy.top[0]] == best.tolist()
    assert [c.logit for c in greedy.top[0]] == (logits[best] / 65536).tolist()


# ---- what a card can't take


@pytest.mark.parametrize(
    "lanes, fault",
    [
        ([work([1], tail_slot=SLOTS)], "slot 8"),
        ([work([1], start=3, tail_slot=1, prefix_len=4)], "prefix_len 4 with start 3"),
        ([work([1], tail_slot=1), work([1], slot=1)], "two lanes"),
        (
            [work([1], start=5, tail_slot=1, prefix_len=5), work([1, 2], start=4)],
            "writes position 4, below",
        ),
        ([work([1, 2], ancestor_mask=1)], "each reads one token"),
        ([work([1], ancestor_mask=2)], "lanes 0..0"),
        ([work([1], ancestor_mask=1), work([1, 2], slot=1)], "each reads one token"),
        (
            [work([1], start=9, tail_slot=1, prefix_len=8, ancestor_mask=1, num_draft_tokens=2)],
            "Let it draft one",
        ),
    ],
)  # fmt: skip
def test_lanes_that_a_card_cannot_take(artefact, lanes, fault):
    with pytest.raises(CardError, match=fault):
        golden(artefact).run(lanes)
