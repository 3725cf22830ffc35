"""The compiled draw against its law in NumPy, and the law against the softmax it samples."""

import numpy as np
import pytest

from gpu_verifier.sampling.noise_kernel import coupled_draw, coupled_draw_reference

TEMPERATURES = [1e-6, 0.005, 0.3, 0.8, 1.0, 3.0, 100.0]


def logits(seed, size, spread=3.0):
    rng = np.random.default_rng(seed)
    z_v = rng.normal(0, spread, size).astype(np.float32)
    z_v[rng.integers(size)] += 8
    return z_v


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 1023, 1024, 1025, 4099])
def test_equals_the_reference(size, temperature):
    for index in range(12):
        z_v = logits(index, size)
        args = (z_v, temperature, 0x1234_5678_9ABC_DEF0 + index, index, index % 3)
        assert coupled_draw(*args) == coupled_draw_reference(*args)


@pytest.mark.parametrize("temperature", [0.005, 0.8, 100.0])
def test_equals_the_reference_on_a_whole_vocabulary(temperature):
    z_v = logits(3, 49152)
    for index in range(8):
        args = (z_v, temperature, 2**64 - 1 - index, 2**32 - 1 - index)
        assert coupled_draw(*args) == coupled_draw_reference(*args)


@pytest.mark.parametrize("size", [5, 2000])
def test_flat_logits_let_the_noise_decide(size):
    """Nothing can be pruned by logits alone; every token must win now and then."""
    flat_v = np.zeros(size, dtype=np.float32)
    drawn = [coupled_draw(flat_v, 1.0, 5, index) for index in range(200)]
    assert drawn == [coupled_draw_reference(flat_v, 1.0, 5, index) for index in range(200)]
    assert len(set(drawn)) > min(size, 100) * 0.9 - 1


def test_rare_words_are_not_pruned_away():
    """Steep logits where only noise in the top 1/4096 of words can lift a token to the win."""
    z_v = np.zeros(6000, dtype=np.float32)
    z_v[0] = 9.0
    wins = 0
    for index in range(400):
        token = coupled_draw(z_v, 1.0, 77, index)
        assert token == coupled_draw_reference(z_v, 1.0, 77, index)
        wins += token != 0
    assert 50 < wins < 250  # softmax: 6000 / (6000 + e^9) = 0.43


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_masked_tokens_never_win(temperature):
    z_v = logits(1, 3000)
    allowed = [7, 1500, 2999]
    masked_v = np.full_like(z_v, -np.inf)
    masked_v[allowed] = z_v[allowed]
    for index in range(50):
        token = coupled_draw(masked_v, temperature, 9, index)
        assert token in allowed
        assert token == coupled_draw_reference(masked_v, temperature, 9, index)


def test_equal_values_go_to_the_lowest_id():
    """At z/T = 1e18 one unit in the last place is 128: all noise vanishes, every token ties."""
    z_v = np.full(64, 1e6, dtype=np.float32)
    assert coupled_draw(z_v, 1e-12, 3, 4) == 0
    assert coupled_draw_reference(z_v, 1e-12, 3, 4) == 0


def test_extreme_temperatures_neither_overflow_nor_warn():
    z_v = logits(2, 1000)
    with np.errstate(all="raise"):
        for temperature in (1e-6, 0.005):
            token = coupled_draw_reference(z_v, temperature, 1, 0)
            assert token == coupled_draw(z_v, temperature, 1, 0) == int(np.argmax(z_v))


def test_seed_index_and_choice_all_matter():
    z_v = np.zeros(1000, dtype=np.float32)
    base = coupled_draw(z_v, 1.0, 1, 0, 0)
    assert coupled_draw(z_v, 1.0, 1, 0, 0) == base
    others = [(2, 0, 0), (1 | 1 << 40, 0, 0), (1, 1, 0), (1, 0, 1)]
    assert all(coupled_draw(z_v, 1.0, *args) != base for args in others)
