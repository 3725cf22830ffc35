"""From command-line values to a GenerationRequest, and from what came back to JSON."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetero.core import figures
from hetero.core.types import (
    CardInfo,
    CardUsage,
    Delta,
    Finish,
    GenerationRequest,
    SpeculationStats,
    SpeculativeParams,
)
from hetero.core.validation import SamplingWishes, resolve_sampling, resolve_speculative

if TYPE_CHECKING:
    from hetero.services.engine_host import EngineHost


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer, whole."""

    request: GenerationRequest
    text: str
    token_ids: tuple[int, ...]
    finish: Finish


def encode_prompt(host: "EngineHost", prompt: str, *, raw: bool) -> tuple[int, ...]:
    """Ids of the prompt, as a user's message to the assistant unless ``raw``."""
    if raw:
        return tuple(host.tokenizer.encode(prompt))
    return tuple(host.tokenizer.apply_chat_template([("user", prompt)]))


def make_request(
    host: "EngineHost",
    prompt_token_ids: tuple[int, ...],
    wishes: SamplingWishes,
    speculative: SpeculativeParams,
    *,
    request_id: str = "cli",
) -> GenerationRequest:
    """Check everything against what this engine is."""
    return GenerationRequest(
        request_id=request_id,
        prompt_token_ids=prompt_token_ids,
        sampling=resolve_sampling(
            wishes, host.engine.info, num_prompt_tokens=len(prompt_token_ids)
        ),
        speculative=resolve_speculative(speculative, host.engine.methods),
    )


async def run_request(
    deltas: AsyncIterator[Delta], request: GenerationRequest, on_text: Callable[[str], None]
) -> Outcome:
    """Read one answer to its end, telling its text as it comes."""
    texts: list[str] = []
    token_ids: list[int] = []
    finish = None
    async for delta in deltas:
        texts.append(delta.text)
        token_ids += delta.token_ids
        on_text(delta.text)
        finish = delta.finish
    assert finish is not None, "an answer without an end"
    return Outcome(request, "".join(texts), tuple(token_ids), finish)


def outcome_json(outcome: Outcome, *, card: CardInfo | None, num_drafts: int) -> dict[str, Any]:
    """The fields of ``hetero generate --json``."""
    finish = outcome.finish
    return {
        "text": outcome.text,
        "token_ids": list(outcome.token_ids),
        "finish_reason": finish.reason,
        "matched_stop": finish.matched_stop,
        "error": finish.error,
        "seed": outcome.request.sampling.seed,
        "usage": {
            "prompt_tokens": finish.num_prompt_tokens,
            "completion_tokens": finish.num_completion_tokens,
        },
        "metrics": {
            "speculative_decoding": speculation_json(finish.speculation, num_drafts),
            "latency": {
                "ttft_s": finish.latency.ttft_s,
                "total_s": finish.latency.total_s,
                "draft_s": finish.latency.draft_s,
                "verify_s": finish.latency.verify_s,
            },
            "card": card_json(card, finish.card),
            "fallbacks": dict(finish.fallbacks),
        },
    }


def speculation_json(stats: SpeculationStats, num_drafts: int) -> dict[str, Any]:
    """Counters and their ratios; null where nothing was drafted. ``num_drafts``: K."""
    return {
        "mean_acceptance_length": figures.mean_acceptance_length(stats),
        "draft_acceptance_rate": figures.acceptance_rate(stats),
        "num_spec_steps": stats.num_spec_steps,
        "num_draft_tokens": stats.num_draft_tokens,
        "num_accepted_draft_tokens": stats.num_accepted_draft_tokens,
        "acceptance_per_position": figures.acceptance_per_position(stats, num_drafts),
    }


def card_json(card: CardInfo | None, usage: CardUsage) -> dict[str, Any]:
    """The card, its virtual time, and its host's apart; all null where no card drafts."""
    if card is None:
        names = ("simulated", "device", "backend", "cycles", "modelled_s", "host_s")
        return dict.fromkeys(names)
    return {
        "simulated": card.simulated,
        "device": card.device,
        "backend": card.backend,
        "cycles": usage.cycles,
        "modelled_s": usage.modelled_s,
        "host_s": usage.host_s,
    }
