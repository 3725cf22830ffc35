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
NUM_TOP: Final = 4


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


class Drawn(NamedTuple):
    """The best candidates, the drawn one first: int64 [1..NUM_TOP] each."""

    target_id: I64
    confidence: I64
    """In 1/255: shares of the softmax among the candidates, without the noise."""
    logit: I64


def draw(candidates: Candidates, key: DrawKey, logit_frac: int) -> tuple[int, int]:
    """(target id, confidence in 1/255)."""
    best = draw_top(candidates, key, logit_frac)
    return int(best.target_id[0]), int(best.confidence[0])


def draw_top(candidates: Candidates, key: DrawKey, logit_frac: int) -> Drawn:
    """The drawn candidate and the runners-up, in falling order of what the draw compares.

    That is the perturbed logit, ties to the lower target id; at temperature 0 the candidates'
    own order.
    """
    inv_t = key.inv_t or 1 << 16
    scaled = round_shift(candidates.logit * inv_t, logit_frac - 4)
    order = _by_score(scaled, candidates.target_id, key) if key.inv_t else np.arange(scaled.size)
    best = order[:NUM_TOP]
    distance = ((scaled.max() - scaled) * LOG2_E_Q16) >> 20
    weight = exp2_negative(distance)
    total = int(weight.sum())
    confidence = (CONFIDENCE_ONE * weight[best] + total // 2) // total
    return Drawn(candidates.target_id[best], confidence, candidates.logit[best])


def _by_score(scaled: I64, target_id: I64, key: DrawKey) -> I64:
    noise = gumbel_noise(key.seed, key.output_index, target_id, choice_index=key.choice_index)
    order: I64 = np.lexsort((target_id, -(scaled + noise)))
    return order
