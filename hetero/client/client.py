"""A Python caller's way to the inference service: gRPC outside, plain types inside."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, cast

import grpc

from hetero.core.errors import (
    CapacityError,
    ConfigError,
    HeteroError,
    NotReadyError,
    RequestCancelledError,
    RequestDeadlineError,
    RequestError,
)
from hetero.core.types import SpeculativeParams
from hetero.core.validation import SamplingWishes
from hetero.rpc.inference.v1 import inference_pb2 as pb
from hetero.rpc.inference.v1.inference_pb2_grpc import InferenceServiceStub

if TYPE_CHECKING:
    from hetero.rpc.inference.v1.inference_pb2_grpc import InferenceServiceAsyncStub

FINISH_REASONS = {
    pb.FINISH_REASON_STOP: "stop",
    pb.FINISH_REASON_LENGTH: "length",
    pb.FINISH_REASON_ABORT: "cancelled",
}
ERRORS: dict[grpc.StatusCode, type[HeteroError]] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: CapacityError,
    grpc.StatusCode.UNAVAILABLE: NotReadyError,
    grpc.StatusCode.CANCELLED: RequestCancelledError,
    grpc.StatusCode.DEADLINE_EXCEEDED: RequestDeadlineError,
}
"""Statuses -> what they raise here; those of a wrong request are RequestError."""

REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What to continue: exactly one of ``messages`` (role, content), ``text``, ``token_ids``."""

    messages: Sequence[tuple[str, str]] = ()
    text: str = ""
    token_ids: Sequence[int] = ()

    def __post_init__(self) -> None:
        if sum(map(bool, (self.messages, self.text, self.token_ids))) != 1:
            raise ConfigError("a prompt holds messages, text or token_ids: give exactly one.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One whole answer. Ratios are None where nothing was drafted."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    num_prompt_tokens: int
    num_completion_tokens: int
    seed: int
    system_fingerprint: str
    num_draft_tokens: int
    num_accepted_draft_tokens: int
    mean_acceptance_length: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request's parameters; the defaults are the server's."""

    sampling: SamplingWishes = field(default_factory=SamplingWishes)
    speculative: SpeculativeParams = field(default_factory=SpeculativeParams)
    timeout_s: float | None = None


class InferenceClient:
    """One connection to a service at HOST:PORT. Use as ``async with``; one event loop.

    Errors of the service are raised as HeteroError classes: RequestError names the parameter.
    """

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._stub = cast("InferenceServiceAsyncStub", InferenceServiceStub(self._channel))

    async def __aenter__(self) -> "InferenceClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection and what runs on it. Idempotent."""
        await self._channel.close()

    async def generate(self, prompt: Prompt, asked: Asked | None = None) -> Answer:
        """The whole answer at once."""
        async for message in self._call(prompt, asked or Asked(), stream=False):
            return _answer(message.complete)
        raise HeteroError("the service ended the call without an answer.")

    async def stream(
        self, prompt: Prompt, asked: Asked | None = None
    ) -> AsyncIterator[str | Answer]:
        """Text as it comes, then the whole Answer. Closing the iterator ends the generation."""
        async for message in self._call(prompt, asked or Asked(), stream=True):
            if message.HasField("complete"):
                yield _answer(message.complete)
            elif message.chunk.text:
                yield message.chunk.text

    async def _call(
        self, prompt: Prompt, asked: Asked, *, stream: bool
    ) -> AsyncIterator[pb.GenerateResponse]:
        call = self._stub.Generate(_request(prompt, asked, stream), timeout=asked.timeout_s)
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise _as_hetero_error(error) from error
        finally:
            call.cancel()  # does nothing to a call that has ended


def _request(prompt: Prompt, asked: Asked, stream: bool) -> pb.GenerateRequest:
    request = pb.GenerateRequest(
        stream=stream,
        sampling_params=_sampling(asked.sampling),
        speculative=pb.SpeculativeParams(
            enabled=asked.speculative.enabled,
            num_speculative_tokens=asked.speculative.num_speculative_tokens,
            method=asked.speculative.method or "",
        ),
    )
    if prompt.messages:
        turns = [pb.ChatMessage(role=role, content=content) for role, content in prompt.messages]
        request.chat.messages.extend(turns)
    elif prompt.text:
        request.text = prompt.text
    else:
        request.tokenized.input_ids.extend(prompt.token_ids)
    return request


def _sampling(wishes: SamplingWishes) -> pb.SamplingParams:
    if wishes.choice_index or wishes.default_max_tokens is not None:
        raise ConfigError("choice_index and default_max_tokens are the server's. Leave them out.")
    if wishes.top_p == 0:  # on the wire this would mean off
        raise RequestError("top_p = 0: must be above 0. Change it.", param="top_p")
    stop = (wishes.stop,) if isinstance(wishes.stop, str) else wishes.stop
    return pb.SamplingParams(
        temperature=wishes.temperature,
        top_p=wishes.top_p or 0.0,
        top_k=max(0, wishes.top_k or 0),
        min_p=wishes.min_p or 0.0,
        max_tokens=wishes.max_tokens,
        min_tokens=wishes.min_tokens or 0,
        stop=stop or (),
        stop_token_ids=wishes.stop_token_ids or (),
        ignore_eos=bool(wishes.ignore_eos),
        seed=wishes.seed,
    )


def _answer(complete: pb.GenerateComplete) -> Answer:
    spec = complete.speculation
    drafted = spec.HasField("mean_acceptance_length")
    return Answer(
        text=complete.text,
        token_ids=tuple(complete.output_ids),
        finish_reason=FINISH_REASONS.get(complete.finish_reason, "error"),
        num_prompt_tokens=complete.prompt_tokens,
        num_completion_tokens=complete.completion_tokens,
        seed=complete.seed,
        system_fingerprint=complete.system_fingerprint,
        num_draft_tokens=complete.spec_draft_tokens,
        num_accepted_draft_tokens=complete.spec_accepted_tokens,
        mean_acceptance_length=spec.mean_acceptance_length if drafted else None,
    )


def _as_hetero_error(error: grpc.aio.AioRpcError) -> HeteroError:
    details = error.details() or error.code().name
    if error.code() in REFUSED:
        metadata = error.trailing_metadata() or ()
        param = next((str(value) for key, value in metadata if key == "hetero-param"), None)
        return RequestError(details, param=param)
    return ERRORS.get(error.code(), HeteroError)(details)
