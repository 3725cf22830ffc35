"""The server's half of the protocol: streams, sequences, asks. Knows neither gRPC nor a card."""

import itertools
import logging
from collections.abc import Callable
from functools import partial

import hetero
from hetero.core.errors import CapacityError, ProtocolError
from hetero.core.ports import CardDriver, MonotonicClock
from hetero.draft_protocol.arrays import prefix_hash
from hetero.draft_protocol.limits import HEARTBEAT_INTERVAL_S, PROTOCOL_VERSION, FrameLimits
from hetero.draft_protocol.liveness import Pulse
from hetero.draft_protocol.messages import (
    Ask,
    ClientHello,
    Commit,
    ErrorCode,
    Goaway,
    GoawayReason,
    Heartbeat,
    Open,
    Round,
    SequenceError,
    ServerHello,
    UnknownFrame,
)
from hetero.draft_protocol.request_codec import decode_request
from hetero.draft_server.card_loop import CardLoop
from hetero.draft_server.config import DraftServerConfig
from hetero.draft_server.counters import ServerCounters
from hetero.draft_server.planner import PendingAsk
from hetero.draft_server.slots import DraftSequence, SlotTable
from hetero.draft_server.streams import ClientStream

logger = logging.getLogger(__name__)

MIN_CLIENT_FRAME_BYTES = 64 << 10
MAX_MALFORMED_FRAMES = 16

_SEQUENCE_ERRORS = dict[int, SequenceError]


class DraftHost:
    """All clients of one card. Every method returns at once; runs on the event loop."""

    def __init__(
        self, driver: CardDriver, config: DraftServerConfig, *, clock: MonotonicClock
    ) -> None:
        self.counters = ServerCounters()
        self.slots = SlotTable(driver.info.num_slots)
        self.card = CardLoop(driver, self.slots, counters=self.counters, clock=clock)
        self._info = driver.info
        self._config = config
        self._clock = clock
        self._streams: dict[int, ClientStream] = {}
        self._numbers = itertools.count(1)
        self.limits = FrameLimits(
            vocab_size=driver.info.vocab_size,
            max_context_tokens=driver.info.max_context_tokens,
            max_draft_tokens=driver.info.max_draft_tokens,
            max_nodes=driver.info.max_draft_tokens,
            max_depth=driver.info.max_draft_tokens,
            max_frame_bytes=config.max_frame_bytes,
        )

    # ---- streams --------------------------------------------------------------------------------

    def connect(self) -> ClientStream:
        """A client has opened a stream and has yet to say hello."""
        pulse = Pulse(
            self._clock,
            interval_s=HEARTBEAT_INTERVAL_S,
            timeout_s=self._config.client_timeout_s,
        )
        stream = ClientStream(next(self._numbers), pulse, round_credits=self._config.round_credits)
        self.counters.streams_opened += 1
        self._streams[stream.number] = stream
        return stream

    def disconnect(self, stream: ClientStream) -> None:
        """The stream is over, however it ended: free its sequences. Idempotent."""
        stream.hang_up()
        if self._streams.pop(stream.number, None) is None:
            return
        self.counters.streams_lost += not stream.said_goodbye
        for sequence in [s for s in self.slots if s.key[0] == stream.number]:
            self.card.planner.remove(sequence.key)
        self.slots.close_stream(stream.number)

    def tick(self) -> None:
        """Send heartbeats and give up on silent clients; call every HEARTBEAT_INTERVAL_S."""
        for stream in list(self._streams.values()):
            if stream.pulse.tick():
                self.counters.streams_silent += 1
                timeout_s = self._config.client_timeout_s
                stream.end(GoawayReason.SILENCE, f"no frame for {timeout_s} s")
                self.disconnect(stream)
            elif stream.hello is not None:
                stream.send_heartbeat(serving=self.card.serving)

    def drain(self) -> None:
        """Tell every client that this server goes away."""
        for stream in list(self._streams.values()):
            stream.said_goodbye = True
            stream.end(GoawayReason.DRAINING, "the draft server is shutting down")
            self.disconnect(stream)

    # ---- frames ---------------------------------------------------------------------------------

    def receive(self, stream: ClientStream, data: bytes) -> None:
        """Take one frame from a client. Never raises for what the bytes say."""
        if stream.closed:
            return
        self.counters.frames_received += 1
        stream.pulse.heard()
        try:
            frame = decode_request(data, self.limits)
            if isinstance(frame, ClientHello):
                self._hello(stream, frame)
            elif stream.hello is None:
                self._refuse(stream, GoawayReason.PROTOCOL, "the first frame must be a hello")
            elif isinstance(frame, Round):
                self._round(stream, frame)
            elif isinstance(frame, Heartbeat):
                stream.pulse.received(frame)
            elif isinstance(frame, Goaway):
                self._goodbye(stream)
            else:
                assert isinstance(frame, UnknownFrame)
                self.counters.frames_unknown += 1
        except ProtocolError as error:
            self._malformed(stream, error)

    def _malformed(self, stream: ClientStream, error: ProtocolError) -> None:
        self.counters.frames_malformed += 1
        stream.num_malformed += 1
        logger.warning("stream %d: dropped a malformed frame: %s", stream.number, error)
        if stream.num_malformed >= MAX_MALFORMED_FRAMES:
            self._refuse(stream, GoawayReason.PROTOCOL, f"too many malformed frames: {error}")

    def _goodbye(self, stream: ClientStream) -> None:
        stream.said_goodbye = True
        self.disconnect(stream)

    def _refuse(
        self,
        stream: ClientStream,
        reason: GoawayReason,
        detail: str,
        versions: tuple[int, int] = (0, 0),
    ) -> None:
        self.counters.streams_refused += 1
        stream.said_goodbye = True
        stream.end(reason, detail, versions=versions)
        self.disconnect(stream)

    # ---- hello ----------------------------------------------------------------------------------

    def _hello(self, stream: ClientStream, hello: ClientHello) -> None:
        if stream.hello is not None:
            raise ProtocolError("a second hello")
        oldest, newest = hello.min_protocol_version, hello.max_protocol_version
        if not oldest <= PROTOCOL_VERSION <= newest:
            mine = (PROTOCOL_VERSION, PROTOCOL_VERSION)
            detail = f"client speaks versions {oldest}..{newest}, server {PROTOCOL_VERSION}"
            self._refuse(stream, GoawayReason.VERSION, detail, mine)
        elif misfit := self._misfit(hello):
            self._refuse(stream, GoawayReason.PAIR, misfit)
        elif problem := _bad_terms(hello):
            self._refuse(stream, GoawayReason.PROTOCOL, problem)
        else:
            self._admit(stream, hello)

    def _admit(self, stream: ClientStream, hello: ClientHello) -> None:
        self._replace_older(hello.client_id)
        greeted = sum(other.hello is not None for other in self._streams.values())
        if greeted >= self._config.max_streams:
            self._refuse(stream, GoawayReason.BUSY, f"{greeted} verifiers are connected")
            return
        stream.hello = hello
        stream.send(self._server_hello())

    def _misfit(self, hello: ClientHello) -> str:
        info = self._info
        if hello.tokenizer_sha256 != info.target_tokenizer_sha256:
            return (
                f"the draft was built for tokenizer {info.target_tokenizer_sha256[:12]}..., "
                f"the target has {hello.tokenizer_sha256[:12]}..."
            )
        if hello.vocab_size != info.vocab_size:
            return f"the draft knows {info.vocab_size} token ids, the target {hello.vocab_size}"
        return ""

    def _replace_older(self, client_id: int) -> None:
        for other in list(self._streams.values()):
            if other.hello is not None and other.hello.client_id == client_id:
                other.said_goodbye = True
                other.end(GoawayReason.REPLACED, "the same client has connected anew")
                self.disconnect(other)

    def _server_hello(self) -> ServerHello:
        return ServerHello(
            protocol_version=PROTOCOL_VERSION,
            build=hetero.__version__,
            card=self._info,
            max_nodes=self.limits.max_nodes,
            max_depth=self.limits.max_depth,
            max_frame_bytes=self.limits.max_frame_bytes,
            round_credits=self._config.round_credits,
            heartbeat_interval_us=int(HEARTBEAT_INTERVAL_S * 1e6),
            serving=self.card.serving,
        )

    # ---- rounds ---------------------------------------------------------------------------------

    def _round(self, stream: ClientStream, frame: Round) -> None:
        self.counters.frames_unknown += len(frame.resyncs) + len(frame.hidden_states)
        errors: _SEQUENCE_ERRORS = {e.sequence_id: e for e in frame.malformed}
        self.counters.frames_malformed += bool(errors)
        for close in frame.closes:
            self._close(stream, close.sequence_id)
        for item in frame.opens:
            self._try(errors, item.sequence_id, partial(self._open, stream, item))
        for commit in frame.commits:
            self._try(errors, commit.sequence_id, partial(self._commit, stream, commit))
        self._asks(stream, frame, errors)
        self.card.wake()

    def _try(self, errors: _SEQUENCE_ERRORS, sequence_id: int, step: Callable[[], None]) -> None:
        """Run one entry of a round; its failure is its sequence's alone."""
        if sequence_id in errors:
            return
        try:
            step()
        except _SequenceFault as fault:
            errors[sequence_id] = SequenceError(sequence_id, fault.code, fault.detail)

    def _close(self, stream: ClientStream, sequence_id: int) -> None:
        self._withdraw(stream, sequence_id)
        self.slots.close((stream.number, sequence_id))

    def _open(self, stream: ClientStream, item: Open) -> None:
        most = self._info.max_context_tokens
        if len(item.token_ids) >= most:
            self._close(stream, item.sequence_id)
            detail = f"{len(item.token_ids)} tokens, the draft's context is {most}"
            raise _SequenceFault(ErrorCode.CONTEXT_EXCEEDED, detail)
        self._withdraw(stream, item.sequence_id)
        try:
            self.slots.open((stream.number, item.sequence_id), item)
        except CapacityError as error:
            raise _SequenceFault(ErrorCode.NO_SLOT, str(error)) from error

    def _commit(self, stream: ClientStream, commit: Commit) -> None:
        sequence = self._sequence(stream, commit.sequence_id)
        if commit.epoch <= sequence.epoch:
            self.counters.commits_stale += 1
            return
        self._withdraw(stream, commit.sequence_id)
        tokens = [*_accepted_path(sequence, commit), *commit.token_ids]
        if len(sequence.tokens) + len(tokens) >= self._info.max_context_tokens:
            self._close(stream, commit.sequence_id)
            raise _SequenceFault(
                ErrorCode.CONTEXT_EXCEEDED,
                f"{len(sequence.tokens) + len(tokens)} tokens, the draft's context is "
                f"{self._info.max_context_tokens}",
            )
        sequence.commit(commit.epoch, tokens)
        if commit.prefix_hash and commit.prefix_hash != prefix_hash(sequence.tokens):
            raise _SequenceFault(ErrorCode.OUT_OF_SYNC, "the committed tokens differ")

    def _sequence(self, stream: ClientStream, sequence_id: int) -> DraftSequence:
        sequence = self.slots.get((stream.number, sequence_id))
        if sequence is None:
            raise _SequenceFault(ErrorCode.UNKNOWN_SEQUENCE, f"sequence {sequence_id} is not open")
        return sequence

    def _asks(self, stream: ClientStream, frame: Round, errors: _SEQUENCE_ERRORS) -> None:
        asks = {ask.sequence_id: ask for ask in frame.asks}
        if len(asks) < len(frame.asks):
            raise ProtocolError("a sequence asks twice in one round")
        self.counters.asks += len(asks)
        paid = not asks or stream.take_credit(frame.round_id, len(asks))
        for ask in asks.values():
            if not paid:
                errors.setdefault(
                    ask.sequence_id, SequenceError(ask.sequence_id, ErrorCode.NO_CREDIT)
                )
            self._try(errors, ask.sequence_id, partial(self._ask, stream, frame.round_id, ask))
        for error in errors.values():
            self.counters.count_error(error.code.name.lower())
        if errors:
            failed_asks = sum(sequence_id in asks for sequence_id in errors) if paid else 0
            stream.answer(frame.round_id, errors=errors.values(), num_asks=failed_asks)

    def _ask(self, stream: ClientStream, round_id: int, ask: Ask) -> None:
        sequence = self._sequence(stream, ask.sequence_id)
        if ask.epoch != sequence.epoch or ask.base_len != len(sequence.tokens):
            raise _SequenceFault(
                ErrorCode.OUT_OF_SYNC,
                f"ask for epoch {ask.epoch}, {ask.base_len} tokens; the server has epoch "
                f"{sequence.epoch}, {len(sequence.tokens)} tokens",
            )
        self._withdraw(stream, ask.sequence_id)
        deadline_us = ask.deadline_us
        expires_at = self._clock() + deadline_us / 1e6 if deadline_us else None
        pending = PendingAsk(stream, round_id, ask, sequence.agreed, expires_at)
        self.card.planner.add(pending)

    def _withdraw(self, stream: ClientStream, sequence_id: int) -> None:
        """Answer an older ask of the sequence, which is void from now on."""
        older = self.card.planner.remove((stream.number, sequence_id))
        if older is not None:
            self.card.refuse(older, ErrorCode.SUPERSEDED)


class _SequenceFault(Exception):  # noqa: N818 - not an error of ours: it becomes a SequenceError
    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def _accepted_path(sequence: DraftSequence, commit: Commit) -> tuple[int, ...]:
    if commit.base_len != len(sequence.tokens):
        raise _SequenceFault(
            ErrorCode.OUT_OF_SYNC,
            f"commit after {commit.base_len} tokens, the server has {len(sequence.tokens)}",
        )
    if not commit.accepted_node_id:
        return ()
    draft = sequence.last_draft
    path = None if draft is None else draft.nodes.path_to(commit.accepted_node_id)
    if path is None:
        raise _SequenceFault(
            ErrorCode.OUT_OF_SYNC, f"node {commit.accepted_node_id} is not in the latest draft"
        )
    return path


def _bad_terms(hello: ClientHello) -> str:
    if hello.max_frame_bytes < MIN_CLIENT_FRAME_BYTES:
        return f"max_frame_bytes {hello.max_frame_bytes}, at least {MIN_CLIENT_FRAME_BYTES}"
    shortest_us = int(3 * HEARTBEAT_INTERVAL_S * 1e6)
    if hello.heartbeat_timeout_us < shortest_us:
        return f"heartbeat_timeout_us {hello.heartbeat_timeout_us}, at least {shortest_us}"
    return ""
