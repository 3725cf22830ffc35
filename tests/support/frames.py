"""Strategies and samples of protocol frames, and a clock that a test moves by hand."""

import numpy as np
from hypothesis import strategies as st

from hetero.core.types import CardInfo, CardUsage, SamplingParams
from hetero.draft_protocol import messages as m
from hetero.draft_protocol.limits import FrameLimits

LIMITS = FrameLimits(
    vocab_size=1000,
    max_context_tokens=64,
    max_draft_tokens=16,
    max_nodes=16,
    max_depth=8,
    max_frame_bytes=1 << 20,
    max_items=32,
)

CARD_FIELDS = dict(
    device="u55c",
    backend="functional",
    simulated=True,
    num_slots=8,
    max_lanes=4,
    max_context_tokens=64,
    max_draft_tokens=16,
    max_prefill_tokens=32,
    vocab_size=1000,
    clock_hz=300_000_000,
    artefact_sha256="a" * 64,
    target_tokenizer_sha256="b" * 64,
)


class FakeClock:
    """A MonotonicClock that stands still until ``advance``."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
token = st.integers(0, LIMITS.vocab_size - 1)
text = st.text(max_size=20)
fraction32 = st.floats(0, 1, width=32)
seconds = st.floats(0, 3600, allow_nan=False)

sampling = st.builds(
    SamplingParams,
    temperature=st.floats(0, 100),
    top_p=st.floats(0, 1),
    top_k=u32,
    min_p=st.floats(0, 1),
    seed=u64,
    choice_index=u32,
)


@st.composite
def opens(draw):
    tokens = tuple(draw(st.lists(token, min_size=1, max_size=20)))
    num_prompt = draw(st.integers(0, len(tokens)))
    mode = draw(st.sampled_from(m.WireVerifyMode))
    return m.Open(draw(u64), draw(u64), tokens, num_prompt, draw(sampling), mode)


@st.composite
def nodes(draw):
    """A tree: each node hangs on the root or on an earlier node."""
    ids = sorted(draw(st.sets(st.integers(1, 2**32 - 1), max_size=LIMITS.max_depth)))
    parents = [draw(st.sampled_from([0, *ids[:i]])) for i in range(len(ids))]
    tokens = [draw(token) for _ in ids]
    confidence = [draw(fraction32) for _ in ids] if draw(st.booleans()) else []
    rows = draw(q_rows(len(ids))) if draw(st.booleans()) else None
    return m.Nodes(tuple(ids), tuple(parents), tuple(tokens), tuple(confidence), rows)


@st.composite
def q_rows(draw, num_rows):
    starts, tokens, weights = [0], [], []
    for _ in range(num_rows):
        row = draw(st.lists(token, min_size=1, max_size=5, unique=True))
        cuts = sorted(draw(st.integers(0, 65536)) for _ in row[1:])
        weights += [high - low for low, high in zip([0, *cuts], [*cuts, 65536], strict=True)]
        tokens += row
        starts.append(len(tokens))
    return m.QRows(tuple(starts), tuple(tokens), tuple(weights))


hash16 = st.binary(min_size=16, max_size=16)
closes = st.builds(m.Close, u64, st.sampled_from(m.CloseReason))
commits = st.builds(
    m.Commit,
    u64,
    u64,
    u32,
    u32,
    st.lists(token, min_size=1, max_size=9).map(tuple),
    st.one_of(st.just(b""), hash16),
)
asks = st.builds(m.Ask, u64, u64, u32, st.integers(1, 16), st.integers(0, 16), u64)
resyncs = st.builds(m.Resync, u64, u64, st.integers(1, 64), hash16)
goaways = st.builds(m.Goaway, st.sampled_from(m.GoawayReason), text, u32, u32)
heartbeats = st.builds(m.Heartbeat, u64, u64, u64, st.booleans())
features = st.frozensets(st.sampled_from(m.Feature))
rounds = st.builds(
    m.Round,
    round_id=u64,
    closes=st.lists(closes, max_size=3).map(tuple),
    opens=st.lists(opens(), max_size=3).map(tuple),
    commits=st.lists(commits, max_size=3).map(tuple),
    asks=st.lists(asks, max_size=3).map(tuple),
    resyncs=st.lists(resyncs, max_size=2).map(tuple),
)
client_hellos = st.builds(
    m.ClientHello,
    min_protocol_version=u32,
    max_protocol_version=u32,
    build=text,
    client_id=u64,
    target_model=text,
    tokenizer_sha256=st.just("0123456789abcdef" * 4),
    vocab_size=u32,
    features=features,
    max_frame_bytes=u32,
    heartbeat_timeout_us=u32,
)
drafts = st.builds(
    m.DraftReply,
    sequence_id=u64,
    epoch=u64,
    base_len=u32,
    nodes=nodes(),
    usage=st.builds(CardUsage, st.integers(0, 1 << 44), seconds, seconds),
    simulated=st.booleans(),
    valid_tokens=u32,
    more=st.booleans(),
)
round_replies = st.builds(
    m.RoundReply,
    round_id=u64,
    drafts=st.lists(drafts, max_size=3).map(tuple),
    errors=st.lists(
        st.builds(m.SequenceError, u64, st.sampled_from(m.ErrorCode), text), max_size=3
    ).map(tuple),
    round_credits=u32,
    resyncs=st.lists(st.builds(m.ResyncResult, u64, u64, u32), max_size=2).map(tuple),
)
requests = st.one_of(rounds, client_hellos, heartbeats, goaways, st.just(m.UnknownFrame()))


def hidden_states(values_tld, *, start=3):
    return m.HiddenStates(7, 2, start, np.asarray(values_tld))


def server_hello(**changes):
    fields = dict(
        protocol_version=1,
        build="test",
        card=CardInfo(**CARD_FIELDS),
        max_nodes=16,
        max_depth=16,
        max_frame_bytes=1 << 20,
        round_credits=4,
        heartbeat_interval_us=50_000,
        serving=True,
    )
    return m.ServerHello(**{**fields, **changes})


def client_hello(**overrides):
    fields = dict(
        min_protocol_version=1,
        max_protocol_version=1,
        build="test",
        client_id=1,
        target_model="tiny",
        tokenizer_sha256="b" * 64,
        vocab_size=1000,
        max_frame_bytes=1 << 20,
        heartbeat_timeout_us=150_000,
    )
    return m.ClientHello(**{**fields, **overrides})
