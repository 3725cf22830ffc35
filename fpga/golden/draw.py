"""DRAW: one candidate by Gumbel noise that the verifier shares, and how sure the draft was."""

from typing import Final, NamedTuple

import numpy as np

from fpga.golden.exp2 import exp2_negative
from fpga.golden.fixed import I64, round_shift
from fpga.golden.head import Candidates
from hetero.core.noise import gumbel_noise

LOG2_E_Q16: Final = 94548
MAX_INV_T: Final = 1 << 24
CONFIDENCE_ONE: Final = 255


class DrawKey(NamedTuple):
    """What the draw depends on besides the logits. ``inv_t`` 0 draws greedily."""

    seed: int
    output_index: int
    choice_index: int
    inv_t: int


def inverse_temperature(temperature: float) -> int:
    """The host's part: 1 / temperature with 16 fraction bits, 0 for temperature 0."""
    if temperature <= 0:
        return 0
    return min(max(int(65536 / temperature + 0.5), 1), MAX_INV_T)


def draw(candidates: Candidates, key: DrawKey, logit_frac: int) -> tuple[int, int]:
    """(target id, confidence in 1/255)."""
    inv_t = key.inv_t or 1 << 16
    scaled = round_shift(candidates.logit * inv_t, logit_frac - 4)
    chosen = _perturbed_best(scaled, candidates.target_id, key) if key.inv_t else 0
    distance = ((scaled.max() - scaled) * LOG2_E_Q16) >> 20
    weight = exp2_negative(distance)
    total = int(weight.sum())
    confidence = (CONFIDENCE_ONE * int(weight[chosen]) + total // 2) // total
    return int(candidates.target_id[chosen]), confidence


def _perturbed_best(scaled: I64, target_id: I64, key: DrawKey) -> int:
    noise = gumbel_noise(key.seed, key.output_index, target_id, choice_index=key.choice_index)
    score = scaled + noise
    best = np.flatnonzero(score == score.max())
    return int(best[np.argmin(target_id[best])])
