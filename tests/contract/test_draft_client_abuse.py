"""What a draft server may do to its client: nothing but cost it speed."""

import asyncio
import dataclasses
import random

import pytest
from support.cards import hash_model
from support.draft_pair import generate, plain, query
from support.frames import CARD_FIELDS, client_hello, server_hello
from support.raw_draft import eventually, raw_server

from hetero.core.errors import DraftUnavailableError, PairError, ProtocolError, VersionError
from hetero.core.types import CardInfo, CardUsage, DraftBatch
from hetero.draft_client.client import CardDrafter
from hetero.draft_client.config import DraftClientConfig, TargetIdentity
from hetero.draft_protocol import messages as m

MODEL = hash_model(1000)
IDENTITY = TargetIdentity(tokenizer_sha256="b" * 64, vocab_size=1000, model_name="tiny")
HELLO = server_hello()


def answering(reply):
    """A server that greets, then answers each round with ``reply(round)``: frames or bytes."""

    async def script(stream):
        yield HELLO
        while (frame := await stream.read()) is not None:
            for answer in reply(frame):
                yield answer

    return script


class drafter:
    """async with drafter(script, **config) as (drafter): connected to a scripted server."""

    def __init__(self, script, **config):
        self._server = raw_server(script)
        self._config = DraftClientConfig(**{"deadline_s": 0.3, **config})

    async def __aenter__(self):
        address = await self._server.__aenter__()
        self.drafter = CardDrafter(address, IDENTITY, self._config)
        await self.drafter.connect()
        return self.drafter

    async def __aexit__(self, *error):
        await self.drafter.close()
        await self._server.__aexit__(*error)


def draft_for(ask, *tokens, **changes):
    fields = dict(
        sequence_id=ask.sequence_id,
        epoch=ask.epoch,
        base_len=ask.base_len,
        nodes=m.Nodes.chain(tokens),
    )
    return m.DraftReply(**{**fields, **changes})


def reply_to(frame, *drafts, **fields):
    return m.RoundReply(
        **{**dict(round_id=frame.round_id, drafts=drafts, round_credits=1), **fields}
    )


async def propose(drafter, tokens=(1, 2, 3), k=4):
    return await drafter.propose(DraftBatch(1, (query(1, tokens, k=k),)))


# ---- drafts that are no answer ------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, reason",
    [
        (dict(epoch=99), "stale"),
        (dict(base_len=2), "stale"),
        (dict(nodes=m.Nodes.chain((1, 2, 3, 4, 5))), "malformed"),  # more than asked for
        (dict(nodes=m.Nodes.chain((1, 1000))), "malformed"),
        (dict(nodes=m.Nodes((1, 2), (0, 0), (5, 6))), "malformed"),  # a tree, not negotiated
        (dict(nodes=m.Nodes((1, 2), (0, 2), (5, 6))), "malformed"),
        (dict(nodes=m.Nodes((2, 3), (0, 2), (5, 6))), "malformed"),
        (dict(more=True), "malformed"),
        (dict(predrafted_from=1), "malformed"),
        (dict(usage=CardUsage(1, float("nan"))), "malformed"),
        (dict(usage=CardUsage(1, -1.0)), "malformed"),
        (dict(usage=CardUsage(1, 1.7e308)), "malformed"),  # finite, but their sum is not
        (dict(usage=CardUsage(2**64 - 1, 1.0)), "malformed"),
    ],
)
async def test_a_bad_draft_is_dropped_counted_and_the_next_one_is_used(changes, reason):
    def reply(frame):
        ask = frame.asks[0]
        good = draft_for(ask, 7, 8)
        bad = dataclasses.replace(good, **changes)
        return [reply_to(frame, bad if ask.base_len == 3 else good)]

    async with drafter(answering(reply)) as client:
        first = await propose(client)
        assert first.drafts == {}
        assert first.fallbacks == {1: reason}
        assert client.counters.dropped == {reason: 1}
        second = await propose(client, (1, 2, 3, 4))
        assert second.drafts[1].token_ids == (7, 8)
        assert client.counters.losses == {}


async def test_drafts_for_others_are_dropped_as_unknown_or_stale():
    def reply(frame):
        ask = frame.asks[0]
        other = dataclasses.replace(draft_for(ask, 7), sequence_id=99)
        return [
            reply_to(frame, other, round_credits=0),
            reply_to(frame, draft_for(ask, 7), round_id=55, round_credits=0),
            reply_to(frame, draft_for(ask, 8)),
            reply_to(frame, draft_for(ask, 9)),  # the same again
        ]

    async with drafter(answering(reply)) as client:
        drafts = await propose(client)
        assert drafts.drafts[1].token_ids == (8,)
        await eventually(lambda: client.counters.dropped == {"stale": 2, "unknown": 1})


async def test_unknown_codes_and_frames_from_the_future():
    def reply(frame):
        error = m.SequenceError(1, m.ErrorCode.UNSPECIFIED)
        return [b"\x7a\x03abc", m.UnknownFrame(), reply_to(frame, errors=(error,))]

    async with drafter(answering(reply)) as client:
        assert (await propose(client)).fallbacks == {1: "refused"}
        assert client.counters.frames_unknown == 2


@pytest.mark.parametrize(
    "code, reason, reopened",
    [
        (m.ErrorCode.UNKNOWN_SEQUENCE, "unknown_sequence", True),
        (m.ErrorCode.OUT_OF_SYNC, "out_of_sync", True),
        (m.ErrorCode.RESOURCE_EXHAUSTED, "resource_exhausted", True),
        (m.ErrorCode.NO_SLOT, "no_slot", True),
        (m.ErrorCode.SUPERSEDED, "stale", False),
        (m.ErrorCode.CARD_FAILED, "card_failed", False),
        (m.ErrorCode.DEADLINE_EXPIRED, "timeout", False),
    ],
)
async def test_after_an_error_the_server_is_brought_back_in_step(code, reason, reopened):
    rounds = []

    def reply(frame):
        rounds.append(frame)
        if len(rounds) == 1:
            return [reply_to(frame, errors=(m.SequenceError(1, code),))]
        return [reply_to(frame, draft_for(frame.asks[0], 7))]

    async with drafter(answering(reply), no_slot_retry_s=0.0) as client:
        assert (await propose(client)).fallbacks == {1: reason}
        assert (await propose(client, (1, 2, 3, 4))).drafts
    assert bool(rounds[1].opens) == reopened
    if reopened:
        assert rounds[1].opens[0].token_ids == (1, 2, 3, 4)
    else:
        assert rounds[1].commits[0].token_ids == (4,)


async def test_a_draft_beyond_context_is_not_asked_for_again():
    rounds = []

    def reply(frame):
        rounds.append(frame)
        return [reply_to(frame, errors=(m.SequenceError(1, m.ErrorCode.CONTEXT_EXCEEDED),))]

    async with drafter(answering(reply)) as client:
        for _ in range(3):
            assert (await propose(client)).fallbacks == {1: "draft_ctx"}
    assert len(rounds) == 1


async def test_credits_cannot_be_forged():
    """A server that gives back more than it took does not make the client flood it."""

    def reply(frame):
        return [reply_to(frame, draft_for(frame.asks[0], 7), round_credits=1_000_000)]

    async with drafter(answering(reply)) as client:
        await propose(client)
        assert client._link.round_credits == HELLO.round_credits


# ---- frames that are no frames ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_random_bytes_cost_the_stream_and_no_token(seed):
    rng = random.Random(seed)

    def reply(frame):
        noise = [b"\xff" + rng.randbytes(rng.randrange(80)) for _ in range(5)]
        return [*noise, reply_to(frame, *(draft_for(a, 7, 8) for a in frame.asks))]

    async with drafter(answering(reply)) as client:
        runs = await generate(client, MODEL, [[1, 2], [3]], num_tokens=20)
        assert [run.output for run in runs] == [plain(MODEL, p, 20) for p in ([1, 2], [3])]
        assert client.counters.frames_malformed >= 15
        assert client.counters.losses.get("malformed", 0) >= 1


async def test_silence_instead_of_answers_is_noticed_by_the_heartbeat():
    async def script(stream):
        yield HELLO
        await asyncio.sleep(60)

    async with drafter(script, deadline_s=30.0, heartbeat_timeout_s=0.2) as client:
        started = asyncio.get_running_loop().time()
        assert (await propose(client)).fallbacks == {1: "disconnected"}
        assert asyncio.get_running_loop().time() - started < 5
        assert client.counters.losses == {"silence": 1}


async def test_goaway_ends_the_round_at_once_and_the_client_comes_back():
    num_streams = []

    async def script(stream):
        num_streams.append(1)
        yield HELLO
        frame = await stream.read()
        if frame is None:
            return
        if len(num_streams) == 1:
            yield m.Goaway(m.GoawayReason.DRAINING, "bye")
            return
        yield reply_to(frame, draft_for(frame.asks[0], 7))
        await stream.read()

    async with drafter(script, deadline_s=30.0) as client:
        assert (await propose(client)).fallbacks == {1: "disconnected"}
        await eventually(lambda: client.connected and client.counters.connects == 2)
        assert (await propose(client)).drafts[1].token_ids == (7,)
        assert client.counters.losses == {"draining": 1}


# ---- hellos -------------------------------------------------------------------------------------


def card(**changes):
    return dataclasses.replace(HELLO, card=CardInfo(**{**CARD_FIELDS, **changes}))


@pytest.mark.parametrize(
    "first, error, says",
    [
        (dataclasses.replace(HELLO, protocol_version=2), VersionError, "chose protocol version 2"),
        (m.Goaway(m.GoawayReason.VERSION, "", 2, 5), VersionError, r"versions 2\.\.5"),
        (card(target_tokenizer_sha256="c" * 64), PairError, "built for tokenizer cccccccccccc"),
        (card(vocab_size=999), PairError, "knows 999 token ids, the target 1000"),
        (m.Goaway(m.GoawayReason.PAIR, "not for you"), PairError, "not for you"),
        (m.Goaway(m.GoawayReason.BUSY, "full"), DraftUnavailableError, "busy: full"),
        (m.Heartbeat(1), ProtocolError, "no hello"),
        (b"\xffgarbage", ProtocolError, "is not a DraftResponse"),
        (card(num_slots=0), ProtocolError, "max_sequences is 0"),
    ],
)
async def test_a_server_that_will_not_do(first, error, says):
    async def script(stream):
        await stream.read(m.ClientHello)
        yield first

    async with raw_server(script) as address:
        config = DraftClientConfig(connect_timeout_s=0.3)
        client = CardDrafter(address, IDENTITY, config)
        with pytest.raises(error, match=says):
            await client.connect()
        reason = {VersionError: "version", PairError: "pair"}.get(error, "disconnected")
        assert (await propose(client)).fallbacks == {1: reason}
        await client.close()


async def test_the_hello_names_the_target():
    hellos = []

    async def script(stream):
        hellos.append(await stream.read(m.ClientHello))
        yield HELLO
        await stream.read()

    async with drafter(script) as client:
        assert client.connected
    expected = client_hello(
        build=hellos[0].build, client_id=hellos[0].client_id, max_frame_bytes=4 << 20,
        heartbeat_timeout_us=1_000_000,
    )  # fmt: skip
    assert hellos[0] == expected


async def test_prompts_too_large_for_one_frame_are_split():
    frames = []
    big = dataclasses.replace(
        HELLO,
        card=CardInfo(**{**CARD_FIELDS, "max_context_tokens": 1_000_000}),
        max_frame_bytes=4_000,
    )

    async def script(stream):
        yield big
        while (frame := await stream.read()) is not None:
            frames.append(frame)
            if frame.asks:
                yield reply_to(frame, *(draft_for(a, 7) for a in frame.asks))

    async with drafter(script) as client:
        queries = tuple(query(i, [i] * 400) for i in range(1, 6))
        drafts = await client.propose(DraftBatch(1, queries))
        assert set(drafts.drafts) == {1, 2, 3, 4, 5}
    assert [len(frame.opens) for frame in frames] == [1, 1, 1, 1, 1]
    assert [len(frame.asks) for frame in frames] == [0, 0, 0, 0, 5]


async def test_a_prompt_too_large_for_any_frame_goes_undrafted():
    big = dataclasses.replace(card(max_context_tokens=1_000_000), max_frame_bytes=4_000)

    async def script(stream):
        yield big
        await stream.read()

    async with drafter(script) as client:
        drafts = await propose(client, [5] * 1_000)
        assert drafts.fallbacks == {1: "resource_exhausted"}
