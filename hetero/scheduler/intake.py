"""From a request to a sequence: the last checks, and what is settled once for its life."""

import itertools
from collections.abc import Collection

from hetero.core.errors import ConfigError, ContextOverflowError, RequestError
from hetero.core.types import GenerationRequest, SequenceId, SpeculativeParams, VerifierInfo
from hetero.scheduler.answer import Answer, TextTools
from hetero.scheduler.config import EngineConfig
from hetero.scheduler.outbox import Outbox
from hetero.scheduler.sequence import LiveSequence

NO_SPECULATION = "none"
"""The method that every engine has."""


class Intake:
    """Makes sequences. ``methods`` are the names a request may give as ``speculative.method``."""

    def __init__(
        self,
        config: EngineConfig,
        info: VerifierInfo,
        text_tools: TextTools,
        drafter_names: Collection[str],
    ) -> None:
        self._config = config
        self._info = info
        self._text_tools = text_tools
        self._sequence_ids = itertools.count(1)
        self.methods = tuple(dict.fromkeys([*drafter_names, NO_SPECULATION]))
        self._undrafted = frozenset(self.methods) - (frozenset(drafter_names) - {NO_SPECULATION})
        if config.default_method not in self.methods:
            raise ConfigError(
                f"engine.default_method = {config.default_method}: "
                f"this engine has {', '.join(self.methods)}. Choose one."
            )

    def new_sequence(self, request: GenerationRequest, *, now_s: float) -> LiveSequence:
        """Raises RequestError when the request can't run on this engine."""
        self._check_prompt(request)
        prompt = request.prompt_token_ids
        max_new_tokens = min(
            request.sampling.max_tokens, self._info.max_context_tokens - len(prompt)
        )
        drafter_name, num_speculative_tokens = self._drafting(request.speculative)
        return LiveSequence(
            sequence_id=SequenceId(next(self._sequence_ids)),
            request=request,
            answer=Answer(
                request.sampling,
                self._text_tools,
                eos_token_ids=self._info.eos_token_ids,
                max_new_tokens=max_new_tokens,
            ),
            outbox=Outbox(request.request_id),
            drafter_name=drafter_name,
            num_speculative_tokens=num_speculative_tokens,
            max_new_tokens=max_new_tokens,
            arrived_s=now_s,
            last_growth_s=now_s,
            token_ids=list(prompt),
        )

    def _check_prompt(self, request: GenerationRequest) -> None:
        prompt, info = request.prompt_token_ids, self._info
        if not prompt:
            raise RequestError(
                "prompt has 0 tokens: it must hold at least one. Send some text.", param="prompt"
            )
        if not all(0 <= token_id < info.vocab_size for token_id in prompt):
            raise RequestError(
                f"prompt holds a token id outside 0..{info.vocab_size - 1}. "
                f"Use the tokenizer of {info.model_name}.",
                param="prompt",
            )
        if len(prompt) >= info.max_context_tokens:
            raise ContextOverflowError(
                f"prompt has {len(prompt)} tokens: {info.model_name} takes "
                f"{info.max_context_tokens}, the answer included. Shorten it.",
                param="prompt",
            )

    def _drafting(self, wish: SpeculativeParams) -> tuple[str, int]:
        """Which drafter serves a request, and K: 0 where there is none."""
        name = wish.method or self._config.default_method
        if name not in self.methods:
            raise RequestError(
                f"speculative.method = {name}: this engine has {', '.join(self.methods)}. "
                "Choose one.",
                param="speculative.method",
            )
        if not wish.enabled or name in self._undrafted:
            return NO_SPECULATION, 0
        if wish.num_speculative_tokens is None:
            return name, self._config.num_speculative_tokens
        return name, wish.num_speculative_tokens
