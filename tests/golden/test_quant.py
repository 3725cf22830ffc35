"""Quantised weights stand for the float ones, within what their format can do."""

import numpy as np
import pytest

from fpga.program.bounds import matmul_bound
from fpga.program.layout import Int4Matrix, Int8Matrix
from fpga.quant.groups import quantise_int4
from fpga.quant.rows import quantise_gamma, quantise_int8, row_units
from hetero.core.errors import ModelError


def _weights(shape=(96, 320), seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32) / 30


def _int4_values(matrix, shift):
    scale = np.repeat(matrix.scale_og.astype(float), 32, axis=1)
    return matrix.quant_oi * scale * np.ldexp(matrix.mantissa_o.astype(float), -shift)[:, None]


def _int8_values(matrix, shift):
    return matrix.quant_oi * np.ldexp(matrix.mantissa_o.astype(float), -shift)[:, None]


def _plain_rounding(weight):
    grouped = weight.reshape(weight.shape[0], -1, 32)
    scale = np.abs(grouped).max(axis=2, keepdims=True) / 7
    return (np.round(grouped / scale) * scale).reshape(weight.shape)


def test_the_search_beats_plain_rounding_by_a_fifth():
    weight = _weights()
    error = ((_int4_values(*quantise_int4(weight)) - weight) ** 2).sum()
    plain = ((_plain_rounding(weight) - weight) ** 2).sum()
    assert error < 0.75 * plain  # squared; 0.69 for Gaussian weights


def test_int4_uses_all_codes_and_both_signs_of_scale():
    matrix, _ = quantise_int4(_weights())
    assert (matrix.quant_oi.min(), matrix.quant_oi.max()) == (-8, 7)
    assert matrix.scale_og.min() < 0 < matrix.scale_og.max()


def test_weights_on_the_grid_come_back_but_for_the_scale_mantissa():
    rng = np.random.default_rng(3)
    codes = rng.integers(-7, 8, (4, 64))
    codes[:, ::32] = 7
    weight = (codes * 2.0**-6).astype(np.float32)
    np.testing.assert_allclose(_int4_values(*quantise_int4(weight)), weight, rtol=0.5 / 115)


@pytest.mark.parametrize("quantise", [quantise_int4, quantise_int8])
def test_zero_rows_and_zero_matrices(quantise):
    weight = _weights((8, 64))
    weight[3] = 0
    matrix, _ = quantise(weight)
    assert not matrix.quant_oi[3].any()
    matrix, shift = quantise(np.zeros((4, 64), np.float32))
    assert not matrix.quant_oi.any()
    assert 0 <= shift <= 62


def test_rows_of_very_different_size_keep_their_precision():
    weight = _weights((8, 320)) * np.float32(4) ** np.arange(8)[:, None]
    values = _int4_values(*quantise_int4(weight))
    error = np.linalg.norm(values - weight, axis=1) / np.linalg.norm(weight, axis=1)
    assert error.max() < 0.1


def test_int8_rows_are_within_half_a_step():
    weight = _weights()
    step = np.abs(weight).max(axis=1, keepdims=True) / 127
    assert (np.abs(_int8_values(*quantise_int8(weight)) - weight) <= 0.505 * step).all()


def test_row_units_use_16_bits():
    units = row_units(np.array([1.0, 0.3, 1e-4]))
    assert units.mantissa_o.max() >= 1 << 15
    np.testing.assert_allclose(units.unit_o[:2], [1.0, 0.3], rtol=6e-5)


def test_gamma_includes_the_root_of_the_width():
    gamma = np.array([0.5, -1.0, 0.0, 2.0], np.float32)
    mantissa, shift = quantise_gamma(gamma)
    np.testing.assert_allclose(np.ldexp(mantissa.astype(float), -shift), gamma * 2, atol=1e-4)


def test_bounds_are_reached_by_the_worst_activation():
    rng = np.random.default_rng(4)
    quant = rng.integers(-8, 8, (5, 64)).astype(np.int8)
    scale = rng.integers(-127, 128, (5, 2)).astype(np.int8)
    bound = matmul_bound("m", Int4Matrix(quant, scale, np.ones(5, np.uint16)))
    folded = quant.astype(int) * np.repeat(scale.astype(int), 32, axis=1)
    worst = [127 * np.sign(row) @ row for row in folded]
    assert bound.row_sum == max(worst)
    assert bound.group_sum == 127 * np.abs(quant.astype(int)).reshape(5, 2, 32).sum(2).max()


def test_a_row_that_could_overflow_is_refused():
    width = 32 * 600  # 600 groups of 32 * 8 * 127 * 127 exceed 2^31
    quant = np.full((1, width), -8, np.int8)
    scale = np.full((1, width // 32), 127, np.int8)
    mantissa = np.ones(1, np.uint16)
    with pytest.raises(ModelError, match=r"wide: a row of 19200 columns may sum to 24774"):
        matmul_bound("wide", Int4Matrix(quant, scale, mantissa))
    fits = Int4Matrix(quant, scale // 2, mantissa)
    assert matmul_bound("narrow", fits).row_sum < 1 << 31


def test_int8_bounds_have_no_scale():
    quant = np.full((2, 64), 127, np.int8)
    bound = matmul_bound("head", Int8Matrix(quant, np.ones(2, np.uint16)))
    assert bound.row_sum == 64 * 127 * 127
