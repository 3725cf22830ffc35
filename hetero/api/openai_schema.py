"""What the OpenAI-compatible endpoints take: types here, ranges in hetero.core.validation.

Every parameter is honoured, or refused by name. One that is set to a value that asks for
nothing (null, an empty list, a penalty of 0) is taken, since honouring it means doing nothing.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "logit_bias": ({},),
    "logprobs": (False,),
    "lora": (),
    "max_tool_calls": (),
    "metadata": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "presence_penalty": (0,),
    "prompt_logprobs": (False,),
    "reasoning_effort": ("none",),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": (),
    "web_search_options": (),
}
"""Known parameters that are not supported -> values of theirs that ask for nothing."""


UNSUPPORTED_IN_MESSAGE = frozenset(
    {"name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio", "annotations"}
)
"""Known parts of a message that are not supported; null is taken, as everywhere."""


def _one_or_many(value: Any) -> Any:
    if not isinstance(value, str | list | None):
        raise ValueError("must be a string or a list of strings")
    return [value] if isinstance(value, str) else value


def _text_parts(value: Any) -> Any:
    """Message content: a string stands for one text part."""
    if not isinstance(value, str | list):
        raise ValueError("must be a string or a list of text parts")
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


def _one_prompt(value: Any) -> Any:
    if not isinstance(value, str | list):
        raise ValueError("must be a string or a list of token ids")
    if isinstance(value, list) and not all(type(token_id) is int for token_id in value):
        raise ValueError("must be one prompt: a string or a list of token ids")
    if not value:
        raise ValueError("must not be empty")
    return value


class _Strict(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class Speculative(_Strict):
    """Our extension: what the caller wants of speculation. It changes the speed only."""

    enabled: bool | None = None
    num_speculative_tokens: int | None = None
    method: str | None = None


class StreamOptions(_Strict):
    """How to stream."""

    include_usage: bool | None = None


class TextPart(_Strict):
    """The one kind of content part that a text model reads."""

    type: Literal["text"]
    text: str


class Message(_Strict):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[list[TextPart], BeforeValidator(_text_parts), Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {k: v for k, v in value.items() if v is not None or k in cls.model_fields}

    def as_turn(self) -> tuple[str, str]:
        """(role, text) for the chat template; ``developer`` is OpenAI's newer word for system."""
        role = "system" if self.role == "developer" else self.role
        return role, "".join(part.text for part in self.content)


class _Generation(_Strict):
    """Parameters that both endpoints have."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: Annotated[list[str] | None, BeforeValidator(_one_or_many)] = None
    stop_token_ids: list[int] | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    speculative: Speculative | None = None


class ChatCompletionRequest(_Generation):
    """Body of POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None


class CompletionRequest(_Generation):
    """Body of POST /v1/completions: one prompt, as text or as token ids."""

    prompt: Annotated[Any, BeforeValidator(_one_prompt)]
