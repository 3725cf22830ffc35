"""A draft server and a client on loopback, and a verifier of the simplest kind between them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from support.cards import NextToken

from hetero.core.types import DraftBatch, DraftQuery, Drafts, SamplingParams, SequenceId
from hetero.draft_client.client import CardDrafter
from hetero.draft_client.config import DraftClientConfig, TargetIdentity
from hetero.draft_server.config import DraftServerConfig
from hetero.draft_server.server import DraftServer

LISTEN = "127.0.0.1:0"


def identity_of(card) -> TargetIdentity:
    """What a target must be for this card's draft to fit."""
    info = card.info
    return TargetIdentity(
        tokenizer_sha256=info.target_tokenizer_sha256, vocab_size=info.vocab_size, model_name="tiny"
    )


@dataclass
class Pair:
    card: object
    server: DraftServer
    drafter: CardDrafter
    address: str


@contextlib.asynccontextmanager
async def running_server(card, *, listen: str = LISTEN, **config) -> AsyncIterator[tuple]:
    """(server, address)"""
    server = DraftServer(card, DraftServerConfig(**config))
    port = await server.start(listen)
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        await server.stop(grace_s=2.0)


@contextlib.asynccontextmanager
async def running_pair(card, *, server_config=None, **client_config) -> AsyncIterator[Pair]:
    """A connected server and client; extra arguments are DraftClientConfig fields."""
    async with running_server(card, **(server_config or {})) as (server, address):
        drafter = CardDrafter(address, identity_of(card), DraftClientConfig(**client_config))
        try:
            await drafter.connect()
            yield Pair(card, server, drafter, address)
        finally:
            await drafter.close()


def query(
    sequence_id: int,
    token_ids: Sequence[int],
    *,
    num_prompt_tokens: int | None = None,
    k: int = 5,
    **sampling,
) -> DraftQuery:
    return DraftQuery(
        SequenceId(sequence_id),
        list(token_ids),
        len(token_ids) if num_prompt_tokens is None else num_prompt_tokens,
        k,
        SamplingParams(**sampling),
    )


@dataclass
class Generation:
    """What ``generate`` did."""

    token_ids: list[int]
    num_prompt_tokens: int
    num_drafted: int = 0
    num_accepted: int = 0
    fallbacks: list[str] = field(default_factory=list)

    @property
    def output(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]


async def generate(
    drafter,
    target: NextToken,
    prompts: Sequence[Sequence[int]],
    *,
    num_tokens: int = 40,
    k: int = 5,
    first_id: int = 1,
    on_round: Callable[[int, Drafts], object] | None = None,
) -> list[Generation]:
    """Greedy speculative decoding of all prompts together; checks the Drafter's promises."""
    runs = {SequenceId(first_id + i): Generation(list(p), len(p)) for i, p in enumerate(prompts)}
    round_id = 0
    while live := [i for i, run in runs.items() if len(run.output) < num_tokens]:
        round_id += 1
        queries = tuple(
            query(i, runs[i].token_ids, num_prompt_tokens=runs[i].num_prompt_tokens, k=k)
            for i in live
        )
        drafts = await drafter.propose(DraftBatch(round_id, queries))
        assert set(drafts.drafts) | set(drafts.fallbacks) <= set(live)
        for i in live:
            _verify(runs[i], target, drafts, i, k=k, num_tokens=num_tokens)
        if on_round is not None:
            outcome = on_round(round_id, drafts)
            if asyncio.iscoroutine(outcome):
                await outcome
    drafter.release(runs)
    return list(runs.values())


def _verify(run, target, drafts, sequence_id, *, k, num_tokens):
    if sequence_id in drafts.fallbacks:
        run.fallbacks.append(drafts.fallbacks[sequence_id])
    draft = drafts.drafts.get(sequence_id)
    tokens = draft.token_ids if draft else ()
    assert draft is None or draft.base_len == len(run.token_ids)
    assert len(tokens) <= k
    run.num_drafted += len(tokens)
    for token in tokens:
        right = target(run.token_ids)
        run.token_ids.append(right)
        if token != right:
            break
        run.num_accepted += 1
    else:
        run.token_ids.append(target(run.token_ids))
    del run.token_ids[run.num_prompt_tokens + num_tokens :]


def plain(target: NextToken, prompt: Sequence[int], num_tokens: int = 40) -> list[int]:
    """Decoding without drafts."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(target(tokens))
    return tokens[len(prompt) :]
