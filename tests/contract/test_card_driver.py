"""What ports.CardDriver promises, for every way to have a card. pynq is the real one.

A person with a board runs it with `HETERO_TEST_CARD=X.bit pytest -m card`, or X.xclbin for an Alveo
card: docs/real-cards.md.
"""

import os
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fpga.golden.executor import GoldenExecutor
from fpga.program.artefact import load_artefact
from fpga.program.build import build_artefact
from hetero.core.errors import ArtefactError, CardError, ConfigError, HeteroError
from hetero.core.types import LaneWork
from sim.calib.profile import load_profile

SLOTS = 6
CONTEXT = 160


@pytest.fixture(scope="module")
def artefact_path(tiny_checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("draft") / "tiny"
    build_artefact(tiny_checkpoint, out, target_tokenizer_sha256="cd" * 32)
    return out


def open_sim(device, artefact_path, **changes):
    from sim.open_card import SimCardConfig, open_sim_card

    values = dict(num_slots=SLOTS, max_context_tokens=CONTEXT, warm_up=False)
    config = SimCardConfig(device=device, artefact_path=artefact_path, **{**values, **changes})
    return open_sim_card(config)


def open_board(artefact_path):
    from fpga.driver.driver import DriverConfig
    from fpga.driver.open_alveo import AlveoConfig, open_alveo_card
    from fpga.driver.open_board import BoardConfig, open_pynq_card

    bitfile = Path(os.environ["HETERO_TEST_CARD"])
    config = DriverConfig(num_slots=SLOTS, max_context_tokens=CONTEXT)
    values = dict(bitfile=bitfile, artefact_path=artefact_path, driver=config)
    if bitfile.suffix == ".xclbin":
        return open_alveo_card(AlveoConfig(**values))
    return open_pynq_card(BoardConfig(**values))


CARDS = [
    pytest.param(lambda path: open_sim("u55c", path), id="sim-u55c"),
    pytest.param(lambda path: open_sim("zcu104", path), id="sim-zcu104"),
    pytest.param(open_board, id="card", marks=pytest.mark.card),
]


@pytest.fixture(scope="module", params=CARDS)
def card(request, artefact_path):
    driver = request.param(artefact_path)
    yield driver
    driver.close()


@pytest.fixture
def golden(artefact_path):
    return GoldenExecutor(load_artefact(artefact_path), SLOTS, CONTEXT)


def work(slot=0, start=0, tokens=range(9), drafts=4, **changes):
    values = dict(output_index=0, seed=9, choice_index=0, temperature=0.8)
    return LaneWork(
        slot=slot, start=start, token_ids=tuple(tokens), num_draft_tokens=drafts,
        **{**values, **changes},
    )  # fmt: skip


def test_info_is_fixed_and_says_what_is_there(card, artefact_path):
    info = card.info
    assert info == card.info
    assert info.num_slots == SLOTS
    assert 1 <= info.max_lanes <= SLOTS
    assert info.max_context_tokens == CONTEXT
    assert info.max_draft_tokens >= 1
    assert info.max_prefill_tokens >= 1
    assert info.clock_hz > 0
    assert info.artefact_sha256 == load_artefact(artefact_path).sha256
    assert info.target_tokenizer_sha256 == "cd" * 32


def test_random_traffic_gives_the_golden_tokens(card, golden):
    rng = np.random.default_rng(5)
    held = [0] * SLOTS
    for _ in range(15):
        lanes = [
            random_lane(rng, int(slot), held, card.info.vocab_size)
            for slot in rng.permutation(SLOTS)[: rng.integers(1, card.info.max_lanes + 1)]
        ]
        assert list(card.run(lanes).lanes) == golden.run(lanes)


def random_lane(rng, slot, held, vocab_size):
    start = int(rng.integers(0, min(held[slot], CONTEXT - 60) + 1))
    read, drafts = int(rng.integers(1, 50)), int(rng.integers(0, 7))
    held[slot] = start + read + max(drafts - 1, 0)
    return work(
        slot, start, rng.integers(0, vocab_size, read).tolist(), drafts,
        output_index=int(rng.integers(0, 2**20)), seed=int(rng.integers(0, 2**63)) * 2 + 1,
        choice_index=int(rng.integers(0, 2)), temperature=float(rng.choice([0.0, 0.7, 1.5])),
    )  # fmt: skip


def test_the_largest_numbers_a_request_can_have(card, golden):
    """Every field at its end, every length of draft, and the last position of a slot."""
    for drafts in range(1, card.info.max_draft_tokens + 1, 9):
        lane = work(
            1, drafts=drafts, seed=2**64 - 1, choice_index=2**32 - 1, output_index=2**32 - 64
        )
        assert list(card.run([lane]).lanes) == golden.run([lane])
    for temperature in (1e-6, 1e-300, 100.0, 1e300, float("inf")):
        lane = work(1, temperature=temperature)
        assert list(card.run([lane]).lanes) == golden.run([lane])
    for start in (CONTEXT - 5, CONTEXT - 2):
        for executor in (card.run, golden.run):
            executor([work(1, 0, range(start), 0)])
        lane = work(1, start, [7], CONTEXT - start)
        assert list(card.run([lane]).lanes) == golden.run([lane])


def test_rollback_is_a_length(card):
    """Tokens behind ``start`` are dead, whatever was drafted or read there."""
    first = card.run([work(tokens=range(20), drafts=5)])
    card.run([work(start=20, tokens=[50, 51, 52], drafts=6, seed=1)])
    again = card.run([work(start=19, tokens=[19], drafts=5)])
    assert again.lanes == first.lanes


def test_reading_in_pieces_is_reading_at_once(card):
    at_once = card.run([work(tokens=range(30))])
    card.run([work(slot=1, tokens=range(11), drafts=0)])
    card.run([work(slot=1, start=11, tokens=range(11, 27), drafts=0)])
    pieces = card.run([work(slot=1, start=27, tokens=range(27, 30))])
    assert pieces.lanes[0].token_ids == at_once.lanes[0].token_ids


def test_lanes_do_not_meet(card):
    lanes = [work(slot, tokens=range(slot, slot + 7)) for slot in range(card.info.max_lanes)]
    together = card.run(lanes)
    alone = tuple(card.run([lane]).lanes[0] for lane in lanes)
    assert together.lanes == alone


def test_nothing_to_draft_gives_nothing(card):
    run = card.run([work(drafts=0)])
    assert run.lanes[0].token_ids == run.lanes[0].confidence == ()
    assert run.usage.cycles > 0


def test_the_last_position_can_be_drafted_from(card):
    """The last drafted token is never read, so it needs no position."""
    tokens = [i % 300 for i in range(CONTEXT - 3)]
    assert len(card.run([work(tokens=tokens, drafts=4)]).lanes[0].token_ids) == 4
    with pytest.raises(CardError, match=f"holds {CONTEXT}"):
        card.run([work(tokens=tokens, drafts=5)])


def test_usage_is_of_this_start(card):
    short, long = card.run([work(drafts=1)]).usage, card.run([work(drafts=8)]).usage
    assert 0 < short.cycles < long.cycles
    assert 0 < short.modelled_s < long.modelled_s


def test_host_time_of_a_start_is_apart_from_the_cards(artefact_path):
    with closing(open_sim("u55c", artefact_path)) as card:
        usage = card.run([work(drafts=1)]).usage
    assert usage.modelled_s == usage.cycles / card.info.clock_hz
    assert usage.host_s == pytest.approx(load_profile("u55c").host.seconds)
    assert usage.total_s == usage.modelled_s + usage.host_s


@pytest.mark.parametrize(
    "lanes, fault",
    [
        ([], "0 lanes"),
        ([work(slot=i % SLOTS) for i in range(99)], "99 lanes"),
        ([work(slot=1), work(slot=1)], "one slot"),
        ([work(slot=SLOTS)], f"slot {SLOTS}"),
        ([work(slot=-1)], "slot -1"),
        ([work(start=-1)], "positions -1"),
        ([work(tokens=[])], "0 tokens to read"),
        ([work(tokens=[0] * 100_000)], "100000 tokens"),
        ([work(drafts=100_000)], "100000 to draft"),
        ([work(tokens=[10**6])], "outside"),
        ([work(tokens=[-1])], "outside"),
        ([work(start=CONTEXT)], "holds"),
        ([work(output_index=-1)], "output_index = -1"),
        ([work(output_index=1 << 32)], "more than 32 bits"),
        ([work(choice_index=1 << 32)], "choice_index"),
        ([work(seed=1 << 64)], "seed"),
        ([work(temperature=float("nan"))], "temperature = nan"),
        ([work(tail_slot=SLOTS)], f"slot {SLOTS}"),
        ([work(slot=0, tail_slot=1), work(slot=1)], "one slot"),
        ([work(start=2, tail_slot=1, prefix_len=3)], "prefix_len 3"),
        ([work(ancestor_mask=1)], "each reads one token"),
    ],
)
def test_impossible_work_is_refused_and_harms_nothing(card, lanes, fault):
    before = card.run([work()])
    with pytest.raises(CardError, match=fault):
        card.run(lanes)
    assert card.run([work()]).lanes == before.lanes


# ---- sharing


def test_tails_and_trees_give_the_golden_tokens(card, golden):
    """Two continuations of one prompt, then a tree on it as wide as the card is."""
    for executor in (card.run, golden.run):
        executor([work(tokens=range(40), drafts=0)])
    shared = dict(start=40, prefix_len=40, drafts=3)
    tails = [work(tail_slot=1, tokens=[5, 6], **shared), work(tail_slot=2, tokens=[9], **shared)]
    tails = tails[: card.info.max_lanes]
    assert list(card.run(tails).lanes) == golden.run(tails)
    nodes = [
        work(
            0, 40 + depth, [50 + depth], 1, tail_slot=1 + depth, prefix_len=40,
            ancestor_mask=(2 << depth) - 1,
        )
        for depth in range(min(card.info.max_lanes, SLOTS - 1))
    ]  # fmt: skip
    assert list(card.run(nodes).lanes) == golden.run(nodes)


def test_the_runners_up_of_a_draw_come_back(card):
    lane = card.run([work(temperature=0.0)]).lanes[0]
    assert len(lane.top) == len(lane.token_ids) == 4
    for token_id, confidence, top in zip(lane.token_ids, lane.confidence, lane.top, strict=True):
        assert (top[0].token_id, top[0].confidence) == (token_id, confidence)
        assert [c.logit for c in top] == sorted((c.logit for c in top), reverse=True)
        assert len({c.token_id for c in top}) == 4


@pytest.mark.parametrize("window", [1, 30])
def test_a_windowed_card_gives_the_golden_tokens(artefact_path, golden, window):
    card = open_sim("u55c", artefact_path, window=window)
    for start in (0, 33):
        lanes = [work(slot, start, range(33), 5) for slot in range(2)]
        assert list(card.run(lanes).lanes) == golden.run(lanes, window=window)
    card.close()


# ---- opening and closing


def test_close_is_idempotent_and_final(artefact_path):
    card = open_sim("u55c", artefact_path)
    card.close()
    card.close()
    with pytest.raises(CardError, match="closed"):
        card.run([work()])


def test_two_cards_in_one_process(artefact_path, golden):
    first, second = open_sim("u55c", artefact_path), open_sim("u280", artefact_path)
    first.run([work(tokens=range(30, 60), drafts=0)])
    assert list(second.run([work()]).lanes) == golden.run([work()])
    first.close()
    assert list(second.run([work()]).lanes) == golden.run([work()])
    second.close()


def test_opening_fails_with_the_reason(artefact_path, tmp_path):
    for error, match, attempt in (
        (ConfigError, "u55c", lambda: open_sim("u99", artefact_path)),
        (ConfigError, "slots = 0", lambda: open_sim("u55c", artefact_path, num_slots=0)),
        (ConfigError, "context", lambda: open_sim("u55c", artefact_path, max_context_tokens=9999)),
        (ArtefactError, "draft", lambda: open_sim("u55c", tmp_path)),
    ):
        with pytest.raises(error, match=match) as caught:
            attempt()
        assert isinstance(caught.value, HeteroError)
        assert "\n" not in str(caught.value)


def test_the_registry_of_pynq_is_left_alone(artefact_path):
    from pynq.pl_server.device import DeviceMeta

    known = dict(DeviceMeta._subclasses)
    card = open_sim("u55c", artefact_path)
    assert known == DeviceMeta._subclasses
    card.close()


@pytest.fixture(scope="module")
def real_draft(real_model_dir):
    """The int4 self-draft of the default target, as the engine builds and caches it."""
    from hetero.models.registry import default_cache_dir
    from hetero.models.tokenizer import load_tokenizer
    from hetero.services.default_draft import default_draft

    tokenizer = load_tokenizer(real_model_dir)
    return default_draft(
        real_model_dir,
        default_cache_dir() / "drafts",
        tokenizer_sha256=tokenizer.sha256,
        vocab_size=tokenizer.vocab_size,
        progress=lambda _: None,
    )


@pytest.mark.real_model
def test_the_real_draft_gives_the_golden_tokens(real_draft):
    """A few tokens of SmolLM2-135M's int4 self-draft, greedily and at a temperature."""
    card = open_sim("u55c", real_draft, num_slots=2, max_context_tokens=64)
    golden = GoldenExecutor(load_artefact(real_draft), 2, 64)
    lanes = [
        work(0, tokens=[1, 9690, 198, 2683, 359], drafts=2, temperature=0.0),
        work(1, tokens=[504, 3575, 282, 4649], drafts=3, seed=2**63 + 5),
    ]
    assert list(card.run(lanes).lanes) == golden.run(lanes)
    card.close()
