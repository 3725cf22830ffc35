"""The simulated card's executor equals the golden model, bit for bit, inside and out."""

import numpy as np
import pytest
from support.functional import (
    GARBAGE,
    assert_same_cache,
    functional_executor,
    in_card_form,
    named,
    run,
)
from support.llama_files import TINY, random_weights, write_checkpoint

from fpga.driver.lanes import inverse_temperature
from fpga.golden import draw as golden_draw
from fpga.golden import exp2, fixed, quantise, reciprocal, rsqrt, silu_gate
from fpga.golden.executor import GoldenExecutor
from fpga.program import isa
from fpga.program.artefact import load_artefact
from fpga.program.build import build_artefact
from hetero.core.types import LaneWork
from sim.functional import integers, kernels

CONTEXT = 96
SLOTS = 5
WIDE_HEADS = {**TINY, "tie_word_embeddings": False, "num_key_value_heads": 4, "head_dim": 32}
NARROW = {**TINY, "num_key_value_heads": 1, "num_hidden_layers": 2, "hidden_size": 96}
SHAPES = {"tiny": TINY, "untied": WIDE_HEADS, "narrow": NARROW}


@pytest.fixture(scope="module", params=SHAPES, ids=list(SHAPES))
def artefact(request, tmp_path_factory):
    config = SHAPES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    source = write_checkpoint(folder / "source", config, random_weights(config, seed=3))
    build_artefact(source, folder / "draft", target_tokenizer_sha256="ab" * 32)
    return load_artefact(folder / "draft")


def random_start(rng, held, vocab_size):
    """One start over random slots: continue, roll back, read in chunks, or begin again."""
    lanes = []
    for slot in rng.permutation(SLOTS)[: rng.integers(1, SLOTS + 1)]:
        start = int(rng.integers(0, held[slot] + 1))
        room = CONTEXT - start
        if room < 4:
            start, room = 0, CONTEXT
        read = int(rng.integers(1, min(room - 1, 40)))
        drafts = int(rng.integers(0, min(room - read, 6) + 1))
        lanes.append(
            LaneWork(
                slot=int(slot),
                start=start,
                token_ids=tuple(int(t) for t in rng.integers(0, vocab_size, read)),
                num_draft_tokens=drafts,
                output_index=int(rng.integers(0, 1000)),
                seed=int(rng.integers(0, 2**63)),
                choice_index=int(rng.integers(0, 3)),
                temperature=float(rng.choice([0.0, 0.3, 0.8, 2.0])),
            )
        )
        held[slot] = start + read + max(drafts - 1, 0)
    return lanes


def test_random_traffic_gives_the_golden_tokens(artefact):
    """Slots, rollback, chunked reads, greedy and sampled, lanes that share a pass."""
    rng = np.random.default_rng(11)
    golden = GoldenExecutor(artefact, SLOTS, CONTEXT)
    functional = functional_executor(artefact, SLOTS, CONTEXT)
    held = [0] * SLOTS
    drafted = 0
    for _ in range(12):
        lanes = random_start(rng, held, artefact.shape.vocab_size)
        assert run(functional, lanes) == in_card_form(golden.run(lanes), artefact)
        drafted += sum(lane.num_draft_tokens for lane in lanes)
    assert drafted > 40


def test_every_checkpoint_inside_the_model_is_equal(artefact):
    work = LaneWork(
        slot=1, start=0, token_ids=tuple(range(30)), num_draft_tokens=3, output_index=0,
        seed=5, choice_index=0, temperature=0.7,
    )  # fmt: skip
    expected = []
    GoldenExecutor(artefact, 2, CONTEXT).run([work], expected.append)
    seen = iter([c for c in expected if c.values])
    compared = set()

    def compare(label, op, rows, index):
        compared.add(type(op))
        if isinstance(op, isa.RopeRow):
            return
        golden = next(seen)
        assert golden.label == label
        for name, values in state_after(op, rows, index).items():
            np.testing.assert_array_equal(values, golden.values[name], err_msg=label)

    run(functional_executor(artefact, 2, CONTEXT), [work], named(artefact, compare))
    assert next(seen, None) is None
    assert compared == set(isa.INSTRUCTION_TYPES) - {isa.End}


def state_after(op, rows, index):
    """What an instruction left behind, under the golden checkpoint's names."""
    match op:
        case isa.NormQuant() | isa.Quant():
            scale = rows.scale_rc[index]
            quant = rows.act_rk[index, : op.width]
            return {"quant": quant, "mantissa": scale[:, 0], "exponent": scale[:, 1]}
        case isa.Embed():
            return {"vector": rows.vec_rw[index, op.out_vec :][:, : op.width]}
        case isa.MatMul():
            return {"vector": rows.vec_rw[index, op.out_vec :][:, : op.num_rows]}
        case isa.SiluGate():
            return {"vector": rows.vec_rw[index, op.out_vec :][:, : op.width]}
        case isa.Attention():
            width = op.num_heads * op.head_dim
            return {"vector": rows.vec_rw[index, op.out_vec :][:, :width]}
        case isa.Head():
            return {"logit": rows.logit_rc[index]}
        case isa.Draw():
            return {"drawn": np.array([rows.drawn[i].top[0][:2] for i in index])}
    return {}  # keys and values: attention over them is compared


def test_the_cache_holds_the_golden_bytes(artefact):
    """Keys, values and scales of a slot, dealt out over ports."""
    work = LaneWork(
        slot=1, start=0, token_ids=tuple(range(40)), num_draft_tokens=0, output_index=0,
        seed=5, choice_index=0, temperature=0.0,
    )  # fmt: skip
    golden = GoldenExecutor(artefact, 2, CONTEXT)
    golden.kv.memory[:] = GARBAGE
    golden.run([work])
    functional = functional_executor(artefact, 2, CONTEXT, num_ports=32)
    run(functional, [work])
    assert_same_cache(functional, golden)


def test_rows_of_a_pass_do_not_meet(artefact):
    """A lane drafts the same alone and beside others."""
    functional = functional_executor(artefact, SLOTS, CONTEXT)
    lanes = [
        LaneWork(
            slot=slot, start=0, token_ids=tuple(range(slot, slot + 9)), num_draft_tokens=4,
            output_index=slot, seed=slot, choice_index=0, temperature=0.9,
        )
        for slot in range(SLOTS)
    ]  # fmt: skip
    together = run(functional, lanes)
    alone = [run(functional, [lane])[0] for lane in reversed(lanes)][::-1]
    assert together == alone


# ---- building blocks, over ranges that whole models seldom reach

VALUES = np.concatenate(
    [
        np.arange(1, 70_000, 37),
        np.geomspace(1, 2**52, 4_000).astype(np.int64),
        (1 << np.arange(0, 52)),
        (1 << np.arange(1, 52)) - 1,
    ]
).astype(np.int64)


def test_scalar_blocks_equal_the_golden_ones():
    mantissa, exponent = fixed.normalise16(VALUES)
    assert [integers.norm16(v) for v in VALUES] == list(zip(mantissa, exponent, strict=True))
    all_mantissas = np.arange(1 << 15, 1 << 16)
    np.testing.assert_array_equal(
        [integers.recip(m) for m in all_mantissas], reciprocal.reciprocal(all_mantissas)
    )
    y, e = rsqrt.rsqrt(VALUES)
    assert [integers.rsqrt(v) for v in VALUES] == list(zip(y, e, strict=True))


def test_curves_equal_the_golden_ones():
    distances = np.concatenate([np.arange(0, 30 << 16, 971), np.arange(600)])
    np.testing.assert_array_equal(
        [integers.exp2n(d) for d in distances], exp2.exp2_negative(distances)
    )
    gates = np.concatenate([np.arange(-(18 << 16), 18 << 16, 997), np.arange(-70, 70), [2**31 - 1]])
    np.testing.assert_array_equal([integers.sigmoid(g) for g in gates], silu_gate.sigmoid(gates))


@pytest.mark.parametrize("shift", [-9, -7, -1, 0, 1, 8, 40, 62, 70])
def test_rounding_equals_the_golden_one(shift):
    values = np.concatenate([VALUES[VALUES < 2**40], -VALUES[VALUES < 2**40]])
    got = [integers.rounded(v, shift) for v in values]
    np.testing.assert_array_equal(got, fixed.round_shift(values, shift))


@pytest.mark.parametrize("size", [1, 2**3, 2**15, 2**16, 2**31, 2**39])
def test_quantise_equals_the_golden_one(size):
    values = np.random.default_rng(2).integers(-size, size + 1, 64)
    want = quantise.quantise(values[None], 5)
    out = np.zeros(64, dtype=np.int16)
    scale = kernels.quantise(values, 64, 5, out)
    np.testing.assert_array_equal(out, want.quant[0])
    assert scale == (want.mantissa[0], want.exponent[0])


def test_host_and_golden_agree_on_temperature():
    for temperature in (0.0, 1e-9, 1e-3, 0.25, 0.7, 1.0, 1.99, 2.0, 1e9):
        assert inverse_temperature(temperature) == golden_draw.inverse_temperature(temperature)
