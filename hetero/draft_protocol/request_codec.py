"""Frames from the verifier: bytes <-> messages. Decoding raises ProtocolError and nothing else."""

import math
from functools import partial

import numpy as np

from hetero.core.types import SamplingParams
from hetero.draft_protocol.arrays import (
    pack_tensor,
    pack_uint32,
    unpack_tensor,
    unpack_token_ids,
)
from hetero.draft_protocol.limits import MAX_HIDDEN_ELEMENTS, PREFIX_HASH_BYTES, FrameLimits
from hetero.draft_protocol.messages import (
    Ask,
    ClientHello,
    Close,
    CloseReason,
    Commit,
    Goaway,
    Heartbeat,
    HiddenStates,
    Open,
    RequestFrame,
    Resync,
    Round,
    SequenceError,
    UnknownFrame,
    WireVerifyMode,
)
from hetero.draft_protocol.shared_codec import (
    decode_each,
    decode_features,
    decode_goaway,
    decode_heartbeat,
    encode_features,
    encode_goaway,
    encode_heartbeat,
    expect,
    expect_at_most,
    expect_fraction,
    expect_sha256,
    expect_text,
    known,
    parse,
)
from hetero.rpc.draft.v1 import draft_pb2 as pb

_HIDDEN_DTYPES = {
    "int8": pb.DTYPE_INT8,
    "float16": pb.DTYPE_FLOAT16,
    "uint16": pb.DTYPE_BFLOAT16,
    "float32": pb.DTYPE_FLOAT32,
}

# ---- to the wire --------------------------------------------------------------------------------


def encode_request(frame: RequestFrame) -> bytes:
    """One frame. An UnknownFrame becomes an empty one."""
    return _request(frame).SerializeToString()


def _request(frame: RequestFrame) -> pb.DraftRequest:
    if isinstance(frame, Round):
        return pb.DraftRequest(round=_encode_round(frame))
    if isinstance(frame, Heartbeat):
        return pb.DraftRequest(heartbeat=encode_heartbeat(frame))
    if isinstance(frame, ClientHello):
        return pb.DraftRequest(client_hello=_encode_hello(frame))
    if isinstance(frame, Goaway):
        return pb.DraftRequest(goaway=encode_goaway(frame))
    return pb.DraftRequest()


def _encode_hello(hello: ClientHello) -> pb.ClientHello:
    return pb.ClientHello(
        min_protocol_version=hello.min_protocol_version,
        max_protocol_version=hello.max_protocol_version,
        build=hello.build,
        client_id=hello.client_id,
        target_model=hello.target_model,
        tokenizer_sha256=hello.tokenizer_sha256,
        vocab_size=hello.vocab_size,
        features=encode_features(hello.features),
        max_frame_bytes=hello.max_frame_bytes,
        heartbeat_timeout_us=hello.heartbeat_timeout_us,
    )


def _encode_round(frame: Round) -> pb.Round:
    return pb.Round(
        round_id=frame.round_id,
        closes=[_encode_close(c) for c in frame.closes],
        opens=[_encode_open(o) for o in frame.opens],
        commits=[_encode_commit(c) for c in frame.commits],
        asks=[_encode_ask(a) for a in frame.asks],
        resyncs=[_encode_resync(r) for r in frame.resyncs],
        hidden_states=[_encode_hidden(h) for h in frame.hidden_states],
    )


def _encode_close(close: Close) -> pb.Close:
    return pb.Close(
        sequence_id=close.sequence_id, reason=pb.CloseReason.ValueType(int(close.reason))
    )


def _encode_open(item: Open) -> pb.Open:
    sampling = item.sampling
    return pb.Open(
        sequence_id=item.sequence_id,
        epoch=item.epoch,
        token_ids=pack_uint32(item.token_ids),
        num_prompt_tokens=item.num_prompt_tokens,
        sampling=pb.Sampling(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            seed=sampling.seed,
            choice_index=sampling.choice_index,
            verify_mode=pb.VerifyMode.ValueType(int(item.verify_mode)),
        ),
    )


def _encode_commit(commit: Commit) -> pb.Commit:
    return pb.Commit(
        sequence_id=commit.sequence_id,
        epoch=commit.epoch,
        base_len=commit.base_len,
        accepted_node_id=commit.accepted_node_id,
        token_ids=pack_uint32(commit.token_ids),
        prefix_hash=commit.prefix_hash,
    )


def _encode_ask(ask: Ask) -> pb.Ask:
    return pb.Ask(
        sequence_id=ask.sequence_id,
        epoch=ask.epoch,
        base_len=ask.base_len,
        max_draft_tokens=ask.max_draft_tokens,
        max_nodes=ask.max_nodes,
        deadline_us=ask.deadline_us,
    )


def _encode_resync(resync: Resync) -> pb.Resync:
    return pb.Resync(
        sequence_id=resync.sequence_id,
        epoch=resync.epoch,
        committed_len=resync.committed_len,
        prefix_hash=resync.prefix_hash,
    )


def _encode_hidden(hidden: HiddenStates) -> pb.HiddenStates:
    num_tokens, num_layers, width = hidden.values_tld.shape
    return pb.HiddenStates(
        sequence_id=hidden.sequence_id,
        epoch=hidden.epoch,
        start=hidden.start,
        num_tokens=num_tokens,
        width=width,
        num_layers=num_layers,
        values=pack_tensor(hidden.values_tld, _HIDDEN_DTYPES[hidden.values_tld.dtype.name]),
    )


# ---- from the wire ------------------------------------------------------------------------------


def decode_request(data: bytes, limits: FrameLimits) -> RequestFrame:
    """One frame. Raises ProtocolError; single bad entries of a round land in its ``malformed``."""
    frame = parse(pb.DraftRequest, data, limits.max_frame_bytes)
    kind = frame.WhichOneof("kind")
    if kind == "round":
        return _decode_round(frame.round, limits)
    if kind == "heartbeat":
        return decode_heartbeat(frame.heartbeat)
    if kind == "client_hello":
        return _decode_hello(frame.client_hello)
    if kind == "goaway":
        return decode_goaway(frame.goaway)
    return UnknownFrame()


def _decode_hello(hello: pb.ClientHello) -> ClientHello:
    expect_at_most(hello.features, 64, "hello features")
    return ClientHello(
        min_protocol_version=hello.min_protocol_version,
        max_protocol_version=hello.max_protocol_version,
        build=expect_text(hello.build, 128, "hello build"),
        client_id=hello.client_id,
        target_model=expect_text(hello.target_model, 256, "hello target model"),
        tokenizer_sha256=expect_sha256(hello.tokenizer_sha256, "hello tokenizer"),
        vocab_size=hello.vocab_size,
        features=decode_features(hello.features),
        max_frame_bytes=hello.max_frame_bytes,
        heartbeat_timeout_us=hello.heartbeat_timeout_us,
    )


def _decode_round(frame: pb.Round, limits: FrameLimits) -> Round:
    for name in ("closes", "opens", "commits", "asks", "resyncs", "hidden_states"):
        expect_at_most(getattr(frame, name), limits.max_items, f"round {name}")
    bad: list[SequenceError] = []
    return Round(
        round_id=frame.round_id,
        closes=decode_each(frame.closes, _decode_close, bad),
        opens=decode_each(frame.opens, partial(_decode_open, limits=limits), bad),
        commits=decode_each(frame.commits, partial(_decode_commit, limits=limits), bad),
        asks=decode_each(frame.asks, partial(_decode_ask, limits=limits), bad),
        resyncs=decode_each(frame.resyncs, partial(_decode_resync, limits=limits), bad),
        hidden_states=decode_each(frame.hidden_states, _decode_hidden, bad),
        malformed=tuple(bad),
    )


def _decode_close(close: pb.Close) -> Close:
    return Close(close.sequence_id, known(CloseReason, close.reason))


def _decode_open(item: pb.Open, limits: FrameLimits) -> Open:
    tokens = unpack_token_ids(
        item.token_ids,
        what="open token_ids",
        # A longer prompt is a matter of context, reported by that name, not a broken frame.
        max_length=limits.max_frame_bytes,
        vocab_size=limits.vocab_size,
    )
    expect(bool(tokens), "open without tokens")
    expect(
        item.num_prompt_tokens <= len(tokens),
        f"open with {item.num_prompt_tokens} prompt tokens of {len(tokens)}",
    )
    return Open(
        item.sequence_id,
        item.epoch,
        tokens,
        item.num_prompt_tokens,
        _decode_sampling(item.sampling),
        known(WireVerifyMode, item.sampling.verify_mode),
    )


def _decode_sampling(sampling: pb.Sampling) -> SamplingParams:
    temperature = sampling.temperature
    expect(math.isfinite(temperature) and temperature >= 0.0, f"temperature = {temperature}")
    return SamplingParams(
        temperature=temperature,
        top_p=expect_fraction(sampling.top_p, "top_p"),
        top_k=sampling.top_k,
        min_p=expect_fraction(sampling.min_p, "min_p"),
        seed=sampling.seed,
        choice_index=sampling.choice_index,
    )


def _decode_commit(commit: pb.Commit, limits: FrameLimits) -> Commit:
    tokens = unpack_token_ids(
        commit.token_ids,
        what="commit token_ids",
        max_length=limits.max_frame_bytes,
        vocab_size=limits.vocab_size,
    )
    expect(bool(tokens), "commit without tokens")
    expect(len(commit.prefix_hash) in (0, PREFIX_HASH_BYTES), "commit prefix_hash length")
    return Commit(
        commit.sequence_id,
        commit.epoch,
        commit.base_len,
        commit.accepted_node_id,
        tokens,
        commit.prefix_hash,
    )


def _decode_ask(ask: pb.Ask, limits: FrameLimits) -> Ask:
    wanted = ask.max_draft_tokens
    expect(
        1 <= wanted <= limits.max_draft_tokens,
        f"ask for {wanted} tokens, the limit is 1..{limits.max_draft_tokens}",
    )
    expect(ask.max_nodes <= limits.max_nodes, f"ask for {ask.max_nodes} nodes")
    return Ask(ask.sequence_id, ask.epoch, ask.base_len, wanted, ask.max_nodes, ask.deadline_us)


def _decode_resync(resync: pb.Resync, limits: FrameLimits) -> Resync:
    expect(len(resync.prefix_hash) == PREFIX_HASH_BYTES, "resync prefix_hash length")
    expect(
        1 <= resync.committed_len <= limits.max_context_tokens,
        f"resync of {resync.committed_len} tokens",
    )
    return Resync(resync.sequence_id, resync.epoch, resync.committed_len, resync.prefix_hash)


def _decode_hidden(hidden: pb.HiddenStates) -> HiddenStates:
    shape = (hidden.num_tokens, hidden.num_layers, hidden.width)
    values = unpack_tensor(
        hidden.values,
        what="hidden states",
        dtypes=_HIDDEN_DTYPES.values(),
        max_length=MAX_HIDDEN_ELEMENTS,
    )
    expect(
        values.size == math.prod(shape) and values.size > 0,
        f"hidden states: {values.size} elements for shape {shape}",
    )
    return HiddenStates(hidden.sequence_id, hidden.epoch, hidden.start, np.reshape(values, shape))
