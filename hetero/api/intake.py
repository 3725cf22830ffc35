"""From what a front door read to the engine's requests: tokenise, validate, one per choice."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hetero.api.service import ApiLimits, Backend
from hetero.core.errors import RequestError
from hetero.core.types import GenerationRequest, SpeculativeParams
from hetero.core.validation import (
    SamplingWishes,
    draw_seed,
    resolve_sampling,
    resolve_speculative,
    shown,
)

Turns = Sequence[tuple[str, str]]
"""(role, content) of each chat message."""


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation, to be laid out by the target's chat template."""

    turns: Turns


Prompt = ChatPrompt | str | Sequence[int]
"""A conversation, plain text, or token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One request for ``num_choices`` answers, as it came; None means not given."""

    request_id: str
    prompt: Prompt
    sampling: SamplingWishes = field(default_factory=SamplingWishes)
    speculative: SpeculativeParams = field(default_factory=SpeculativeParams)
    num_choices: int | None = None
    deadline_s: float | None = None  # on the scheduler's monotonic clock


async def requests_of(
    wish: Wish, backend: Backend, limits: ApiLimits
) -> tuple[GenerationRequest, ...]:
    """Validate and tokenise. All choices share prompt and seed and differ in choice_index.

    Raises RequestError naming the parameter.
    """
    num_choices = _check_choices(wish.num_choices, limits)
    prompt_token_ids = await _tokenise(wish.prompt, backend, limits)
    sampling = replace(
        wish.sampling,
        seed=draw_seed() if wish.sampling.seed is None else wish.sampling.seed,
        default_max_tokens=limits.default_max_tokens,
    )
    speculative = resolve_speculative(wish.speculative, backend.methods)
    return tuple(
        GenerationRequest(
            request_id=wish.request_id if num_choices == 1 else f"{wish.request_id}-{index}",
            prompt_token_ids=prompt_token_ids,
            sampling=resolve_sampling(
                replace(sampling, choice_index=index),
                backend.engine.info,
                num_prompt_tokens=len(prompt_token_ids),
            ),
            speculative=speculative,
            deadline_s=wish.deadline_s,
        )
        for index in range(num_choices)
    )


def _check_choices(num_choices: int | None, limits: ApiLimits) -> int:
    wanted = 1 if num_choices is None else num_choices
    if not 1 <= wanted <= limits.max_choices:
        raise RequestError(
            f"n = {shown(wanted)}: must be an integer 1..{limits.max_choices}. Change it.",
            param="n",
        )
    return wanted


async def _tokenise(prompt: Prompt, backend: Backend, limits: ApiLimits) -> tuple[int, ...]:
    tokenizer = backend.tokenizer
    if isinstance(prompt, ChatPrompt):
        if len(prompt.turns) > limits.max_messages:
            raise RequestError(
                f"messages has {len(prompt.turns)} entries: at most {limits.max_messages}. "
                "Leave some out.",
                param="messages",
            )
        # A long prompt takes the tokenizer a while; other answers stream on meanwhile.
        return tuple(await asyncio.to_thread(tokenizer.apply_chat_template, prompt.turns))
    if isinstance(prompt, str):
        return tuple(await asyncio.to_thread(tokenizer.encode, prompt))
    return _check_ids(prompt, backend.engine.info.vocab_size)


def _check_ids(token_ids: Sequence[int], vocab_size: int) -> tuple[int, ...]:
    for position, token_id in enumerate(token_ids):
        if not 0 <= token_id < vocab_size:
            raise RequestError(
                f"prompt[{position}] = {shown(token_id)}: the target's vocabulary has ids "
                f"0..{vocab_size - 1}. Use its tokenizer.",
                param="prompt",
            )
    return tuple(token_ids)
