"""Plain decoding the slow way: transformers' own eager attention, the whole prefix every time.

No cache, no padding, no batch, none of our attention. Token agreement with it is what a foreign
engine can be held to; in float32 the two part only at near-ties.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from gpu_verifier.sampling.filters import Logits
from gpu_verifier.sampling.sampler import TokenRules, target_token
from hetero.core.types import SamplingParams


@dataclass(frozen=True, slots=True)
class PlainStep:
    """One token, and by how much the best logit led the second: small means a near-tie."""

    token_id: int
    lead: float


class PlainDecoder:
    """A float32 target without any of the verifier's machinery."""

    def __init__(self, model_dir: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(
            model_dir, local_files_only=True, dtype=torch.float32, attn_implementation="eager"
        ).eval()

    @torch.inference_mode()
    def logits(self, token_ids: Sequence[int]) -> Logits:
        """float32 [tokens, v]: what the model says after each token."""
        output = self._model(torch.tensor([list(token_ids)]), use_cache=False)
        logits_nv: Logits = output.logits[0].float().numpy()
        return logits_nv

    def generate(
        self,
        prompt: Sequence[int],
        num_tokens: int,
        sampling: SamplingParams,
        rules: TokenRules,
    ) -> list[PlainStep]:
        """Exactly ``num_tokens`` tokens; an EOS among them does not stop it."""
        token_ids, steps = list(prompt), []
        for index in range(num_tokens):
            logits_v = self.logits(token_ids)[-1]
            token_id = target_token(logits_v, sampling, index, rules)
            second, first = sorted(logits_v[: rules.vocab_size])[-2:]
            steps.append(PlainStep(token_id, float(first - second)))
            token_ids.append(token_id)
        return steps
