"""The functional executor against the golden model where its fast forms could go wrong alone.

Every byte of the cache, every checkpoint of lanes that share passes, sums at the accumulator's
bound, and ties at the edge of the candidates.
"""

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

from fpga.golden import matmul as golden_matmul
from fpga.golden.executor import GoldenExecutor
from fpga.golden.fixed import saturate32
from fpga.golden.head import top_candidates
from fpga.golden.quantise import Quantised
from fpga.program import isa
from fpga.program.artefact import load_artefact
from fpga.program.build import build_artefact
from fpga.program.layout import Int4Matrix, Int8Matrix, pack_int4, pack_int8
from hetero.core.types import LaneWork
from sim.functional import kernels
from sim.functional.weights import WeightImage

SLOTS = 4
CONTEXT = 91  # arrays that end within a beat
WIDEST = 16_384
NUM_CANDIDATES = 64
REDUCED = {"few": 40, "reduced": 90}  # head rows: fewer than candidates, and more


@pytest.fixture(scope="module", params=["tiny", *REDUCED])
def artefact(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    weights = random_weights(TINY, seed=8)
    if request.param in REDUCED:
        count = REDUCED[request.param]
        targets = np.random.default_rng(0).choice(TINY["vocab_size"], count, replace=False)
        weights["d2t"] = (targets - np.arange(count)).astype(np.int64)
    source = write_checkpoint(folder / "source", TINY, weights)
    build_artefact(source, folder / "draft", target_tokenizer_sha256="ab" * 32)
    return load_artefact(folder / "draft")


def golden_executor(artefact, num_slots=SLOTS, context=CONTEXT):
    """With the same garbage in dead KV as the functional one has."""
    golden = GoldenExecutor(artefact, num_slots, context)
    golden.kv.memory[:] = GARBAGE
    return golden


def work(slot, tokens, drafts, **changes):
    values = {
        "slot": slot, "start": 0, "token_ids": tuple(tokens), "num_draft_tokens": drafts,
        "output_index": 0, "seed": 2**64 - 1 - slot, "choice_index": 0, "temperature": 0.7,
    }  # fmt: skip
    return LaneWork(**{**values, **changes})


def traffic(rng, held):
    """One start over random slots that goes on, rolls back, or fills its slot to the brim."""
    lanes = []
    for slot in rng.permutation(SLOTS)[: rng.integers(1, SLOTS + 1)]:
        start = int(rng.integers(0, held[slot] + 1))
        start = 0 if start > CONTEXT - 8 else start
        drafts = int(rng.integers(0, 6))
        room = CONTEXT - start - max(drafts - 1, 0)
        read = room if rng.random() < 0.2 else int(rng.integers(1, min(room, 30) + 1))
        lanes.append(
            work(
                int(slot), rng.integers(0, TINY["vocab_size"], read).tolist(), drafts, start=start,
                output_index=int(rng.integers(0, 2**31)), seed=int(rng.integers(0, 2**63)),
                choice_index=int(rng.integers(0, 4)), temperature=float(rng.choice([0, 0.4, 1.5])),
            )
        )  # fmt: skip
        held[slot] = start + read + max(drafts - 1, 0)
    return lanes


@pytest.mark.parametrize("num_ports", [1, 8])
def test_the_whole_cache_is_the_golden_one_after_every_start(artefact, num_ports):
    """Equal everywhere: a token's bytes are right, and no other byte is touched."""
    rng = np.random.default_rng(num_ports)
    golden = golden_executor(artefact)
    functional = functional_executor(artefact, SLOTS, CONTEXT, num_ports=num_ports)
    held, brims, rollbacks = [0] * SLOTS, 0, 0
    for _ in range(10):
        before = list(held)
        lanes = traffic(rng, held)
        assert run(functional, lanes) == in_card_form(golden.run(lanes), artefact)
        assert_same_cache(functional, golden)
        brims += sum(held[lane.slot] == CONTEXT for lane in lanes)
        rollbacks += sum(0 < lane.start < before[lane.slot] for lane in lanes)
    assert brims > 0
    assert rollbacks > 0


# ---- checkpoints of lanes that share passes


def golden_checkpoints(golden, lanes):
    """(label, slot, position) -> values of that token."""
    seen = []
    golden.run(lanes, seen.append)
    return {
        (point.label, point.slot, point.start + n): {k: v[n] for k, v in point.values.items()}
        for point in seen
        for n in range(max((len(v) for v in point.values.values()), default=0))
    }


def functional_checkpoints(artefact, functional, lanes):
    seen = {}

    def observe(label, op, rows, index):
        if isinstance(op, isa.RopeRow):
            return  # what it fetched shows in ROPE_KV
        ids = WeightImage(artefact.image).target_ids(op) if isinstance(op, isa.Head) else None
        for r in index:
            slot, position = rows.pos_rc[r, :2].tolist()
            values = left_behind(op, rows, r, ids)
            seen[label, slot, position] = {k: v.copy() for k, v in values.items()}

    run(functional, lanes, named(artefact, observe))
    return seen


def left_behind(op, rows, r, target_ids):
    """What an instruction left in one row, under the golden checkpoint's names."""
    match op:
        case isa.NormQuant() | isa.Quant():
            mantissa, exponent = rows.scale_rc[r]
            quant = rows.act_rk[r, : op.width]
            return {"quant": quant, "mantissa": mantissa, "exponent": exponent}
        case isa.RopeKv():
            quant = rows.query_rd[r].reshape(op.num_heads, op.head_dim)
            mantissa, exponent = rows.query_scale_rhc[r].T
            return {"quant": quant, "mantissa": mantissa, "exponent": exponent}
        case isa.Head():
            kept = min(op.num_candidates, op.valid_rows)
            ids = target_ids[rows.head_row_rc[r, :kept]]
            return {"logit": rows.logit_rc[r, :kept], "target_id": ids}
        case isa.Draw():
            return {"drawn": np.array(rows.drawn[int(r)].top[0][:2])}
    width = {isa.MatMul: "num_rows", isa.Embed: "width", isa.SiluGate: "width"}.get(type(op))
    count = getattr(op, width) if width else op.num_heads * op.head_dim
    return {"vector": rows.vec_rw[r, op.out_vec : op.out_vec + count]}


def assert_same_checkpoints(artefact, golden, functional, lanes):
    want = golden_checkpoints(golden, lanes)
    got = functional_checkpoints(artefact, functional, lanes)
    assert got.keys() == want.keys()
    for key, values in got.items():
        assert values.keys() == want[key].keys()
        for name, value in values.items():
            wanted = want[key][name]
            if key[0].endswith("rope_kv"):  # keys and values are compared in the cache
                wanted = wanted[: len(value)]
            np.testing.assert_array_equal(value, wanted, err_msg=f"{key} {name}")
    return got


def test_checkpoints_of_lanes_that_share_passes(artefact):
    """Lanes of unequal lengths, some of them only reading; 96 rows are more than one pass holds."""
    lanes = [
        work(2, range(60), 3),
        work(0, range(7, 31), 0),
        work(3, range(11), 5, temperature=0.0),
        work(1, [9], 1, choice_index=2),
    ]
    functional = functional_executor(artefact, SLOTS, CONTEXT)
    got = assert_same_checkpoints(artefact, golden_executor(artefact), functional, lanes)
    positions = {label: 0 for label, _, _ in got}
    for label, _, _ in got:
        positions[label] += 1
    # Read: 96. Fed back: 2 + 4. Drawn: 3 + 5 + 1.
    assert set(positions.values()) == {96 + 6, 9}
    assert len(positions) == len(artefact.program) - 2  # all but ROPE_ROW and END


@pytest.mark.real_model
def test_the_real_draft_inside(real_model_dir):
    """Every checkpoint and the whole cache at SmolLM2-135M's sizes, two lanes at once."""
    artefact = load_artefact(_default_draft(real_model_dir))
    golden = golden_executor(artefact, 2, 24)
    functional = functional_executor(artefact, 2, 24, num_ports=32)
    lanes = [
        work(0, [1, 9690, 198, 2683, 359], 2, temperature=0.0),
        work(1, [504, 3575, 282, 4649], 3),
    ]
    assert_same_checkpoints(artefact, golden, functional, lanes)
    assert_same_cache(functional, golden)


def _default_draft(model_dir):
    from hetero.models.registry import default_cache_dir
    from hetero.models.tokenizer import load_tokenizer
    from hetero.services.default_draft import default_draft

    tokenizer = load_tokenizer(model_dir)
    return default_draft(
        model_dir,
        default_cache_dir() / "drafts",
        tokenizer_sha256=tokenizer.sha256,
        vocab_size=tokenizer.vocab_size,
        progress=lambda _: None,
    )


# ---- products and candidates


def extreme_int4():
    """Rows whose sums come as near to 2^31 as the widest matrix allows, and mixed ones."""
    rng = np.random.default_rng(4)
    quant_oi = np.full((6, WIDEST), -8, dtype=np.int8)
    scale_og = np.full((6, WIDEST // 32), -127, dtype=np.int8)
    scale_og[1] = 127
    quant_oi[2, ::2] = 7  # neighbours of opposite sign cancel
    quant_oi[3] = rng.integers(-8, 8, WIDEST)
    scale_og[4] = rng.integers(-127, 128, WIDEST // 32)
    quant_oi[5, : WIDEST // 2] = 7  # a prefix far from the sum
    mantissa_o = np.array([65535, 65535, 32768, 40000, 65535, 32768], dtype=np.uint16)
    return Int4Matrix(quant_oi, scale_og, mantissa_o)


def extreme_int8():
    quant_oi = np.full((4, WIDEST), 127, dtype=np.int8)
    quant_oi[1] = -127
    quant_oi[2, ::3] = -127
    quant_oi[3, WIDEST // 2 :] = -127
    return Int8Matrix(quant_oi, np.full(4, 65535, dtype=np.uint16))


def extreme_activations():
    rng = np.random.default_rng(5)
    quant_ni = rng.integers(-127, 128, (5, WIDEST), dtype=np.int8)
    quant_ni[0], quant_ni[1] = 127, -127
    quant_ni[2] = np.where(np.arange(WIDEST) % 2, 127, -127)
    mantissa = np.array([65535, 65535, 32768, 40000, 65535], dtype=np.int64)
    return Quantised(quant_ni, mantissa, np.array([-30, -30, -10, 0, 9], dtype=np.int64))


def unpacked(matrix):
    """As the executor gets it: through the packed image."""
    bits, pack = (4, pack_int4) if isinstance(matrix, Int4Matrix) else (8, pack_int8)
    num_rows, width = matrix.quant_oi.shape
    op = isa.MatMul(
        weight_beat=0, num_rows=num_rows, width=width, weight_bits=bits, row_shift=0, out_vec=0,
        out_frac=0, accumulate=0,
    )  # fmt: skip
    return WeightImage(np.frombuffer(pack(matrix), dtype=np.uint8)).matrix(op)


MATRICES = {"int4": extreme_int4, "int8": extreme_int8}


@pytest.mark.parametrize("kind", MATRICES)
def test_sums_at_the_accumulators_bound_are_exact(kind):
    matrix, act = MATRICES[kind](), extreme_activations()
    weight_oi = unpacked(matrix).weight_oi
    every = np.arange(len(act.quant))
    got = kernels.products(every, weight_oi, act.quant.astype(np.int16))
    exact = act.quant.astype(np.int64) @ golden_matmul.folded(matrix).astype(np.int64).T
    np.testing.assert_array_equal(got, exact)
    largest = {"int4": 8 * 127 * 127 * WIDEST, "int8": 127 * 127 * WIDEST}[kind]
    assert exact.max() == largest < 2**31
    assert exact.min() == -largest


@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("shift", [0, 20, 40, 62])
@pytest.mark.parametrize("accumulate", [0, 1])
def test_the_drain_of_extreme_sums_equals_the_golden_one(kind, shift, accumulate):
    matrix, act = MATRICES[kind](), extreme_activations()
    fast = unpacked(matrix)
    weight_oi = golden_matmul.folded(matrix)
    want = golden_matmul.drain(
        golden_matmul.accumulate(weight_oi, act.quant), matrix.mantissa_o, act, shift=shift
    )
    old = np.random.default_rng(6).integers(-(2**31) + 1, 2**31, want.shape)
    if accumulate:
        want = saturate32(old + want)
    vec_rw = np.pad(old, ((0, 0), (3, 2))).astype(np.int32)
    rows = np.array([4, 1, 0, 2])  # the listed ones, in any order
    kernels.matmul(
        rows, fast.weight_oi, fast.mantissa_o, shift, act.quant.astype(np.int16),
        np.stack([act.mantissa, act.exponent], axis=1), vec_rw, 3, accumulate,
    )  # fmt: skip
    np.testing.assert_array_equal(vec_rw[rows, 3:-2], want[rows])
    np.testing.assert_array_equal(vec_rw[3, 3:-2], old[3])
    assert not vec_rw[:, :3].any()
    assert not vec_rw[:, -2:].any()


@pytest.mark.parametrize("values", [1, 3, 40])
@pytest.mark.parametrize("num_rows", [40, NUM_CANDIDATES, 500])
def test_candidates_with_ties_are_the_golden_ones(values, num_rows):
    """Few distinct logits: ties within the candidates and across their edge go to lower rows."""
    weight_oi = np.random.default_rng(values).integers(0, values, (num_rows, 32), dtype=np.int8)
    act_rk = np.zeros((2, 32), dtype=np.int16)
    act_rk[:, :2] = [[1, 100], [-1, 0]]
    mantissa_o = np.full(num_rows, 1 << 15, dtype=np.int64)
    scale_rc = np.array([[1 << 15, 30]] * 2)  # with the mantissas, a factor of one
    logit_rc = np.zeros((2, NUM_CANDIDATES), dtype=np.int64)
    row_rc = np.zeros_like(logit_rc)
    kernels.head(np.arange(2), weight_oi, mantissa_o, 0, act_rk, scale_rc, logit_rc, row_rc)
    for r, logit_v in enumerate(act_rk.astype(np.int64) @ weight_oi.T.astype(np.int64)):
        want = top_candidates(logit_v, NUM_CANDIDATES)
        np.testing.assert_array_equal(row_rc[r, : want.target_id.size], want.target_id)
        np.testing.assert_array_equal(logit_rc[r, : want.logit.size], want.logit)
