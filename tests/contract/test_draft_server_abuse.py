"""What clients may do to a draft server: it answers, or drops and counts, and lives on."""

import asyncio
import contextlib
import random
import struct

import numpy as np
import pytest
from support.cards import FakeCard, GatedCard, card_info, hash_model
from support.draft_pair import generate, plain, running_pair, running_server
from support.frames import CARD_FIELDS, client_hello, hidden_states
from support.raw_draft import eventually, raw_client

from hetero.core.types import CardInfo, SamplingParams
from hetero.draft_protocol import messages as m
from hetero.draft_protocol.arrays import prefix_hash

MODEL = hash_model(1000)
INFO = CardInfo(**CARD_FIELDS)
GREEDY = SamplingParams()


def fresh_card(**changes):
    return FakeCard(MODEL, info=CardInfo(**{**CARD_FIELDS, **changes}))


def opening(sequence_id=1, tokens=(1, 2, 3), epoch=1):
    return m.Open(sequence_id, epoch, tuple(tokens), len(tokens), GREEDY)


def asking(sequence_id=1, base_len=3, epoch=1, k=4, **more):
    return m.Ask(sequence_id, epoch, base_len, k, **more)


async def errors_of(client, frame):
    """Send a round and return its errors by sequence."""
    await client.send(frame)
    reply = await client.read(m.RoundReply)
    return {e.sequence_id: e.code for e in reply.errors}


@contextlib.asynccontextmanager
async def serving(card, **config):
    """A server, and a client that has shaken hands with it."""
    async with running_server(card, **config) as (server, address), raw_client(address) as client:
        await client.hello(INFO)
        yield server, client


@pytest.fixture
async def server():
    async with running_server(fresh_card()) as (server, address):
        yield server, address


# ---- the hello ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [m.Round(round_id=1), m.Heartbeat(1), m.UnknownFrame()],
    ids=["round", "heartbeat", "unknown"],
)
async def test_the_first_frame_must_be_a_hello(server, first):
    async with raw_client(server[1]) as client:
        await client.send(first)
        goaway = await client.read(m.Goaway)
        assert goaway.reason == m.GoawayReason.PROTOCOL
        assert await client.read(m.Goaway) is None


@pytest.mark.parametrize(
    "changes, reason",
    [
        (dict(min_protocol_version=2, max_protocol_version=9), m.GoawayReason.VERSION),
        (dict(max_protocol_version=0, min_protocol_version=0), m.GoawayReason.VERSION),
        (dict(tokenizer_sha256="c" * 64), m.GoawayReason.PAIR),
        (dict(vocab_size=999), m.GoawayReason.PAIR),
        (dict(max_frame_bytes=1000), m.GoawayReason.PROTOCOL),
        (dict(heartbeat_timeout_us=1000), m.GoawayReason.PROTOCOL),
    ],
)
async def test_terms_that_do_not_fit(server, changes, reason):
    async with raw_client(server[1]) as client:
        goaway = await client.hello(INFO, **changes)
        assert goaway.reason == reason
        if reason == m.GoawayReason.VERSION:
            assert (goaway.min_protocol_version, goaway.max_protocol_version) == (1, 1)


async def test_a_client_that_also_speaks_newer_versions_is_served(server):
    async with raw_client(server[1]) as client:
        hello = await client.hello(INFO, max_protocol_version=7, features=frozenset(m.Feature))
        assert hello.protocol_version == 1
        assert hello.features == frozenset()


async def test_a_second_hello_is_malformed(server):
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        await client.send(client_hello())
        await eventually(lambda: server[0].counters.frames_malformed == 1)


# ---- sequences that are not what they seem ------------------------------------------------------


async def test_unknown_sequence(server):
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        frame = m.Round(round_id=1, commits=(m.Commit(5, 2, 3, 0, (4,)),), asks=(asking(6),))
        unknown = m.ErrorCode.UNKNOWN_SEQUENCE
        assert await errors_of(client, frame) == {5: unknown, 6: unknown}


@pytest.mark.parametrize(
    "entries",
    [
        dict(asks=(asking(epoch=2),)),
        dict(asks=(asking(epoch=0),)),
        dict(asks=(asking(base_len=4),)),
        dict(commits=(m.Commit(1, 2, 4, 0, (9,)),)),
        dict(commits=(m.Commit(1, 2, 3, 1, (9,)),)),  # no draft, so no node to accept
        dict(commits=(m.Commit(1, 2, 3, 0, (9,), b"x" * 16),)),  # a hash of other tokens
    ],
)
async def test_out_of_sync(server, entries):
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        await client.send(m.Round(round_id=1, opens=(opening(),)))
        errors = await errors_of(client, m.Round(round_id=2, **entries))
        assert errors == {1: m.ErrorCode.OUT_OF_SYNC}


async def test_commit_by_node_and_by_tokens_agree(server):
    """The path to the accepted node, or the tokens spelt out: the same prefix, and its hash."""
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        opens = (opening(1), opening(2))
        await client.send(m.Round(round_id=1, opens=opens, asks=(asking(1), asking(2))))
        reply = await client.read(m.RoundReply)
        drafted = reply.drafts[0].nodes.tokens
        committed = (1, 2, 3, *drafted[:2], 77)
        check = prefix_hash(committed)
        await client.send(
            m.Round(
                round_id=2,
                commits=(
                    m.Commit(1, 2, 3, 2, (77,), check),
                    m.Commit(2, 2, 3, 0, committed[3:], check),
                ),
                asks=(asking(1, 6, 2), asking(2, 6, 2)),
            )
        )
        reply = await client.read(m.RoundReply)
        assert [d.nodes.tokens for d in reply.drafts] == [tuple(plain(MODEL, committed, 4))] * 2
        assert [d.valid_tokens for d in reply.drafts] == [5, 5]


async def test_stale_and_repeated_commits_are_dropped_and_counted(server):
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        commit = m.Commit(1, 5, 3, 0, (9,))
        again = m.Round(
            round_id=2, commits=(commit, m.Commit(1, 4, 3, 0, (8,))), asks=(asking(1, 4, 5),)
        )
        await client.send(m.Round(round_id=1, opens=(opening(),), commits=(commit,)))
        await client.send(again)
        reply = await client.read(m.RoundReply)
        assert reply.drafts[0].nodes.tokens == tuple(plain(MODEL, [1, 2, 3, 9], 4))
        assert server[0].counters.commits_stale == 2


async def test_closing_what_is_not_open_is_harmless(server):
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        frame = m.Round(
            round_id=1, closes=(m.Close(1), m.Close(99)), opens=(opening(),), asks=(asking(),)
        )
        await client.send(frame)
        assert (await client.read(m.RoundReply)).drafts


async def test_one_frame_closes_opens_and_asks():
    async with serving(fresh_card(num_slots=1)) as (_, client):
        await client.send(m.Round(round_id=1, opens=(opening(1),)))
        frame = m.Round(
            round_id=2,
            closes=(m.Close(1),),
            opens=(opening(2), opening(3)),
            asks=(asking(2), asking(3)),
        )
        assert await errors_of(client, frame) == {3: m.ErrorCode.NO_SLOT}
        assert [d.sequence_id for d in (await client.read(m.RoundReply)).drafts] == [2]


async def test_context_is_bounded(server):
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        frame = m.Round(round_id=1, opens=(opening(1, [5] * 64), opening(2, [5] * 60)))
        assert await errors_of(client, frame) == {1: m.ErrorCode.CONTEXT_EXCEEDED}
        frame = m.Round(round_id=2, commits=(m.Commit(2, 2, 60, 0, (5,) * 4),))
        assert await errors_of(client, frame) == {2: m.ErrorCode.CONTEXT_EXCEEDED}
        assert server[0].num_sequences == 0


async def test_a_bad_entry_harms_its_own_sequence_only(server):
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        frame = m.Round(
            round_id=1, opens=(opening(1, [1000]), opening(2)), asks=(asking(2), asking(1))
        )
        assert await errors_of(client, frame) == {1: m.ErrorCode.INVALID}
        assert [d.sequence_id for d in (await client.read(m.RoundReply)).drafts] == [2]


# ---- asks ---------------------------------------------------------------------------------------


async def test_every_ask_is_answered_once_and_credits_come_back():
    card = GatedCard(fresh_card())
    async with serving(card, round_credits=3) as (_, client):
        await client.send(
            m.Round(round_id=1, opens=(opening(1), opening(2)), asks=(asking(1), asking(2)))
        )
        await eventually(card.started.is_set)
        # 1 asks anew (the first is in the card), then ends; 2 goes on with a commit.
        await client.send(m.Round(round_id=2, asks=(asking(1),)))
        await client.send(
            m.Round(round_id=3, closes=(m.Close(1),), commits=(m.Commit(2, 2, 3, 0, (9,)),))
        )
        card.gate.set()
        seen, credits = [], 0
        while credits < 2:
            reply = await client.read(m.RoundReply)
            seen += [(reply.round_id, e.sequence_id, e.code) for e in reply.errors]
            seen += [(reply.round_id, d.sequence_id, "draft") for d in reply.drafts]
            credits += reply.round_credits
        superseded = m.ErrorCode.SUPERSEDED
        assert sorted(seen) == [(1, 1, superseded), (1, 2, superseded), (2, 1, superseded)]


async def test_asks_beyond_the_credit_are_refused():
    card = GatedCard(fresh_card())
    async with serving(card, round_credits=1) as (_, client):
        await client.send(m.Round(round_id=1, opens=(opening(1), opening(2)), asks=(asking(1),)))
        errors = await errors_of(client, m.Round(round_id=2, asks=(asking(2),)))
        assert errors == {2: m.ErrorCode.NO_CREDIT}
        card.gate.set()
        reply = await client.read(m.RoundReply)
        assert (reply.round_id, reply.round_credits) == (1, 1)
        await client.send(m.Round(round_id=3, asks=(asking(2),)))
        assert (await client.read(m.RoundReply)).drafts


async def test_an_ask_whose_time_is_over_is_not_drafted():
    card = GatedCard(fresh_card())
    async with serving(card) as (_, client):
        await client.send(m.Round(round_id=1, opens=(opening(1), opening(2)), asks=(asking(1),)))
        await eventually(card.started.is_set)
        await client.send(m.Round(round_id=2, asks=(asking(2, deadline_us=20_000),)))
        await asyncio.sleep(0.05)
        card.gate.set()
        assert (await client.read(m.RoundReply)).drafts
        reply = await client.read(m.RoundReply)
        assert [e.code for e in reply.errors] == [m.ErrorCode.DEADLINE_EXPIRED]
        assert len(card.card.runs) == 1


async def test_asking_twice_in_one_round_is_malformed(server):
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        await client.send(m.Round(round_id=1, opens=(opening(),), asks=(asking(), asking())))
        await eventually(lambda: server[0].counters.frames_malformed == 1)
        await client.send(m.Round(round_id=2, asks=(asking(),)))
        assert (await client.read(m.RoundReply)).drafts


# ---- noise --------------------------------------------------------------------------------------


async def test_unknown_kinds_and_features_are_ignored_and_counted(server):
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        await client.send(m.UnknownFrame())
        await client.send(b"\x7a\x03abc")
        extras = dict(
            hidden_states=(hidden_states(np.ones((1, 1, 1), np.float32)),),
            resyncs=(m.Resync(1, 1, 3, b"x" * 16),),
        )
        await client.send(m.Round(round_id=1, opens=(opening(),), asks=(asking(),), **extras))
        assert (await client.read(m.RoundReply)).drafts
        assert server[0].counters.frames_unknown == 4


async def test_random_bytes_end_the_stream_at_last_not_the_server(server):
    rng = random.Random(7)
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        for _ in range(16):
            await client.send(b"\xff" + rng.randbytes(60))
        assert (await client.read(m.Goaway)).reason == m.GoawayReason.PROTOCOL
    assert server[0].counters.frames_malformed == 16
    async with raw_client(server[1]) as client:
        assert isinstance(await client.hello(INFO), m.ServerHello)


async def test_noise_on_one_stream_does_not_touch_another():
    card = FakeCard(hash_model())
    async with running_pair(card, server_config=dict(max_frame_bytes=1 << 20)) as pair:
        stop = asyncio.Event()

        async def make_noise():
            rng = random.Random(3)
            while not stop.is_set():
                async with raw_client(pair.address) as client:
                    await client.hello(card.info, client_id=rng.getrandbits(64))
                    for _ in range(10):
                        await client.send(rng.randbytes(rng.randrange(200)))
                    await client.send(
                        m.Round(
                            round_id=1, closes=(m.Close(1),), commits=(m.Commit(1, 99, 3, 0, (1,)),)
                        )
                    )

        noise = asyncio.ensure_future(make_noise())
        await asyncio.sleep(0.05)
        prompts = [[1, 2, 3], [4]]
        runs = await generate(pair.drafter, hash_model(), prompts, num_tokens=300)
        stop.set()
        await noise
    assert [run.output for run in runs] == [plain(hash_model(), p, 300) for p in prompts]
    assert all(run.num_accepted == run.num_drafted for run in runs)
    assert card.faults == []


async def test_an_oversized_frame_ends_the_stream_only(server):
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        await client.send(b"x" * (5 << 20))
        with pytest.raises(Exception, match="RESOURCE_EXHAUSTED"):
            await client.read(m.Goaway)
    async with raw_client(server[1]) as client:
        assert isinstance(await client.hello(INFO), m.ServerHello)


async def test_tcp_dropped_in_the_middle_of_a_frame(server):
    """ggml-org/llama.cpp#23242: drafting over the RPC backend crashed the server."""
    host, _, port = server[1].rpartition(":")
    settings_frame = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    data_frame_of_9999 = struct.pack(">I", 9999)[1:] + b"\x00\x00\x00\x00\x00\x01" + b"half"
    for garbage in (
        b"",
        b"GET / HTTP/1.0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings_frame + data_frame_of_9999,
    ):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(garbage)
        await writer.drain()
        writer.transport.abort()
    async with raw_client(server[1]) as client:
        assert isinstance(await client.hello(INFO), m.ServerHello)


# ---- dead clients -------------------------------------------------------------------------------


async def test_a_silent_client_loses_its_slots():
    async with serving(fresh_card(), client_timeout_s=0.15) as (server, client):
        await client.send(m.Round(round_id=1, opens=(opening(),)))
        await eventually(lambda: server.num_sequences == 1)
        assert (await client.read(m.Goaway)).reason == m.GoawayReason.SILENCE
        assert server.num_sequences == 0
        assert server.counters.streams_silent == 1


async def test_a_heartbeat_keeps_a_client_alive():
    async with serving(fresh_card(), client_timeout_s=0.3) as (server, client):
        await client.send(m.Round(round_id=1, opens=(opening(),)))
        for i in range(10):
            await client.send(m.Heartbeat(1 + i))
            await asyncio.sleep(0.05)
        assert server.num_sequences == 1
        assert server.counters.streams_silent == 0


async def test_the_servers_heartbeat_echoes_and_says_how_the_card_is(server):
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        await client.send(m.Heartbeat(123_456))
        await asyncio.sleep(0.1)
        for _ in range(20):
            beat = await client.read(m.Heartbeat)
            if beat.echo_us:
                break
        assert beat.echo_us == 123_456
        assert beat.serving


async def test_a_client_that_vanishes_frees_its_slots(server):
    async with raw_client(server[1]) as client:
        await client.hello(INFO)
        await client.send(m.Round(round_id=1, opens=(opening(),)))
        await eventually(lambda: server[0].num_sequences == 1)
    await eventually(lambda: server[0].num_sequences == 0)
    assert server[0].counters.streams_lost == 1


async def test_a_client_that_vanishes_with_an_ask_in_the_card():
    card = GatedCard(fresh_card())
    async with running_server(card) as (server, address):
        async with raw_client(address) as client:
            await client.hello(INFO)
            await client.send(m.Round(round_id=1, opens=(opening(),), asks=(asking(),)))
            await eventually(card.started.is_set)
        await eventually(lambda: server.num_sequences == 0)
        # Another client takes the slot while the card still writes into it.
        async with raw_client(address) as client:
            await client.hello(INFO, client_id=2)
            tokens = [8, 8, 8]
            await client.send(
                m.Round(
                    round_id=1,
                    opens=tuple(opening(i, tokens) for i in range(8)),
                    asks=tuple(asking(i) for i in range(8)),
                )
            )
            await asyncio.sleep(0.05)
            card.gate.set()
            drafts = []
            while len(drafts) < 8:
                drafts += (await client.read(m.RoundReply)).drafts
    assert {d.nodes.tokens for d in drafts} == {tuple(plain(MODEL, tokens, 4))}
    assert card.card.faults == []


async def test_heartbeats_go_on_while_the_card_computes():
    card = GatedCard(FakeCard(hash_model(), info=card_info()))
    async with running_pair(card, heartbeat_timeout_s=0.5) as pair:
        asked = asyncio.ensure_future(generate(pair.drafter, hash_model(), [[1, 2]], num_tokens=6))
        await eventually(card.started.is_set)
        await asyncio.sleep(0.8)
        assert pair.drafter.connected
        card.gate.set()
        (run,) = await asked
        assert run.fallbacks == []
        assert pair.drafter.counters.losses == {}


async def test_an_answer_for_a_sequence_that_was_closed_and_opened_anew():
    """Same id, same epoch, other tokens: what the card still drafts is not for it."""
    card = GatedCard(fresh_card())
    async with serving(card) as (_, client):
        await client.send(m.Round(round_id=1, opens=(opening(),), asks=(asking(),)))
        await eventually(card.started.is_set)
        reopened = m.Round(
            round_id=2, closes=(m.Close(1),), opens=(opening(1, (7, 7, 7)),), asks=(asking(),)
        )
        await client.send(reopened)
        await asyncio.sleep(0.05)
        card.gate.set()
        first = await client.read(m.RoundReply)
        assert (first.round_id, [e.code for e in first.errors]) == (1, [m.ErrorCode.SUPERSEDED])
        second = await client.read(m.RoundReply)
        assert second.drafts[0].nodes.tokens == tuple(plain(MODEL, (7, 7, 7), 4))
    assert card.card.faults == []
