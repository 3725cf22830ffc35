"""The target's token at one position: a pure function of its logits, the request and the index.

Plain and speculative decoding both come here, row by row; a draft token is never an input. Order:
vocabulary mask, min_tokens mask, temperature, min_p, top_k, top_p, coupled draw.
"""

from dataclasses import dataclass

import numpy as np

from gpu_verifier.sampling.filters import Logits, keep_min_p, keep_top_k, keep_top_p
from gpu_verifier.sampling.noise_kernel import coupled_draw
from hetero.core.errors import ModelError
from hetero.core.types import SamplingParams


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What the model, not the request, says about tokens.

    ``vocab_size`` is the tokenizer's: logits at or above it belong to no token.
    """

    vocab_size: int
    eos_token_ids: tuple[int, ...]


def target_token(
    logits_v: Logits, sampling: SamplingParams, output_index: int, rules: TokenRules
) -> int:
    """The token the target writes at ``output_index`` (0 is the first generated one).

    ``logits_v``: float32 [at least vocab_size], not changed. Raises ModelError if they are not
    numbers, or if everything is masked.
    """
    z_v = _masked(logits_v[: rules.vocab_size], sampling, output_index, rules)
    top = int(np.argmax(z_v))  # the first of equals; a NaN counts as the greatest
    if not np.isfinite(z_v[top]):
        raise ModelError(
            f"target logits at output index {output_index} have no finite maximum "
            f"({z_v[top]}). The weights are damaged, or the dtype overflows: use float32."
        )
    if sampling.temperature == 0.0:
        return top
    z_v = keep_min_p(z_v, sampling.temperature, sampling.min_p)
    z_v = keep_top_k(z_v, sampling.top_k)
    z_v = keep_top_p(z_v, sampling.temperature, sampling.top_p)
    return coupled_draw(
        z_v, sampling.temperature, sampling.seed, output_index, sampling.choice_index
    )


def _masked(
    logits_v: Logits, sampling: SamplingParams, output_index: int, rules: TokenRules
) -> Logits:
    """While ``min_tokens`` is not reached, tokens that would stop the answer are out.

    With ``ignore_eos`` an EOS does not stop it, and stays a token like any other.
    """
    if output_index >= sampling.min_tokens:
        return logits_v
    stops = [*sampling.stop_token_ids, *(() if sampling.ignore_eos else rules.eos_token_ids)]
    z_v = logits_v.copy()
    z_v[[token for token in stops if token < z_v.size]] = -np.inf
    return z_v
