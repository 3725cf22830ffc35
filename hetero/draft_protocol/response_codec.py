"""Frames from the card host: bytes <-> messages. Decoding raises ProtocolError and nothing else."""

from functools import partial
from itertools import pairwise

from hetero.core.types import CardInfo, CardUsage
from hetero.draft_protocol.arrays import (
    pack_float32,
    pack_uint32,
    unpack_float32,
    unpack_token_ids,
    unpack_uint32,
)
from hetero.draft_protocol.limits import (
    MAX_DRAFT_CYCLES,
    MAX_DRAFT_MODELLED_S,
    MAX_Q_ROW_TOKENS,
    Q_ONE,
    FrameLimits,
)
from hetero.draft_protocol.messages import (
    DraftReply,
    ErrorCode,
    Goaway,
    Heartbeat,
    Nodes,
    QRows,
    ResponseFrame,
    ResyncResult,
    RoundReply,
    SequenceError,
    ServerHello,
    UnknownFrame,
)
from hetero.draft_protocol.shared_codec import (
    clip,
    decode_each,
    decode_features,
    decode_goaway,
    decode_heartbeat,
    encode_features,
    encode_goaway,
    encode_heartbeat,
    expect,
    expect_at_most,
    expect_sha256,
    expect_text,
    known,
    parse,
)
from hetero.rpc.draft.v1 import draft_pb2 as pb

# ---- to the wire --------------------------------------------------------------------------------


def encode_response(frame: ResponseFrame) -> bytes:
    """One frame. An UnknownFrame becomes an empty one."""
    return _response(frame).SerializeToString()


def _response(frame: ResponseFrame) -> pb.DraftResponse:
    if isinstance(frame, RoundReply):
        return pb.DraftResponse(round_reply=_encode_reply(frame))
    if isinstance(frame, Heartbeat):
        return pb.DraftResponse(heartbeat=encode_heartbeat(frame))
    if isinstance(frame, ServerHello):
        return pb.DraftResponse(server_hello=_encode_hello(frame))
    if isinstance(frame, Goaway):
        return pb.DraftResponse(goaway=encode_goaway(frame))
    return pb.DraftResponse()


def _encode_hello(hello: ServerHello) -> pb.ServerHello:
    card = hello.card
    return pb.ServerHello(
        protocol_version=hello.protocol_version,
        build=hello.build,
        card=pb.Card(
            device=card.device,
            backend=card.backend,
            simulated=card.simulated,
            clock_hz=card.clock_hz,
            artefact_sha256=card.artefact_sha256,
            tokenizer_sha256=card.target_tokenizer_sha256,
            vocab_size=card.vocab_size,
        ),
        limits=pb.Limits(
            max_sequences=card.num_slots,
            max_context_tokens=card.max_context_tokens,
            max_draft_tokens=card.max_draft_tokens,
            max_nodes=hello.max_nodes,
            max_depth=hello.max_depth,
            max_frame_bytes=hello.max_frame_bytes,
            max_lanes=card.max_lanes,
            max_prefill_tokens=card.max_prefill_tokens,
        ),
        features=encode_features(hello.features),
        round_credits=hello.round_credits,
        heartbeat_interval_us=hello.heartbeat_interval_us,
        serving=hello.serving,
    )


def _encode_reply(reply: RoundReply) -> pb.RoundReply:
    return pb.RoundReply(
        round_id=reply.round_id,
        drafts=[_encode_draft(d) for d in reply.drafts],
        errors=[_encode_error(e) for e in reply.errors],
        round_credits=reply.round_credits,
        resyncs=[
            pb.ResyncResult(
                sequence_id=r.sequence_id, epoch=r.epoch, matched_tokens=r.matched_tokens
            )
            for r in reply.resyncs
        ],
    )


def _encode_error(error: SequenceError) -> pb.SequenceError:
    return pb.SequenceError(
        sequence_id=error.sequence_id,
        code=pb.SequenceErrorCode.ValueType(int(error.code)),
        detail=clip(error.detail),
    )


def _encode_draft(draft: DraftReply) -> pb.Draft:
    nodes = draft.nodes
    return pb.Draft(
        sequence_id=draft.sequence_id,
        epoch=draft.epoch,
        base_len=draft.base_len,
        node_ids=pack_uint32(nodes.ids),
        parent_ids=pack_uint32(nodes.parents),
        token_ids=pack_uint32(nodes.tokens),
        confidence=pack_float32(nodes.confidence),
        q_rows=None if nodes.q_rows is None else _encode_q_rows(nodes.q_rows),
        predrafted_from=draft.predrafted_from,
        more=draft.more,
        usage=pb.CardUsage(
            cycles=draft.usage.cycles,
            modelled_s=draft.usage.modelled_s,
            host_s=draft.usage.host_s,
            simulated=draft.simulated,
        ),
        valid_tokens=draft.valid_tokens,
    )


def _encode_q_rows(rows: QRows) -> pb.QRows:
    return pb.QRows(
        row_starts=pack_uint32(rows.row_starts),
        token_ids=pack_uint32(rows.token_ids),
        weights=pack_uint32(rows.weights),
    )


# ---- from the wire ------------------------------------------------------------------------------


def decode_response(data: bytes, limits: FrameLimits) -> ResponseFrame:
    """One frame. Raises ProtocolError; single bad drafts land in the reply's ``malformed``."""
    frame = parse(pb.DraftResponse, data, limits.max_frame_bytes)
    kind = frame.WhichOneof("kind")
    if kind == "round_reply":
        return _decode_reply(frame.round_reply, limits)
    if kind == "heartbeat":
        return decode_heartbeat(frame.heartbeat)
    if kind == "server_hello":
        return _decode_hello(frame.server_hello)
    if kind == "goaway":
        return decode_goaway(frame.goaway)
    return UnknownFrame()


def _decode_hello(hello: pb.ServerHello) -> ServerHello:
    expect_at_most(hello.features, 64, "hello features")
    limits = hello.limits
    for name in ("max_sequences", "max_context_tokens", "max_draft_tokens", "max_frame_bytes"):
        expect(getattr(limits, name) > 0, f"hello limit {name} is 0")
    return ServerHello(
        protocol_version=hello.protocol_version,
        build=expect_text(hello.build, 128, "hello build"),
        card=_decode_card(hello.card, limits),
        max_nodes=limits.max_nodes,
        max_depth=limits.max_depth,
        max_frame_bytes=limits.max_frame_bytes,
        features=decode_features(hello.features),
        round_credits=hello.round_credits,
        heartbeat_interval_us=hello.heartbeat_interval_us,
        serving=hello.serving,
    )


def _decode_card(card: pb.Card, limits: pb.Limits) -> CardInfo:
    return CardInfo(
        device=expect_text(card.device, 64, "card device"),
        backend=expect_text(card.backend, 64, "card backend"),
        simulated=card.simulated,
        num_slots=limits.max_sequences,
        max_lanes=limits.max_lanes,
        max_context_tokens=limits.max_context_tokens,
        max_draft_tokens=limits.max_draft_tokens,
        max_prefill_tokens=limits.max_prefill_tokens,
        vocab_size=card.vocab_size,
        clock_hz=card.clock_hz,
        artefact_sha256=expect_sha256(card.artefact_sha256, "card artefact"),
        target_tokenizer_sha256=expect_sha256(card.tokenizer_sha256, "card tokenizer"),
    )


def _decode_reply(reply: pb.RoundReply, limits: FrameLimits) -> RoundReply:
    for name in ("drafts", "errors", "resyncs"):
        expect_at_most(getattr(reply, name), limits.max_items, f"round reply {name}")
    bad: list[SequenceError] = []
    return RoundReply(
        round_id=reply.round_id,
        drafts=decode_each(reply.drafts, partial(_decode_draft, limits=limits), bad),
        errors=tuple(
            SequenceError(e.sequence_id, known(ErrorCode, e.code), clip(e.detail))
            for e in reply.errors
        ),
        round_credits=reply.round_credits,
        resyncs=tuple(
            ResyncResult(r.sequence_id, r.epoch, r.matched_tokens) for r in reply.resyncs
        ),
        malformed=tuple(bad),
    )


def _decode_draft(draft: pb.Draft, limits: FrameLimits) -> DraftReply:
    nodes = _decode_nodes(draft, limits)
    expect(draft.predrafted_from <= len(nodes.ids), "draft predrafted_from beyond its nodes")
    usage = draft.usage
    # NaN fails both comparisons.
    expect(0.0 <= usage.modelled_s <= MAX_DRAFT_MODELLED_S, "draft usage modelled_s")
    expect(0.0 <= usage.host_s <= MAX_DRAFT_MODELLED_S, "draft usage host_s")
    expect(usage.cycles <= MAX_DRAFT_CYCLES, "draft usage cycles")
    return DraftReply(
        sequence_id=draft.sequence_id,
        epoch=draft.epoch,
        base_len=draft.base_len,
        nodes=nodes,
        usage=CardUsage(usage.cycles, usage.modelled_s, usage.host_s),
        simulated=usage.simulated,
        valid_tokens=draft.valid_tokens,
        predrafted_from=draft.predrafted_from,
        more=draft.more,
    )


def _decode_nodes(draft: pb.Draft, limits: FrameLimits) -> Nodes:
    most = limits.max_nodes
    ids = unpack_uint32(draft.node_ids, what="draft node_ids", max_length=most)
    parents = unpack_uint32(draft.parent_ids, what="draft parent_ids", max_length=most)
    tokens = unpack_token_ids(
        draft.token_ids, what="draft token_ids", max_length=most, vocab_size=limits.vocab_size
    )
    expect(len(ids) == len(parents) == len(tokens), "draft node arrays differ in length")
    _check_tree(ids, parents, limits.max_depth)
    confidence = _decode_confidence(draft, len(ids))
    rows = _decode_q_rows(draft.q_rows, len(ids), limits) if draft.HasField("q_rows") else None
    return Nodes(ids, parents, tokens, confidence, rows)


def _check_tree(ids: tuple[int, ...], parents: tuple[int, ...], max_depth: int) -> None:
    count = len(ids)
    if count <= max_depth and ids == tuple(range(1, count + 1)) and parents == tuple(range(count)):
        return  # a chain, as nearly always
    depth = {0: 0}
    last = 0
    for node, parent in zip(ids, parents, strict=True):
        expect(node > last, f"draft node {node} after node {last}: ids must grow")
        expect(parent in depth, f"draft node {node} follows node {parent}, which is not before it")
        depth[node] = depth[parent] + 1
        expect(depth[node] <= max_depth, f"draft deeper than {max_depth}")
        last = node


def _decode_confidence(draft: pb.Draft, num_nodes: int) -> tuple[float, ...]:
    if not draft.confidence.length:
        return ()
    values = unpack_float32(draft.confidence, what="draft confidence", max_length=num_nodes)
    expect(len(values) == num_nodes, "draft confidence: not one per node")
    # NaN fails both comparisons.
    expect(all(0.0 <= value <= 1.0 for value in values), "draft confidence not in 0..1")
    return values


def _decode_q_rows(rows: pb.QRows, num_nodes: int, limits: FrameLimits) -> QRows:
    most = num_nodes * MAX_Q_ROW_TOKENS
    starts = unpack_uint32(rows.row_starts, what="q row_starts", max_length=num_nodes + 1)
    tokens = unpack_token_ids(
        rows.token_ids, what="q token_ids", max_length=most, vocab_size=limits.vocab_size
    )
    weights = unpack_uint32(rows.weights, what="q weights", max_length=most)
    expect(len(starts) == num_nodes + 1, "q row_starts: not one per node plus one")
    expect(starts[0] == 0 and starts[-1] == len(tokens) == len(weights), "q rows: ends differ")
    for i, (low, high) in enumerate(pairwise(starts)):
        expect(low <= high <= low + MAX_Q_ROW_TOKENS, f"q row {i}: {low}..{high}")
        expect(sum(weights[low:high]) == Q_ONE, f"q row {i} does not sum to {Q_ONE}")
        expect(len(set(tokens[low:high])) == high - low, f"q row {i} names a token twice")
    return QRows(starts, tokens, weights)
