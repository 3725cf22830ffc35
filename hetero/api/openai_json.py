"""Bodies of answers and errors, as OpenAI's clients read them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hetero.api.answer_stats import speculation_json
from hetero.api.openai_body import UnknownParameterError, UnsupportedParameterError
from hetero.api.service import ModelNotServedError
from hetero.core.errors import (
    CapacityError,
    ContextOverflowError,
    HeteroError,
    NotReadyError,
    RequestDeadlineError,
    RequestError,
)
from hetero.core.figures import add_up
from hetero.core.types import Finish

Kind = Literal["chat", "text"]

ERROR_CODES: tuple[tuple[type[HeteroError], str], ...] = (
    (ModelNotServedError, "model_not_found"),
    (UnsupportedParameterError, "unsupported_parameter"),
    (UnknownParameterError, "unknown_parameter"),
    (ContextOverflowError, "context_length_exceeded"),
    (RequestError, "invalid_value"),
    (CapacityError, "server_overloaded"),
    (NotReadyError, "server_not_ready"),
    (RequestDeadlineError, "timeout"),
)
"""Error classes -> ``error.code``; the first that fits. Others have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """What every body and chunk of one answer repeats."""

    kind: Kind
    id: str
    created_s: int
    model: str
    system_fingerprint: str
    seed: int
    num_spec_tokens: int

    def body(self, *, chunk: bool, **rest: Any) -> dict[str, Any]:
        """The object's fields around ``choices`` and the like."""
        whole = "chat.completion" if self.kind == "chat" else "text_completion"
        return {
            "id": self.id,
            "object": f"{whole}.chunk" if chunk and self.kind == "chat" else whole,
            "created": self.created_s,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
            "seed": self.seed,
            **rest,
        }


def completion_json(
    head: AnswerHead, texts: Sequence[str], finishes: Sequence[Finish]
) -> dict[str, Any]:
    """A whole answer: one choice per text."""
    choices = [
        _choice(head.kind, index, text, finish)
        for index, (text, finish) in enumerate(zip(texts, finishes, strict=True))
    ]
    return head.body(chunk=False, choices=choices, **_totals(head, finishes))


def chunk_json(
    head: AnswerHead, index: int, text: str, finish: Finish | None = None
) -> dict[str, Any]:
    """One event of a stream: text, the end of a choice, or both."""
    choice: dict[str, Any] = {"index": index, "logprobs": None}
    if head.kind == "chat":
        choice["delta"] = {"content": text} if text else {}
    else:
        choice["text"] = text
    return head.body(chunk=True, choices=[{**choice, **_ending(finish)}])


def role_chunk_json(head: AnswerHead, index: int) -> dict[str, Any]:
    """The event that opens a choice of a chat stream."""
    delta = {"role": "assistant", "content": ""}
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
    return head.body(chunk=True, choices=[choice])


def usage_chunk_json(head: AnswerHead, finishes: Sequence[Finish]) -> dict[str, Any]:
    """The event that ends a stream for those who asked for usage."""
    return head.body(chunk=True, choices=[], **_totals(head, finishes))


def error_json(error: HeteroError) -> dict[str, Any]:
    """OpenAI's error object."""
    code = next((code for kind, code in ERROR_CODES if isinstance(error, kind)), None)
    return {
        "error": {
            "message": str(error),
            "type": "invalid_request_error" if error.http_status < 500 else "server_error",
            "param": getattr(error, "param", None),
            "code": code,
        }
    }


def _choice(kind: Kind, index: int, text: str, finish: Finish) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": index, "logprobs": None}
    if kind == "chat":
        choice["message"] = {"role": "assistant", "content": text, "refusal": None}
    else:
        choice["text"] = text
    return {**choice, **_ending(finish)}


def _ending(finish: Finish | None) -> dict[str, Any]:
    if finish is None:
        return {"finish_reason": None}
    # stop_reason is vLLM's name for the stop string or stop id that ended the answer.
    return {"finish_reason": finish.reason, "stop_reason": finish.matched_stop}


def _totals(head: AnswerHead, finishes: Sequence[Finish]) -> dict[str, Any]:
    return {"usage": _usage(finishes), "metrics": _metrics(head, finishes)}


def _usage(finishes: Sequence[Finish]) -> dict[str, Any]:
    """The prompt counts once, the answers add up."""
    num_prompt_tokens = finishes[0].num_prompt_tokens
    num_completion_tokens = sum(finish.num_completion_tokens for finish in finishes)
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_completion_tokens,
        "total_tokens": num_prompt_tokens + num_completion_tokens,
    }


def _metrics(head: AnswerHead, finishes: Sequence[Finish]) -> dict[str, Any]:
    """Speculation of all choices together; latencies of the slowest."""
    fallbacks: Counter[str] = Counter()
    for finish in finishes:
        fallbacks.update(finish.fallbacks)
    slowest = max((finish.latency for finish in finishes), key=lambda latency: latency.total_s)
    return {
        "speculative_decoding": speculation_json(
            add_up(finish.speculation for finish in finishes), head.num_spec_tokens
        ),
        "latency": {
            "ttft_s": slowest.ttft_s,
            "total_s": slowest.total_s,
            "draft_s": slowest.draft_s,
            "verify_s": slowest.verify_s,
        },
        "fallbacks": dict(fallbacks),
    }
