"""The blocks of the arithmetic: hand-worked values, then every argument or many."""

import numpy as np
import pytest

from fpga.golden.exp2 import exp2_negative
from fpga.golden.fixed import bit_length, normalise16, round_shift, saturate8, saturate32
from fpga.golden.reciprocal import reciprocal
from fpga.golden.rsqrt import rsqrt
from fpga.program import tables


@pytest.mark.parametrize(
    "value, shift, expected",
    [
        (5, 1, 3),  # 2.5 rounds up
        (-5, 1, -2),  # -2.5 rounds up too: half goes towards +infinity
        (-7, 2, -2),  # -1.75
        (6, 2, 2),  # 1.5
        (9, 0, 9),
        (3, -2, 12),
        (3, -100, 3 << 7),  # clamped
        (1 << 50, 70, 0),  # clamped to 62: 2^-12
        (-1, 62, 0),
    ],
)
def test_round_shift(value, shift, expected):
    assert round_shift(value, shift) == expected


def test_saturation_is_symmetric():
    assert saturate32([1 << 40, -(1 << 40), -(1 << 31), 7]).tolist() == [
        (1 << 31) - 1,
        -(1 << 31) + 1,
        -(1 << 31) + 1,
        7,
    ]
    assert saturate8([128, -128, 127]).tolist() == [127, -127, 127]


@pytest.mark.parametrize("value", [1, 2, 3, 255, 256, (1 << 31) - 1, 1 << 31, (1 << 52) - 1])
def test_bit_length_and_normalise16(value):
    assert bit_length(value) == value.bit_length()
    mantissa, exponent = (int(x) for x in normalise16(value))
    assert 1 << 15 <= mantissa < 1 << 16
    truncated = value >> exponent if exponent >= 0 else value << -exponent
    assert mantissa == truncated


def test_reciprocal_of_every_mantissa():
    m = np.arange(1 << 15, 1 << 16)
    result = reciprocal(m)
    assert result.min() >= 1 << 15
    assert result.max() <= 1 << 16
    error = np.abs(result * m / 2.0**31 - 1).max()
    assert error < 2**-14.8


def test_rsqrt_over_its_whole_range():
    rng = np.random.default_rng(0)
    x = np.floor(2 ** rng.uniform(0, 52, 100_000)).astype(np.int64)
    x[:70] = [*range(1, 19), *(1 << np.arange(52))]
    mantissa, exponent = rsqrt(x)
    assert mantissa.min() >= (1 << 15) - 1
    assert mantissa.max() <= 1 << 16
    error = np.abs(np.ldexp(mantissa.astype(float), -exponent) * np.sqrt(x) - 1).max()
    assert error < 2**-13.5


def test_rsqrt_by_hand():
    # 4 = 2^30 * 2^-28: 2^31 / sqrt(2^30) = 2^16, exponent 31 - 14.
    mantissa, exponent = (int(x) for x in rsqrt(4))
    assert exponent == 17
    assert abs(mantissa - 65536) <= 4  # 2^16 * 2^-17 = 1/2


def test_exp2_hits_whole_powers_and_stays_close_between():
    assert exp2_negative([0, 1 << 16, 2 << 16, 24 << 16, 25 << 16, 1 << 33]).tolist() == [
        1 << 23,
        1 << 22,
        1 << 21,
        1,  # 2^-24 is half a unit, rounded up
        0,
        0,
    ]
    distance = np.arange(0, 8 << 16, 7)
    error = np.abs(exp2_negative(distance) - 2.0 ** (23 - distance / 65536)).max()
    assert error <= 10  # units of 2^-23


def test_exp2_never_rises():
    values = exp2_negative(np.arange(0, 3 << 16))
    assert (np.diff(values) <= 0).all()


def test_tables_are_the_published_ones():
    """A change of any entry is a new arithmetic version: artefacts, RTL and cards must follow."""
    assert tables.ARITHMETIC_VERSION == 1
    assert tables.TABLES_SHA256.startswith("9d256e33d002b3d1")
