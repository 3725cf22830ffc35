"""DRAW's best four, against the law written out candidate by candidate."""

import numpy as np
import pytest

from fpga.golden.draw import DrawKey, draw, draw_top
from fpga.golden.exp2 import exp2_negative
from fpga.golden.head import Candidates
from hetero.core.noise import gumbel_noise

FRAC = 16


def _candidates(rng: np.random.Generator, size: int) -> Candidates:
    logit = np.sort(rng.integers(-3 << FRAC, 3 << FRAC, size))[::-1]
    return Candidates(logit, rng.choice(1 << 16, size, replace=False).astype(np.int64))


def _score(candidates: Candidates, key: DrawKey, index: int) -> int:
    z = (int(candidates.logit[index]) * key.inv_t + (1 << 11)) >> 12
    token = candidates.target_id[index : index + 1]
    noise = gumbel_noise(key.seed, key.output_index, token, choice_index=key.choice_index)
    return z + int(noise[0])


def _confidence(candidates: Candidates, inv_t: int, index: int) -> int:
    z = [(int(x) * inv_t + (1 << 11)) >> 12 for x in candidates.logit]
    weight = [int(exp2_negative(((max(z) - x) * 94548) >> 20)) for x in z]
    return (255 * weight[index] + sum(weight) // 2) // sum(weight)


@pytest.mark.parametrize("size", [1, 3, 4, 64])
@pytest.mark.parametrize("inv_t", [1, 65536, 1 << 24])
def test_the_best_four_by_perturbed_logit(size: int, inv_t: int):
    candidates = _candidates(np.random.default_rng(size), size)
    key = DrawKey(seed=1 << 40, output_index=7, choice_index=2, inv_t=inv_t)
    by_score = sorted(
        range(size), key=lambda i: (-_score(candidates, key, i), candidates.target_id[i])
    )[:4]
    best = draw_top(candidates, key, FRAC)
    assert best.target_id.tolist() == candidates.target_id[by_score].tolist()
    assert best.logit.tolist() == candidates.logit[by_score].tolist()
    assert best.confidence.tolist() == [_confidence(candidates, inv_t, i) for i in by_score]
    assert draw(candidates, key, FRAC) == (best.target_id[0], best.confidence[0])


def test_temperature_zero_keeps_the_candidates_order():
    # Scaled logits of the first two are equal; the first one has the higher id.
    logit = np.array([40_001, 40_000, 30_000, 20_000, 10_000], dtype=np.int64)
    candidates = Candidates(logit, np.array([9, 1, 5, 3, 4], dtype=np.int64))
    best = draw_top(candidates, DrawKey(5, 0, 0, 0), FRAC + 8)
    assert best.target_id.tolist() == [9, 1, 5, 3]
    assert best.logit.tolist() == logit[:4].tolist()
    assert best.confidence[0] == best.confidence[1] == 51  # five nearly equal ones
