"""What request and response codec have in common: heartbeat, goaway, features, checks."""

import math
from collections.abc import Callable, Iterable, Sized
from enum import IntEnum
from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError

from hetero.core.errors import ProtocolError
from hetero.draft_protocol.limits import MAX_DETAIL_BYTES
from hetero.draft_protocol.messages import (
    ErrorCode,
    Feature,
    Goaway,
    GoawayReason,
    Heartbeat,
    SequenceError,
)
from hetero.rpc.draft.v1 import draft_pb2 as pb

Frame = TypeVar("Frame", pb.DraftRequest, pb.DraftResponse)
Code = TypeVar("Code", bound=IntEnum)
Decoded = TypeVar("Decoded")


class HasSequenceId(Protocol):
    """A wire message about one sequence."""

    @property
    def sequence_id(self) -> int:
        """Unique among the client's open sequences."""
        ...


Item = TypeVar("Item", bound=HasSequenceId)


def parse(kind: type[Frame], data: bytes, max_frame_bytes: int) -> Frame:
    """Bytes to a protobuf message, bounded."""
    if len(data) > max_frame_bytes:
        raise ProtocolError(f"frame of {len(data)} bytes, the limit is {max_frame_bytes}")
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ProtocolError(f"frame of {len(data)} bytes is not a {kind.__name__}") from error


def decode_each(
    items: Iterable[Item], decode: Callable[[Item], Decoded], malformed: list[SequenceError]
) -> tuple[Decoded, ...]:
    """Decode what can be decoded; a bad item costs its own sequence only."""
    decoded = []
    for item in items:
        try:
            decoded.append(decode(item))
        except ProtocolError as error:
            malformed.append(SequenceError(item.sequence_id, ErrorCode.INVALID, str(error)))
    return tuple(decoded)


def expect(condition: bool, message: str) -> None:
    """Raise ProtocolError unless ``condition``."""
    if not condition:
        raise ProtocolError(message)


def expect_at_most(items: Sized, limit: int, what: str) -> None:
    """Bound a list."""
    expect(len(items) <= limit, f"{what}: {len(items)} entries, the limit is {limit}")


def expect_text(text: str, max_bytes: int, what: str) -> str:
    """Bound a string."""
    size = len(text.encode())
    expect(size <= max_bytes, f"{what}: {size} bytes, the limit is {max_bytes}")
    return text


def expect_sha256(text: str, what: str) -> str:
    """64 lower-case hexadecimal digits."""
    good = len(text) == 64 and all(c in "0123456789abcdef" for c in text)
    expect(good, f"{what} is not a SHA-256 in 64 hexadecimal digits")
    return text


def expect_fraction(value: float, what: str) -> float:
    """A number in 0..1."""
    expect(math.isfinite(value) and 0.0 <= value <= 1.0, f"{what} = {value} is not in 0..1")
    return value


def known(kind: type[Code], number: int) -> Code:
    """Enum value; numbers from the future become 0."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def clip(text: str) -> str:
    """Cut to what a detail field may hold."""
    return text.encode()[:MAX_DETAIL_BYTES].decode(errors="ignore")


def encode_features(features: Iterable[Feature]) -> list["pb.Feature.ValueType"]:
    """Sorted, so that equal hellos are equal bytes."""
    return [pb.Feature.ValueType(int(f)) for f in sorted(features)]


def decode_features(numbers: Iterable[int]) -> frozenset[Feature]:
    """Features this build has not heard of are no features."""
    names = {int(f) for f in Feature}
    return frozenset(Feature(n) for n in numbers if n in names)


def encode_heartbeat(beat: Heartbeat) -> pb.Heartbeat:
    """To the wire."""
    return pb.Heartbeat(
        sent_us=beat.sent_us,
        echo_us=beat.echo_us,
        echo_delay_us=beat.echo_delay_us,
        serving=beat.serving,
    )


def decode_heartbeat(beat: pb.Heartbeat) -> Heartbeat:
    """From the wire."""
    return Heartbeat(beat.sent_us, beat.echo_us, beat.echo_delay_us, beat.serving)


def encode_goaway(goaway: Goaway) -> pb.Goaway:
    """To the wire."""
    return pb.Goaway(
        reason=pb.GoawayReason.ValueType(int(goaway.reason)),
        detail=clip(goaway.detail),
        min_protocol_version=goaway.min_protocol_version,
        max_protocol_version=goaway.max_protocol_version,
    )


def decode_goaway(goaway: pb.Goaway) -> Goaway:
    """From the wire."""
    return Goaway(
        known(GoawayReason, goaway.reason),
        clip(goaway.detail),
        goaway.min_protocol_version,
        goaway.max_protocol_version,
    )
