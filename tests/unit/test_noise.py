"""The noise law: published Philox vectors, committed vectors, the table, and its statistics."""

import json
from pathlib import Path

import numpy as np
import pytest

from hetero.core import gumbel_table, noise

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "noise.json").read_text())


# Random123's known-answer file, kat_vectors, philox4x32 with 10 rounds.
@pytest.mark.parametrize(
    "counter,key,expected",
    [
        ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (
            [0xFFFFFFFF] * 4,
            (0xFFFFFFFF, 0xFFFFFFFF),
            [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
        ),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_known_answers(counter, key, expected):
    assert noise.philox4x32([counter], key)[0].tolist() == expected


def test_committed_table_is_what_fifty_digits_give():
    np.testing.assert_array_equal(gumbel_table.load(), gumbel_table.compute())


def test_committed_word_vectors():
    words, expected = zip(*VECTORS["gumbel_from_words"], strict=True)
    assert noise.gumbel_from_words(np.array(words, dtype=np.uint64)).tolist() == list(expected)


@pytest.mark.parametrize("case", VECTORS["gumbel_noise"], ids=lambda c: c["seed"])
def test_committed_noise_vectors(case):
    got = noise.gumbel_noise(
        int(case["seed"]),
        case["output_index"],
        case["token_ids"],
        choice_index=case["choice_index"],
    )
    assert got.tolist() == case["gumbel_q20"]


def test_interpolation_is_within_its_stated_error():
    """A chord over 1/128 of an octave bends at most (1/128)^2 / 8 = 7.6e-6; rounding adds 1e-6."""
    words = np.random.default_rng(1).integers(0, 2**32, 300_000, dtype=np.uint64)
    exact = -np.log(-np.log((words + 0.5) / 2.0**32))
    assert np.abs(noise.gumbel_from_words(words) / noise.GUMBEL_ONE - exact).max() < 9e-6


def test_noise_grows_with_the_word():
    """Monotone from the lowest word to the highest, across every seam of the table."""
    seams = np.array([(1 << e) + d for e in range(32) for d in (-1, 0, 1)], dtype=np.int64)
    words = np.unique(np.clip(np.concatenate([seams, (1 << 32) - 1 - seams]), 0, 2**32 - 1))
    assert (np.diff(noise.gumbel_from_words(words).astype(np.int64)) >= 0).all()


def test_any_token_alone_equals_the_vocabulary():
    whole = noise.gumbel_noise(11, 5, np.arange(1000))
    assert noise.gumbel_noise(11, 5, [7, 998, 0]).tolist() == whole[[7, 998, 0]].tolist()


def test_argmax_of_logits_plus_noise_samples_the_softmax():
    """Chi-square over 20,000 draws, 5 cells: 18.47 is the 0.999 quantile at 4 degrees."""
    probabilities = np.array([0.5, 0.25, 0.15, 0.07, 0.03])
    logits = np.log(probabilities)
    draws = [
        int(np.argmax(logits + noise.gumbel_noise(99, i, np.arange(5)) / noise.GUMBEL_ONE))
        for i in range(20_000)
    ]
    counts = np.bincount(draws, minlength=5)
    expected = probabilities * len(draws)
    assert ((counts - expected) ** 2 / expected).sum() < 18.47
