"""From what a user sent to SamplingParams and SpeculativeParams, or one clear RequestError.

Every front door (command line, HTTP, gRPC) comes through here, so that all refuse the same things
in the same words. None means "not given".
"""

import math
import secrets
from collections.abc import Collection
from dataclasses import dataclass, replace

from hetero.core.errors import ContextOverflowError, RequestError
from hetero.core.types import (
    MAX_SPECULATIVE_TOKENS,
    SamplingParams,
    SpeculativeParams,
    VerifierInfo,
)

MAX_TEMPERATURE = 2.0
GREEDY_BELOW_TEMPERATURE = 1e-5
"""A positive temperature below this is taken as 0: dividing by it would overflow."""

MAX_SEED = 2**64 - 1
MAX_CHOICE_INDEX = 2**32 - 1
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 1024
MAX_STOP_TOKEN_IDS = 64

MAX_SHOWN_CHARS = 40
MAX_SHOWN_BITS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingWishes:
    """Sampling parameters as they came. Defaults: greedy, everything off, a drawn seed.

    ``max_tokens`` not given means: up to the end of the context, or ``default_max_tokens`` where
    the front door has such a limit.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    choice_index: int = 0
    max_tokens: int | None = None
    default_max_tokens: int | None = None
    min_tokens: int | None = None
    stop: str | Collection[str] | None = None
    stop_token_ids: Collection[int] | None = None
    ignore_eos: bool | None = None


def shown(value: object) -> str:
    """A caller's value for an error message: of a long one, the beginning."""
    if isinstance(value, int) and value.bit_length() > MAX_SHOWN_BITS:
        return f"an integer of {value.bit_length()} bits"  # Python refuses to write some of them
    text = ascii(value)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."


def draw_seed() -> int:
    """64 random bits, for a request that gave no seed."""
    return secrets.randbits(64)


def resolve_sampling(
    wishes: SamplingWishes, target: VerifierInfo, *, num_prompt_tokens: int
) -> SamplingParams:
    """Check every wish against its range and the target's limits, and fill in defaults.

    ``max_tokens`` beyond the context is allowed: the answer then ends with ``length`` where the
    context does. Raises RequestError naming the parameter, ContextOverflowError for a prompt that
    leaves no room for an answer.
    """
    max_tokens = _max_tokens(wishes, target, num_prompt_tokens)
    return SamplingParams(
        temperature=_temperature(wishes.temperature),
        top_p=_number("top_p", wishes.top_p, default=1.0, low=0.0, high=1.0, open_low=True),
        top_k=_top_k(wishes.top_k),
        min_p=_number("min_p", wishes.min_p, default=0.0, low=0.0, high=1.0),
        seed=draw_seed()
        if wishes.seed is None
        else _integer("seed", wishes.seed, default=0, high=MAX_SEED),
        choice_index=_integer(
            "choice_index", wishes.choice_index, default=0, high=MAX_CHOICE_INDEX
        ),
        max_tokens=max_tokens,
        min_tokens=_integer("min_tokens", wishes.min_tokens, default=0, high=max_tokens),
        stop=_stop_strings(wishes.stop),
        stop_token_ids=_stop_token_ids(wishes.stop_token_ids, target.vocab_size),
        ignore_eos=bool(wishes.ignore_eos),
    )


def resolve_speculative(wishes: SpeculativeParams, methods: Collection[str]) -> SpeculativeParams:
    """Check a request's wish about speculation against what the engine has."""
    if wishes.method is not None and wishes.method not in methods:
        raise RequestError(
            f"speculative.method = {shown(wishes.method)}: this engine has {', '.join(methods)}. "
            "Choose one.",
            param="speculative.method",
        )
    if wishes.num_speculative_tokens is None:
        return wishes
    num_speculative_tokens = _integer(
        "speculative.num_speculative_tokens",
        wishes.num_speculative_tokens,
        default=0,
        high=MAX_SPECULATIVE_TOKENS,
    )
    return replace(wishes, num_speculative_tokens=num_speculative_tokens)


def _max_tokens(wishes: SamplingWishes, target: VerifierInfo, num_prompt_tokens: int) -> int:
    """The true room, never more; it owes nothing to drafts."""
    if num_prompt_tokens < 1:
        raise RequestError(
            "prompt has 0 tokens: it must hold at least one. Send some text.", param="prompt"
        )
    room = target.max_context_tokens - num_prompt_tokens
    if room < 1:
        raise ContextOverflowError(
            f"prompt has {num_prompt_tokens} tokens: {target.model_name} takes "
            f"{target.max_context_tokens}, the answer included. Shorten it.",
            param="prompt",
        )
    if wishes.max_tokens is None:
        return min(room, wishes.default_max_tokens or room)
    return min(room, _integer("max_tokens", wishes.max_tokens, default=0, low=1, high=2**31))


def _temperature(value: float | None) -> float:
    temperature = _number("temperature", value, default=0.0, low=0.0, high=MAX_TEMPERATURE)
    return temperature if temperature >= GREEDY_BELOW_TEMPERATURE else 0.0


def _top_k(value: int | None) -> int:
    """-1 means off, as in vLLM; so does 0."""
    return max(0, _integer("top_k", value, default=0, low=-1, high=2**31))


def _stop_strings(value: str | Collection[str] | None) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else tuple(value or ())
    if len(stops) > MAX_STOP_STRINGS:
        raise RequestError(
            f"stop holds {len(stops)} strings: at most {MAX_STOP_STRINGS}. Leave some out.",
            param="stop",
        )
    for stop in stops:
        if not isinstance(stop, str) or not 1 <= len(stop) <= MAX_STOP_CHARS:
            raise RequestError(
                f"stop: each must be a string of 1..{MAX_STOP_CHARS} characters. "
                "Leave empty ones out, shorten long ones.",
                param="stop",
            )
        if any("\ud800" <= char <= "\udfff" for char in stop):
            raise RequestError(
                f"stop = {shown(stop)}: holds a lone surrogate, which no answer does. "
                "Send valid Unicode.",
                param="stop",
            )
    return stops


def _stop_token_ids(value: Collection[int] | None, vocab_size: int) -> tuple[int, ...]:
    token_ids = tuple(value or ())
    if len(token_ids) > MAX_STOP_TOKEN_IDS:
        raise RequestError(
            f"stop_token_ids holds {len(token_ids)} ids: at most {MAX_STOP_TOKEN_IDS}. "
            "Leave some out.",
            param="stop_token_ids",
        )
    return tuple(
        _integer("stop_token_ids", token_id, default=0, high=vocab_size - 1)
        for token_id in token_ids
    )


def _number(
    name: str,
    value: float | None,
    *,
    default: float,
    low: float,
    high: float,
    open_low: bool = False,
) -> float:
    if value is None:
        return default
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if (
        is_number
        and math.isfinite(value)
        and low <= value <= high
        and (value > low or not open_low)
    ):
        return float(value)
    bounds = f"above {low:g}, at most {high:g}" if open_low else f"{low:g}..{high:g}"
    raise RequestError(
        f"{name} = {shown(value)}: must be a number {bounds}. Change it.", param=name
    )


def _integer(name: str, value: int | None, *, default: int, high: int, low: int = 0) -> int:
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise RequestError(
        f"{name} = {shown(value)}: must be an integer {low}..{high}. Change it.", param=name
    )
