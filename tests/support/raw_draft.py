"""Peers that speak the draft protocol by hand, to say what no peer of ours would say."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import grpc
from support.frames import LIMITS, client_hello

from hetero.draft_protocol import messages as m
from hetero.draft_protocol.limits import METHOD, SERVICE
from hetero.draft_protocol.request_codec import decode_request, encode_request
from hetero.draft_protocol.response_codec import decode_response, encode_response


class RawClient:
    """One stream to a draft server."""

    def __init__(self, call) -> None:
        self.call = call

    async def send(self, frame) -> None:
        """A frame, or bytes as they are."""
        await self.call.write(frame if isinstance(frame, bytes) else encode_request(frame))

    async def read(self, kind, *, timeout_s: float = 5.0):
        """The next frame of a kind, passing over heartbeats; None when the stream is over."""
        while True:
            data = await asyncio.wait_for(self.call.read(), timeout_s)
            if data is grpc.aio.EOF:
                return None
            frame = decode_response(data, LIMITS)
            if isinstance(frame, kind):
                return frame
            assert isinstance(frame, m.Heartbeat), frame

    async def hello(self, card_info, **overrides) -> m.ServerHello:
        """Shake hands as a target that fits the card."""
        fields = dict(
            tokenizer_sha256=card_info.target_tokenizer_sha256, vocab_size=card_info.vocab_size
        )
        await self.send(client_hello(**{**fields, **overrides}))
        return await self.read((m.ServerHello, m.Goaway))


@contextlib.asynccontextmanager
async def raw_client(address: str) -> AsyncIterator[RawClient]:
    channel = grpc.aio.insecure_channel(address)
    call = channel.stream_stream(METHOD)()
    try:
        yield RawClient(call)
    finally:
        call.cancel()
        await channel.close()


class RawServerStream:
    """What a scripted server sees of one stream."""

    def __init__(self, requests) -> None:
        self._requests = requests

    async def read(self, kind=m.Round):
        """The next frame of a kind; None when the client is gone."""
        async for data in self._requests:
            frame = decode_request(data, LIMITS)
            if isinstance(frame, kind):
                return frame
        return None


Script = Callable[[RawServerStream], AsyncIterator[object]]


@contextlib.asynccontextmanager
async def raw_server(script: Script) -> AsyncIterator[str]:
    """A server that answers each stream with ``script``'s frames or bytes; yields its address."""

    async def handle(requests, context):
        async for frame in script(RawServerStream(requests)):
            yield frame if isinstance(frame, bytes) else encode_response(frame)

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(handle)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {METHOD.rpartition("/")[2]: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(grace=None)


async def eventually(condition: Callable[[], object], *, timeout_s: float = 10.0) -> None:
    """Wait until ``condition`` holds."""
    for _ in range(int(timeout_s / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")
