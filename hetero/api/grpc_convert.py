"""Messages of hetero.rpc.inference.v1 to plain types and back. Wire types end here."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from hetero.api.intake import ChatPrompt, Prompt, Wish
from hetero.api.openai_body import UnsupportedParameterError
from hetero.core.errors import RequestError
from hetero.core.figures import acceptance_rate, mean_acceptance_length
from hetero.core.types import Delta, Finish, GenerationRequest, SpeculativeParams
from hetero.core.validation import SamplingWishes, shown
from hetero.rpc.inference.v1 import inference_pb2 as pb

MAX_REQUEST_ID_BYTES = 128
ROLES = ("system", "user", "assistant")

NAMES_ELSEWHERE = {
    5: "frequency_penalty",
    6: "presence_penalty",
    7: "repetition_penalty",
    12: "skip_special_tokens",
    13: "spaces_between_special_tokens",
    16: "json_schema",
    17: "regex",
    18: "grammar",
    22: "logprobs",
    23: "prompt_logprobs",
    25: "include_stop_str_in_output",
    26: "logit_bias",
}
"""SamplingParams fields that the VllmEngine family has at these numbers and we lack."""

FINISH_REASONS = {
    "stop": pb.FINISH_REASON_STOP,
    "length": pb.FINISH_REASON_LENGTH,
    "cancelled": pb.FINISH_REASON_ABORT,
}


def wish_of(message: pb.GenerateRequest, *, request_id: str, deadline_s: float | None) -> Wish:
    """The request in plain types. Raises RequestError naming the field."""
    _refuse_unknown_fields(message, "")
    if len(message.request_id.encode()) > MAX_REQUEST_ID_BYTES:
        raise RequestError(
            f"request_id has more than {MAX_REQUEST_ID_BYTES} bytes. Shorten it.",
            param="request_id",
        )
    return Wish(
        request_id=message.request_id or request_id,
        prompt=_prompt(message),
        sampling=_sampling(message.sampling_params),
        speculative=_speculative(message.speculative),
        num_choices=message.sampling_params.n or None,
        deadline_s=deadline_s,
    )


def _refuse_unknown_fields(message: Message, path: str) -> None:
    """A field this build does not know would otherwise be ignored without a word."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        number = unknown[0].field_number
        names = NAMES_ELSEWHERE if isinstance(message, pb.SamplingParams) else {}
        param = f"{path}{names.get(number, f'field {number}')}"
        raise UnsupportedParameterError(
            f"{param} is not supported by this server. Leave it out.", param=param
        )
    for descriptor, value in message.ListFields():
        if descriptor.type == descriptor.TYPE_MESSAGE:
            children = [value] if isinstance(value, Message) else value
            for child in children:
                _refuse_unknown_fields(child, f"{path}{descriptor.name}.")


def _prompt(message: pb.GenerateRequest) -> Prompt:
    kind = message.WhichOneof("input")
    if kind == "tokenized":
        return list(message.tokenized.input_ids)
    if kind == "text":
        return message.text
    if kind is None:
        raise RequestError("input is not set. Send tokenized, text or chat.", param="input")
    return ChatPrompt([_turn(i, turn) for i, turn in enumerate(_messages(message))])


def _messages(message: pb.GenerateRequest) -> list[pb.ChatMessage]:
    if not message.chat.messages:
        raise RequestError("chat.messages is empty. Send at least one.", param="chat.messages")
    return list(message.chat.messages)


def _turn(index: int, turn: pb.ChatMessage) -> tuple[str, str]:
    if turn.role not in ROLES:
        param = f"chat.messages[{index}].role"
        raise RequestError(
            f"{param} = {shown(turn.role)}: must be one of {', '.join(ROLES)}. Change it.",
            param=param,
        )
    return turn.role, turn.content


def _sampling(params: pb.SamplingParams) -> SamplingWishes:
    """Where the protocol says that 0 means off, 0 is the same as not given."""
    return SamplingWishes(
        temperature=params.temperature if params.HasField("temperature") else None,
        top_p=params.top_p or None,
        top_k=params.top_k,
        min_p=params.min_p,
        seed=params.seed if params.HasField("seed") else None,
        max_tokens=params.max_tokens if params.HasField("max_tokens") else None,
        min_tokens=params.min_tokens,
        stop=list(params.stop),
        stop_token_ids=list(params.stop_token_ids),
        ignore_eos=params.ignore_eos,
    )


def _speculative(params: pb.SpeculativeParams) -> SpeculativeParams:
    wanted = params.num_speculative_tokens if params.HasField("num_speculative_tokens") else None
    return SpeculativeParams(
        enabled=params.enabled if params.HasField("enabled") else True,
        num_speculative_tokens=wanted,
        method=params.method or None,
    )


@dataclass(slots=True)
class ChoiceWriter:
    """Turns the deltas of one choice into messages. Keeps the choice, for its last message."""

    index: int
    request: GenerationRequest
    system_fingerprint: str
    stream: bool
    _text: list[str] = field(default_factory=list)
    _token_ids: list[int] = field(default_factory=list)

    def messages(self, delta: Delta) -> Iterator[pb.GenerateResponse]:
        """A chunk where streaming is wanted and there is news; the whole where it ends."""
        self._text.append(delta.text)
        self._token_ids.extend(delta.token_ids)
        if self.stream and (delta.text or delta.token_ids):
            yield pb.GenerateResponse(
                chunk=pb.GenerateStreamChunk(
                    token_ids=delta.token_ids,
                    prompt_tokens=len(self.request.prompt_token_ids),
                    completion_tokens=len(self._token_ids),
                    index=self.index,
                    text=delta.text,
                )
            )
        if delta.finish is not None and delta.finish.reason in FINISH_REASONS:
            yield pb.GenerateResponse(complete=self._complete(delta.finish))

    def _complete(self, finish: Finish) -> pb.GenerateComplete:
        complete = pb.GenerateComplete(
            output_ids=self._token_ids,
            finish_reason=FINISH_REASONS[finish.reason],
            prompt_tokens=finish.num_prompt_tokens,
            completion_tokens=finish.num_completion_tokens,
            index=self.index,
            spec_accepted_tokens=finish.speculation.num_accepted_draft_tokens,
            spec_draft_tokens=finish.speculation.num_draft_tokens,
            text="".join(self._text),
            seed=self.request.sampling.seed,
            system_fingerprint=self.system_fingerprint,
            speculation=_speculation(finish),
            wall_times=_wall_times(finish),
        )
        if isinstance(finish.matched_stop, str):
            complete.matched_stop_str = finish.matched_stop
        elif finish.matched_stop is not None:
            complete.matched_token_id = finish.matched_stop
        return complete


def _speculation(finish: Finish) -> pb.SpeculationStats:
    spec = finish.speculation
    return pb.SpeculationStats(
        num_spec_steps=spec.num_spec_steps,
        mean_acceptance_length=mean_acceptance_length(spec),
        draft_acceptance_rate=acceptance_rate(spec),
        drafted_per_position=spec.drafted_per_position,
        accepted_per_position=spec.accepted_per_position,
        fallbacks=finish.fallbacks,
    )


def _wall_times(finish: Finish) -> pb.WallTimes:
    latency = finish.latency
    return pb.WallTimes(
        ttft_s=latency.ttft_s,
        total_s=latency.total_s,
        draft_s=latency.draft_s,
        verify_s=latency.verify_s,
    )
