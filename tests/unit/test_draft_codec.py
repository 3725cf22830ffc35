"""Wire <-> messages: every frame survives, and no bytes raise anything but ProtocolError."""

import contextlib
import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import frames
from support.frames import CARD_FIELDS, LIMITS

from hetero.core.errors import ProtocolError
from hetero.core.types import CardInfo, SamplingParams
from hetero.draft_protocol import messages as m
from hetero.draft_protocol.arrays import pack_uint32, prefix_hash
from hetero.draft_protocol.request_codec import decode_request, encode_request
from hetero.draft_protocol.response_codec import decode_response, encode_response
from hetero.rpc.draft.v1 import draft_pb2 as pb

SERVER_HELLO = frames.server_hello(features=frozenset({m.Feature.RESYNC}))

responses = st.one_of(
    frames.round_replies,
    frames.heartbeats,
    frames.goaways,
    st.just(SERVER_HELLO),
    st.just(m.UnknownFrame()),
)


@given(frames.requests)
@settings(max_examples=200, deadline=None)
def test_requests_round_trip(frame):
    assert decode_request(encode_request(frame), LIMITS) == frame


@given(responses)
@settings(max_examples=200, deadline=None)
def test_responses_round_trip(frame):
    assert decode_response(encode_response(frame), LIMITS) == frame


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float16", "float32"])
def test_hidden_states_round_trip(dtype):
    values_tld = np.arange(24).reshape(2, 3, 4).astype(dtype)
    sent = m.Round(round_id=1, hidden_states=(frames.hidden_states(values_tld),))
    got = decode_request(encode_request(sent), LIMITS).hidden_states[0]
    np.testing.assert_array_equal(got.values_tld, values_tld)
    assert got.values_tld.dtype == values_tld.dtype
    assert (got.sequence_id, got.epoch, got.start) == (7, 2, 3)


@pytest.mark.parametrize(
    "code, wire",
    [
        (m.Feature, pb.Feature),
        (m.ErrorCode, pb.SequenceErrorCode),
        (m.GoawayReason, pb.GoawayReason),
        (m.CloseReason, pb.CloseReason),
        (m.WireVerifyMode, pb.VerifyMode),
    ],
)
def test_enums_mirror_the_wire(code, wire):
    prefix = wire.Name(0).removesuffix("UNSPECIFIED")
    named = {prefix + value.name: value.value for value in code}
    assert {prefix + "UNSPECIFIED": 0} | named == dict(wire.items())


# ---- bad bytes ----------------------------------------------------------------------------------


def never_raises_but_protocol_error(data):
    for decode in (decode_request, decode_response):
        with contextlib.suppress(ProtocolError):
            decode(data, LIMITS)


@given(st.binary(max_size=400))
@settings(max_examples=500, deadline=None)
def test_random_bytes(data):
    never_raises_but_protocol_error(data)


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_mutated_frames(data):
    """Truncated, overwritten, extended: still nothing but ProtocolError."""
    whole = data.draw(
        st.one_of(frames.requests.map(encode_request), responses.map(encode_response))
    )
    bent = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 4))):
        if bent:
            bent[data.draw(st.integers(0, len(bent) - 1))] = data.draw(st.integers(0, 255))
    bent = bent[: data.draw(st.integers(0, len(bent)))] + data.draw(st.binary(max_size=8))
    never_raises_but_protocol_error(bytes(bent))


def test_a_frame_kind_from_the_future_is_unknown_not_an_error():
    future = b"\x7a\x03abc"  # field 15, length-delimited
    assert decode_request(future, LIMITS) == m.UnknownFrame()
    assert decode_response(future, LIMITS) == m.UnknownFrame()


def test_codes_from_the_future_become_unspecified():
    wire = pb.DraftResponse(goaway=pb.Goaway(reason=99))
    assert decode_response(wire.SerializeToString(), LIMITS).reason == 0
    wire = pb.DraftResponse(round_reply=pb.RoundReply(errors=[pb.SequenceError(code=99)]))
    assert decode_response(wire.SerializeToString(), LIMITS).errors[0].code == 0


def test_frame_bytes_are_bounded():
    limits = dataclasses.replace(LIMITS, max_frame_bytes=10)
    with pytest.raises(ProtocolError, match="11 bytes, the limit is 10"):
        decode_request(b"x" * 11, limits)


def test_list_lengths_are_bounded():
    frame = m.Round(round_id=1, closes=tuple(m.Close(i) for i in range(33)))
    with pytest.raises(ProtocolError, match="33 entries"):
        decode_request(encode_request(frame), LIMITS)


# ---- one bad entry harms its own sequence only --------------------------------------------------


def wire_open(**overrides):
    good = pb.Open(
        sequence_id=7,
        token_ids=pack_uint32((1, 2, 3)),
        num_prompt_tokens=2,
        sampling=pb.Sampling(top_p=1.0),
    )
    good.MergeFrom(pb.Open(**overrides))
    return good


def round_with(**lists):
    return decode_request(pb.DraftRequest(round=pb.Round(**lists)).SerializeToString(), LIMITS)


@pytest.mark.parametrize(
    "overrides, why",
    [
        (dict(token_ids=pb.Array(length=4)), "12 bytes for 4 elements"),
        (dict(token_ids=pb.Array(dtype=pb.DTYPE_UINT16)), "dtype 2 is not allowed"),
        (dict(token_ids=pb.Array(dtype=77)), "dtype 77 is not allowed"),
        (dict(token_ids=pack_uint32((1000,))), "token id 1000, the vocabulary has 1000"),
        (dict(num_prompt_tokens=4), "4 prompt tokens of 3"),
        (dict(sampling=pb.Sampling(temperature=-1.0)), "temperature = -1.0"),
        (dict(sampling=pb.Sampling(temperature=float("nan"))), "temperature = nan"),
        (dict(sampling=pb.Sampling(top_p=1.5)), "top_p = 1.5 is not in 0..1"),
    ],
)
def test_bad_open(overrides, why):
    frame = round_with(opens=[wire_open(**overrides), wire_open(sequence_id=8)])
    assert [o.sequence_id for o in frame.opens] == [8]
    (error,) = frame.malformed
    assert error.sequence_id == 7
    assert error.code == m.ErrorCode.INVALID
    assert why in error.detail


@pytest.mark.parametrize(
    "ask, why",
    [
        (pb.Ask(max_draft_tokens=0), "ask for 0 tokens, the limit is 1..16"),
        (pb.Ask(max_draft_tokens=17), "ask for 17 tokens"),
        (pb.Ask(max_draft_tokens=1, max_nodes=17), "ask for 17 nodes"),
    ],
)
def test_bad_ask(ask, why):
    assert why in round_with(asks=[ask]).malformed[0].detail


def test_bad_commit_resync_and_hidden_states():
    frame = round_with(
        commits=[pb.Commit(sequence_id=1, token_ids=pack_uint32(()))],
        resyncs=[pb.Resync(sequence_id=2, committed_len=3, prefix_hash=b"short")],
        hidden_states=[pb.HiddenStates(sequence_id=3, num_tokens=2, width=2, num_layers=1)],
    )
    assert {e.sequence_id for e in frame.malformed} == {1, 2, 3}


def chain(*tokens, **changes):
    nodes = m.Nodes.chain(tokens)
    return m.DraftReply(
        sequence_id=5, epoch=1, base_len=3, nodes=dataclasses.replace(nodes, **changes)
    )


@pytest.mark.parametrize(
    "draft, why",
    [
        (chain(1, 1000), "token id 1000"),
        (chain(*range(17)), "17 elements, the limit is 16"),
        (chain(*range(9)), "deeper than 8"),
        (chain(1, 2, parents=(0, 2)), "follows node 2, which is not before it"),
        (chain(1, 2, parents=(0, 7)), "follows node 7"),
        (chain(1, 2, ids=(2, 1)), "ids must grow"),
        (chain(1, 2, ids=(0, 1)), "ids must grow"),
        (chain(1, 2, parents=(0,)), "differ in length"),
        (chain(1, 2, confidence=(0.5,)), "not one per node"),
        (chain(1, 2, confidence=(0.5, float("nan"))), "not in 0..1"),
        (chain(1, 2, confidence=(0.5, 1.5)), "not in 0..1"),
        (chain(1, q_rows=m.QRows((0, 1), (4,), (65535,))), "does not sum to 65536"),
        (chain(1, q_rows=m.QRows((0, 2), (4, 4), (1, 65535))), "names a token twice"),
        (chain(1, q_rows=m.QRows((0,), (), ())), "not one per node plus one"),
        (chain(1, q_rows=m.QRows((0, 1), (4,), ())), "ends differ"),
        (dataclasses.replace(chain(1), predrafted_from=2), "predrafted_from"),
    ],
)
def test_bad_draft(draft, why):
    good = dataclasses.replace(chain(1, 2), sequence_id=6)
    reply = m.RoundReply(round_id=1, drafts=(draft, good))
    got = decode_response(encode_response(reply), LIMITS)
    assert [d.sequence_id for d in got.drafts] == [6]
    assert [e.sequence_id for e in got.malformed] == [5]
    assert why in got.malformed[0].detail


@pytest.mark.parametrize(
    "changes, why",
    [
        (dict(artefact_sha256="A" * 64), "not a SHA-256"),
        (dict(target_tokenizer_sha256=""), "not a SHA-256"),
        (dict(num_slots=0), "max_sequences is 0"),
        (dict(device="x" * 65), "65 bytes"),
    ],
)
def test_bad_server_hello(changes, why):
    hello = dataclasses.replace(SERVER_HELLO, card=CardInfo(**{**CARD_FIELDS, **changes}))
    with pytest.raises(ProtocolError, match=why):
        decode_response(encode_response(hello), LIMITS)


def test_bad_client_hello():
    hello = frames.client_hello(tokenizer_sha256="zz")
    with pytest.raises(ProtocolError, match="tokenizer"):
        decode_request(encode_request(hello), LIMITS)


# ---- trees --------------------------------------------------------------------------------------


def test_paths_in_a_tree_with_a_predrafted_branch():
    #        0 ── 1:a ── 2:b
    #         └── 3:c ── 9:d
    tree = m.Nodes((1, 2, 3, 9), (0, 1, 0, 3), (10, 11, 12, 13))
    assert tree.path_to(0) == ()
    assert tree.path_to(2) == (10, 11)
    assert tree.path_to(9) == (12, 13)
    assert tree.path_to(4) is None
    assert not tree.is_chain
    assert m.Nodes.chain((1, 2, 3)).is_chain
    assert m.Nodes.chain(()).is_chain


def test_prefix_hash_is_over_little_endian_words():
    import hashlib

    expected = hashlib.sha256(bytes([1, 0, 0, 0, 0, 1, 0, 0])).digest()[:16]
    assert prefix_hash([1, 256]) == expected


def test_long_error_texts_are_clipped():
    error = m.SequenceError(1, m.ErrorCode.INVALID, "é" * 600)
    got = decode_response(encode_response(m.RoundReply(round_id=1, errors=(error,))), LIMITS)
    assert got.errors[0].detail == "é" * 256


def test_seed_and_temperature_survive_to_the_bit():
    sampling = SamplingParams(temperature=0.1 + 0.2, seed=2**64 - 1, top_p=1 / 3)
    frame = m.Round(round_id=1, opens=(m.Open(1, 0, (1,), 1, sampling),))
    assert decode_request(encode_request(frame), LIMITS).opens[0].sampling == sampling
