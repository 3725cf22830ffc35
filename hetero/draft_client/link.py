"""One stream to the draft server, from hello to loss."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import grpc

import hetero
from hetero.core.errors import DraftUnavailableError, PairError, ProtocolError, VersionError
from hetero.core.ports import MonotonicClock
from hetero.core.types import MAX_SPECULATIVE_TOKENS
from hetero.draft_client.config import DraftClientConfig, TargetIdentity
from hetero.draft_client.counters import ClientCounters
from hetero.draft_protocol.limits import (
    CLIENT_ONLY_OPTIONS,
    HEARTBEAT_INTERVAL_S,
    METHOD,
    PROTOCOL_VERSION,
    FrameLimits,
    grpc_options,
)
from hetero.draft_protocol.liveness import Pulse
from hetero.draft_protocol.messages import (
    ClientHello,
    Goaway,
    GoawayReason,
    Heartbeat,
    RequestFrame,
    ResponseFrame,
    RoundReply,
    ServerHello,
)
from hetero.draft_protocol.request_codec import encode_request
from hetero.draft_protocol.response_codec import decode_response

Call: TypeAlias = "grpc.aio.StreamStreamCall[bytes, bytes]"

MAX_MALFORMED_FRAMES = 16
GOODBYE_S = 0.2


class Link:
    """An established stream. Make one with ``open_link``; it is of no use once lost."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        call: Call,
        server: ServerHello,
        *,
        limits: FrameLimits,
        pulse: Pulse,
        counters: ClientCounters,
    ) -> None:
        self.server = server
        self.serving = server.serving
        self.round_credits = server.round_credits
        self._channel = channel
        self._call = call
        self._limits = limits
        self._pulse = pulse
        self._counters = counters
        self._outbox: asyncio.Queue[RequestFrame] = asyncio.Queue()
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._num_malformed = 0

    def send(self, frame: RequestFrame) -> None:
        """Queue a frame; frames of a lost link go nowhere."""
        self._outbox.put_nowait(frame)

    async def run(self, on_reply: Callable[[RoundReply], None]) -> str:
        """Carry frames until the stream is lost; returns why. Cancel to end it in good order."""
        loop = asyncio.get_running_loop()
        jobs = [self._read(on_reply), self._write(), self._beat()]
        tasks = [loop.create_task(job) for job in jobs]
        for task in tasks:
            task.add_done_callback(self._task_ended)
        try:
            return await asyncio.shield(self._lost)
        except asyncio.CancelledError:
            await self._say_goodbye()
            raise
        finally:
            # Only now: cancelling a pending read or write cancels the whole call.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._call.cancel()
            await self._channel.close()

    def lose(self, cause: str) -> None:
        """Declare the stream lost."""
        if not self._lost.done():
            self._lost.set_result(cause)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None or isinstance(error, grpc.aio.AioRpcError | asyncio.InvalidStateError):
            self.lose("disconnected")
        elif not self._lost.done():
            self._lost.set_exception(error)

    async def _say_goodbye(self) -> None:
        """Let the server end the stream, so that it knows a farewell from a crash."""
        self.send(Goaway(GoawayReason.BYE))
        await asyncio.wait({self._lost}, timeout=GOODBYE_S)

    async def _write(self) -> None:
        while True:
            await self._call.write(encode_request(await self._outbox.get()))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            if self._pulse.tick():
                self.lose("silence")
                return
            if self._outbox.empty():
                self.send(self._pulse.beat())

    async def _read(self, on_reply: Callable[[RoundReply], None]) -> None:
        while (data := await self._call.read()) is not grpc.aio.EOF:
            assert isinstance(data, bytes)
            self._pulse.heard()
            try:
                self._take(decode_response(data, self._limits), on_reply)
            except ProtocolError:
                self._counters.frames_malformed += 1
                self._num_malformed += 1
                if self._num_malformed >= MAX_MALFORMED_FRAMES:
                    self.lose("malformed")

    def _take(self, frame: ResponseFrame, on_reply: Callable[[RoundReply], None]) -> None:
        if isinstance(frame, RoundReply):
            granted = self.round_credits + frame.round_credits
            self.round_credits = min(granted, self.server.round_credits)
            on_reply(frame)
        elif isinstance(frame, Heartbeat):
            self._pulse.received(frame)
            self._counters.rtt_s = self._pulse.rtt_s
            self.serving = frame.serving
        elif isinstance(frame, Goaway):
            self.lose(frame.reason.name.lower())
        elif isinstance(frame, ServerHello):
            raise ProtocolError("a second hello")
        else:
            self._counters.frames_unknown += 1


async def open_link(
    address: str,
    identity: TargetIdentity,
    config: DraftClientConfig,
    *,
    client_id: int,
    counters: ClientCounters,
    clock: MonotonicClock,
) -> Link:
    """Connect and shake hands.

    Raises VersionError or PairError when the server will never do, DraftUnavailableError or
    ProtocolError when it may do later.
    """
    limits = FrameLimits(
        vocab_size=identity.vocab_size,
        max_context_tokens=1 << 31,
        max_draft_tokens=MAX_SPECULATIVE_TOKENS,
        max_nodes=MAX_SPECULATIVE_TOKENS,
        max_depth=MAX_SPECULATIVE_TOKENS,
        max_frame_bytes=config.max_frame_bytes,
    )
    # A new channel each time: a used one would sit out gRPC's own back-off first.
    options = grpc_options(config.max_frame_bytes, silence_s=config.heartbeat_timeout_s)
    channel = grpc.aio.insecure_channel(address, options=(*options, *CLIENT_ONLY_OPTIONS))
    try:
        call: Call = channel.stream_stream(METHOD)()
        hello = _client_hello(identity, config, client_id)
        handshake = _shake_hands(call, hello, limits, address)
        server = await asyncio.wait_for(handshake, config.connect_timeout_s)
        _check_fit(server, identity, address)
    except (grpc.aio.AioRpcError, asyncio.TimeoutError) as error:
        await channel.close()
        raise DraftUnavailableError(_unreachable(address, error, config)) from error
    except BaseException:
        await channel.close()
        raise
    pulse = Pulse(clock, interval_s=HEARTBEAT_INTERVAL_S, timeout_s=config.heartbeat_timeout_s)
    return Link(channel, call, server, limits=limits, pulse=pulse, counters=counters)


def _client_hello(
    identity: TargetIdentity, config: DraftClientConfig, client_id: int
) -> ClientHello:
    return ClientHello(
        min_protocol_version=PROTOCOL_VERSION,
        max_protocol_version=PROTOCOL_VERSION,
        build=hetero.__version__,
        client_id=client_id,
        target_model=identity.model_name,
        tokenizer_sha256=identity.tokenizer_sha256,
        vocab_size=identity.vocab_size,
        max_frame_bytes=config.max_frame_bytes,
        heartbeat_timeout_us=round(config.heartbeat_timeout_s * 1e6),
    )


async def _shake_hands(
    call: Call, hello: ClientHello, limits: FrameLimits, address: str
) -> ServerHello:
    await call.write(encode_request(hello))
    data = await call.read()
    if not isinstance(data, bytes):
        raise DraftUnavailableError(f"draft server {address}: it closed the stream unasked.")
    frame = decode_response(data, limits)
    if isinstance(frame, Goaway):
        raise _refusal(frame, address)
    if not isinstance(frame, ServerHello):
        raise ProtocolError(f"draft server {address}: its first frame is no hello.")
    return frame


def _refusal(goaway: Goaway, address: str) -> Exception:
    if goaway.reason == GoawayReason.VERSION:
        return VersionError(
            f"draft server {address} speaks protocol versions {goaway.min_protocol_version}.."
            f"{goaway.max_protocol_version}, this build {PROTOCOL_VERSION}: install matching "
            "builds of hetero on both hosts."
        )
    if goaway.reason == GoawayReason.PAIR:
        return PairError(_pair_message(address, goaway.detail))
    reason = goaway.reason.name.lower()
    return DraftUnavailableError(f"draft server {address} refuses: {reason}: {goaway.detail}")


def _check_fit(server: ServerHello, identity: TargetIdentity, address: str) -> None:
    if server.protocol_version != PROTOCOL_VERSION:
        raise VersionError(
            f"draft server {address} chose protocol version {server.protocol_version}, this build "
            f"speaks {PROTOCOL_VERSION}: install matching builds of hetero on both hosts."
        )
    card = server.card
    if card.target_tokenizer_sha256 != identity.tokenizer_sha256:
        raise PairError(
            _pair_message(
                address,
                f"the draft was built for tokenizer {card.target_tokenizer_sha256[:12]}..., the "
                f"target has {identity.tokenizer_sha256[:12]}...",
            )
        )
    if card.vocab_size != identity.vocab_size:
        detail = f"the draft knows {card.vocab_size} token ids, the target {identity.vocab_size}"
        raise PairError(_pair_message(address, detail))


def _pair_message(address: str, detail: str) -> str:
    return (
        f"draft server {address}: {detail}. Serve a draft built for this target: "
        "hetero draft build."
    )


def _unreachable(address: str, error: Exception, config: DraftClientConfig) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        why = f"{error.code().name}: {error.details()}"
    else:
        why = f"no answer in {config.connect_timeout_s} s"
    return f"draft server {address}: {why}. Is `hetero draft serve` running there?"
