"""Each operation: a case worked by hand, and a bound on its distance from real arithmetic."""

import numpy as np
import pytest

from fpga.golden.attention import attend
from fpga.golden.draw import DrawKey, draw, inverse_temperature
from fpga.golden.embed import embed
from fpga.golden.head import Candidates, top_candidates
from fpga.golden.kv_cache import KvCache
from fpga.golden.matmul import accumulate, drain, folded
from fpga.golden.norm import norm_quant
from fpga.golden.quantise import Quantised, quantise
from fpga.golden.rope_kv import rotate
from fpga.golden.silu_gate import sigmoid, silu_gate
from fpga.program.layout import Int4Matrix, Int8Matrix, KvLayout
from hetero.core.noise import gumbel_noise

ONE = 1 << 16


def _real(q: Quantised):
    return np.ldexp(q.quant * q.mantissa[..., None].astype(float), -q.exponent[..., None])


def _i64(*values):
    return np.array(values, dtype=np.int64)


# ---- QUANT


def test_quantise_by_hand():
    # Largest 508 = 4 * 127: the scale is 4.
    out = quantise(_i64([508, -508, 3, -3, 7, 5, 1, 0]), 0)
    assert out.quant.tolist() == [[127, -127, 1, -1, 2, 1, 0, 0]]
    # norm16(508) = 65024 * 2^-7; * 33026 = 2147482624 = 65535 (truncated) * 2^15; E = 38 - 9 - 15
    assert (int(out.mantissa[0]), int(out.exponent[0])) == (65535, 14)


def test_quantise_zero_is_zero():
    out = quantise(np.zeros((1, 8), dtype=np.int64), 16)
    assert not out.quant.any()
    assert 1 << 15 <= out.mantissa[0] < 1 << 16


@pytest.mark.parametrize("bits", [1, 5, 12, 16, 17, 24, 31, 39])
def test_quantise_is_within_half_a_step(bits):
    rng = np.random.default_rng(bits)
    values = rng.integers(-(1 << bits) + 1, 1 << bits, (40, 64))
    out = quantise(values, 4)
    step = np.abs(values).max(axis=1, keepdims=True) / 127 / 16
    assert (np.abs(_real(out) - values / 16) <= step * 0.52).all()
    assert (out.mantissa >> 15 == 1).all()


# ---- NORM_QUANT


@pytest.mark.parametrize("peak", [1, 40, 3000])
def test_norm_is_rms_norm(peak):
    rng = np.random.default_rng(0)
    width = 576
    x = rng.normal(size=(20, width))
    x[:, 3] = peak
    gamma = rng.uniform(0.1, 2, width)
    eps = 1e-5
    mantissa = np.round(gamma * np.sqrt(width) * 2**9).astype(np.int16)
    fixed = np.round(x * ONE).astype(np.int64)
    out = norm_quant(fixed, mantissa, gamma_shift=9, eps_q=round(eps * width * 2**32))
    expected = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * gamma
    step = np.abs(expected).max(axis=1, keepdims=True) / 127
    # Half a step of int8, and a little for the 18-bit block and the 16-bit scales.
    assert (np.abs(_real(out) - expected) <= step * 0.53).all()


def test_norm_of_nothing_is_nothing_and_eps_counts():
    gamma = np.full(32, 1 << 12, dtype=np.int16)
    zero = norm_quant(np.zeros((1, 32), dtype=np.int64), gamma, gamma_shift=0, eps_q=0)
    assert not zero.quant.any()
    tiny = np.full((1, 32), 2, dtype=np.int64)
    with_eps = norm_quant(tiny, gamma, gamma_shift=0, eps_q=32 * 4 * 3)  # mean square 4 + 12
    without = norm_quant(tiny, gamma, gamma_shift=0, eps_q=0)
    np.testing.assert_allclose(_real(with_eps), _real(without) / 2, rtol=1e-4)


def test_norm_bits_do_not_depend_on_other_tokens():
    rng = np.random.default_rng(5)
    x = rng.integers(-(1 << 24), 1 << 24, (9, 64))
    gamma = rng.integers(-32767, 32768, 64).astype(np.int16)
    together = norm_quant(x, gamma, gamma_shift=3, eps_q=1000)
    for i in range(9):
        alone = norm_quant(x[i : i + 1], gamma, gamma_shift=3, eps_q=1000)
        for ours, theirs in zip(alone, together.at(slice(i, i + 1)), strict=True):
            np.testing.assert_array_equal(ours, theirs)


# ---- MATMUL


def test_matmul_by_hand():
    quant = np.zeros((2, 64), dtype=np.int8)
    quant[0, :3], quant[0, 32] = [1, -8, 7], 2
    matrix = Int4Matrix(
        quant, np.array([[3, -5], [1, 1]], dtype=np.int8), np.array([512, 512], dtype=np.uint16)
    )
    activation = np.zeros((1, 64), dtype=np.int8)
    activation[0, :3], activation[0, 32] = [10, 1, -1], 100
    acc = accumulate(folded(matrix), activation)
    # group 0: 10 - 8 - 7 = -5, times 3; group 1: 200, times -5
    assert acc.tolist() == [[-1015, 0]]
    scale = Quantised(activation, _i64(1 << 15), _i64(15))  # 1.0
    # rnd(-1015 * 512, 8) = -2030; * 2^15, shifted by shift + 15 - 8 = 17
    assert drain(acc, matrix.mantissa_o, scale, shift=10).tolist() == [[-507, 0]]  # -507.5 up


def test_accumulation_is_exact_at_the_extremes():
    width = 1536
    quant = np.full((4, width), -8, dtype=np.int8)
    matrix = Int4Matrix(quant, np.full((4, 48), -127, dtype=np.int8), np.ones(4, np.uint16))
    activation = np.full((1, width), 127, dtype=np.int8)
    assert accumulate(folded(matrix), activation).tolist() == [[8 * 127 * 127 * width] * 4]


@pytest.mark.parametrize("kind", ["int4", "int8"])
def test_matmul_is_the_integer_product(kind):
    rng = np.random.default_rng(2)
    activation = rng.integers(-127, 128, (5, 96)).astype(np.int8)
    mantissa = np.ones(7, np.uint16)
    if kind == "int4":
        quant = rng.integers(-8, 8, (7, 96))
        scale = rng.integers(-127, 128, (7, 3))
        matrix = Int4Matrix(quant.astype(np.int8), scale.astype(np.int8), mantissa)
        weight = quant * np.repeat(scale, 32, axis=1)
    else:
        weight = rng.integers(-127, 128, (7, 96))
        matrix = Int8Matrix(weight.astype(np.int8), mantissa)
    expected = activation.astype(np.int64) @ weight.T
    np.testing.assert_array_equal(accumulate(folded(matrix), activation), expected)


def test_drain_saturates():
    scale = Quantised(np.zeros((1, 1), np.int8), _i64(1 << 15), _i64(0))
    acc = _i64([1 << 30, -(1 << 30)])
    limit = (1 << 31) - 1
    assert drain(acc, np.full(2, 65535, np.uint16), scale, shift=0).tolist() == [[limit, -limit]]


# ---- EMBED, ROPE


def test_embed_by_hand():
    out = embed(np.array([[3, -3, 127]], np.int8), np.array([5], np.uint16), shift=1)
    assert out.tolist() == [[8, -7, 318]]  # 7.5 up, -7.5 up, 317.5 up


def test_rotation_by_hand():
    table = np.array([[[0, 1 << 14], [1 << 14, 0]]], dtype=np.int16)  # 90 and 0 degrees
    out = rotate(_i64([[10, 20, 30, 40]]), table)
    assert out.tolist() == [[[-20, 10, 30, 40]]]


def test_rotation_is_within_two_units_per_thousand():
    rng = np.random.default_rng(3)
    heads = rng.integers(-(1 << 20), 1 << 20, (8, 3, 64))
    angle = rng.uniform(0, 2 * np.pi, (8, 32))
    table = np.round(np.stack([np.cos(angle), np.sin(angle)], -1) * 2**14).astype(np.int16)
    low, high = heads[..., 0::2], heads[..., 1::2]
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    expected = np.stack([low * cos - high * sin, high * cos + low * sin], -1)
    error = np.abs(rotate(heads, table) - expected.reshape(heads.shape))
    assert error.max() <= 2 * (1 << 20) * 2**-15 + 1


# ---- KV cache and ATTENTION


def _cache(tokens=0, seed=0):
    kv = KvCache(
        KvLayout(num_slots=2, context_tokens=40, num_layers=2, num_kv_heads=2, head_dim=16)
    )
    if tokens:
        kv.append(1, 1, 0, _random_kv(tokens, seed))
    return kv


def _random_kv(tokens, seed):
    rng = np.random.default_rng(seed)
    real = rng.normal(size=(2, tokens, 2, 16)) * rng.uniform(0.2, 5, (2, tokens, 2, 1))
    fixed = np.round(real * ONE).astype(np.int64)
    return quantise(fixed[0], 16), quantise(fixed[1], 16)


def test_the_cache_gives_back_what_was_appended():
    kv = _cache()
    written = _random_kv(7, 1)
    kv.append(1, 0, 3, written)
    for ours, theirs in zip(written, kv.read(1, 0, 10), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(np.swapaxes(a, 0, 1), b[:, 3:])
    assert not kv.read(0, 0, 10)[0].quant.any()
    assert not kv.read(1, 1, 10)[0].quant.any()


def test_the_cache_lies_in_memory_as_documented():
    kv = _cache()
    keys, values = written = _random_kv(1, 2)
    kv.append(1, 1, 5, written)
    at = kv.layout.head_offset(1, 1, 1)
    memory = kv.memory[at : at + kv.layout.head_bytes]
    data, scales = kv.layout.data_bytes, kv.layout.scale_bytes
    np.testing.assert_array_equal(memory[5 * 16 : 6 * 16].view(np.int8), keys.quant[0, 1])
    np.testing.assert_array_equal(
        memory[data + 5 * 16 : data + 6 * 16].view(np.int8), values.quant[0, 1]
    )
    word = int(memory[2 * data + scales :].view("<u4")[5])
    assert word & 0xFFFF == values.mantissa[0, 1]
    assert word >> 16 == values.exponent[0, 1] & 0xFFFF


def test_attention_to_one_position_is_its_value():
    kv = _cache(1).read(1, 1, 1)
    query = quantise(np.random.default_rng(0).integers(-ONE, ONE, (1, 4, 16)), 16)
    out = attend(query, kv, start=0, out_frac=16) / ONE
    expected = np.repeat(_real(kv[1])[:, 0], 2, axis=0)
    np.testing.assert_allclose(out[0], expected, atol=2e-4 * np.abs(expected).max())


def test_attention_is_softmax_attention():
    tokens = 30
    kv = _cache(tokens).read(1, 1, tokens)
    rng = np.random.default_rng(4)
    query = quantise(np.round(rng.normal(size=(tokens, 4, 16)) * ONE / 2).astype(np.int64), 16)
    out = attend(query, kv, start=0, out_frac=16) / ONE
    keys, values = (np.repeat(_real(x), 2, axis=0) for x in kv)
    score = np.einsum("nhd,hcd->hnc", _real(query), keys) * np.log(2)
    score += np.triu(np.full((tokens, tokens), -np.inf), 1)
    share = np.exp(score - score.max(-1, keepdims=True))
    share /= share.sum(-1, keepdims=True)
    expected = np.einsum("hnc,hcd->nhd", share, values)
    # Scores are exact to 2^-16 in log2 times their size's 2^-14, weights to 2^-20.
    assert np.abs(out - expected).max() < 4e-3
    assert np.abs(out - expected).mean() < 3e-4


def test_attention_bits_do_not_depend_on_chunks_or_dead_positions():
    kv = _cache(32)
    query = quantise(np.random.default_rng(6).integers(-ONE, ONE, (32, 4, 16)), 16)
    whole = attend(query, kv.read(1, 1, 32), start=0, out_frac=16)
    for start, end in [(0, 1), (1, 9), (9, 32)]:
        part = attend(query.at(slice(start, end)), kv.read(1, 1, end), start=start, out_frac=16)
        np.testing.assert_array_equal(part, whole[start:end])


# ---- SILU_GATE


def test_sigmoid_at_knots_limits_and_between():
    assert sigmoid(_i64(0, 16 * ONE, -16 * ONE, 99 * ONE, -99 * ONE)).tolist() == [
        32768,
        65536,
        0,
        65536,
        0,
    ]
    x = np.arange(-17 * ONE, 17 * ONE, 97)
    assert np.abs(sigmoid(x) / 65536 - 1 / (1 + np.exp(-x / ONE))).max() < 2**-15.3


def test_silu_gate_by_hand_and_bound():
    assert silu_gate(_i64(2 * ONE), _i64(-3 * ONE), out_frac=16).tolist() == [-346344]
    rng = np.random.default_rng(7)
    gate, up = rng.uniform(-12, 12, (2, 5000))
    out = silu_gate(*(np.round(x * ONE).astype(np.int64) for x in (gate, up)), out_frac=16) / ONE
    assert np.abs(out - gate / (1 + np.exp(-gate)) * up).max() < 4e-3


def test_silu_gate_saturates():
    huge = _i64((1 << 31) - 1)
    assert silu_gate(huge, huge, out_frac=16).tolist() == [(1 << 31) - 1]


# ---- HEAD, DRAW


def test_candidates_fall_and_ties_go_to_the_lower_id():
    out = top_candidates(_i64(5, 9, 5, -1, 9, 5), 4)
    assert out.logit.tolist() == [9, 9, 5, 5]
    assert out.target_id.tolist() == [1, 4, 0, 2]


def test_candidates_carry_target_ids():
    out = top_candidates(_i64(1, 7, 7), 2, np.array([10, 20, 900], dtype=np.int32))
    assert out.target_id.tolist() == [20, 900]


def test_greedy_takes_the_first_candidate_whatever_the_seed():
    candidates = Candidates(_i64(9 * ONE, 9 * ONE, ONE), _i64(4, 7, 1))
    for seed in range(5):
        token, confidence = draw(candidates, DrawKey(seed, 0, 0, 0), 16)
        assert token == 4
        assert confidence == 127  # 255 / 2.0007, rounded


def test_draw_is_logit_over_temperature_plus_shared_noise():
    rng = np.random.default_rng(8)
    ids = np.sort(rng.choice(49152, 64, replace=False)).astype(np.int64)
    logit = -np.sort(-rng.integers(0, 5 * ONE, 64))
    for index in range(200):
        key = DrawKey((1 << 63) + 12345, index, 3, inverse_temperature(0.8))
        noise = gumbel_noise(key.seed, index, ids, choice_index=3).astype(np.int64)
        score = ((logit * key.inv_t + (1 << 11)) >> 12) + noise
        assert draw(Candidates(logit, ids), key, 16)[0] == ids[score.argmax()]


def test_draws_follow_the_distribution():
    """A smoke test of the law: the share of each candidate over 4,000 output indices."""
    logit = np.array([2.0, 1.0, 0.0])
    candidates = Candidates((logit * ONE).astype(np.int64), _i64(11, 12, 13))
    key = [DrawKey(99, i, 0, inverse_temperature(1.0)) for i in range(4000)]
    drawn = np.array([draw(candidates, k, 16)[0] for k in key])
    share = np.array([(drawn == t).mean() for t in (11, 12, 13)])
    expected = np.exp(logit) / np.exp(logit).sum()
    assert np.abs(share - expected).max() < 4 * np.sqrt(0.25 / 4000)


@pytest.mark.parametrize(
    "temperature, inv_t", [(0, 0), (1.0, 65536), (0.8, 81920), (1e-9, 1 << 24), (1e9, 1)]
)
def test_inverse_temperature(temperature, inv_t):
    assert inverse_temperature(temperature) == inv_t
