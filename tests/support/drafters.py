"""Drafters that tests need: right, wrong, mad, late, dead, scripted. All are ports.Drafter."""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

from support.fake_verifier import Target

from hetero.core.types import (
    CardUsage,
    Draft,
    DraftBatch,
    DraftQuery,
    Drafts,
    GenerationRequest,
    SamplingParams,
    SequenceId,
)

CARD = CardUsage(cycles=1000, modelled_s=1e-5)
"""What each double claims that a draft has cost."""


class DrafterDouble:
    """Answers by ``draft_for``; remembers batches and releases."""

    def __init__(self, name: str = "card") -> None:
        self.name = name
        self.batches: list[DraftBatch] = []
        self.released: list[SequenceId] = []
        self.num_closed = 0

    def draft_for(self, query: DraftQuery) -> Sequence[int]:
        raise NotImplementedError

    async def propose(self, batch: DraftBatch) -> Drafts:
        self.batches.append(batch)
        return Drafts(
            drafts={
                q.sequence_id: Draft(
                    q.sequence_id, len(q.token_ids), tuple(self.draft_for(q)), card=CARD
                )
                for q in batch.queries
            }
        )

    def release(self, sequence_ids: Iterable[SequenceId]) -> None:
        self.released += sequence_ids

    async def close(self) -> None:
        self.num_closed += 1


class RightDrafter(DrafterDouble):
    """Knows the target: every draft is accepted."""

    def __init__(self, target: Target, name: str = "card") -> None:
        super().__init__(name)
        self._target = target

    def draft_for(self, query: DraftQuery) -> list[int]:
        tokens = list(query.token_ids)
        for _ in range(query.max_draft_tokens):
            tokens.append(self._target(tokens, query.num_prompt_tokens, query.sampling))
        return tokens[len(query.token_ids) :]


class WrongDrafter(RightDrafter):
    """Knows the target and says something else: no draft is accepted."""

    def __init__(self, target: Target, vocab_size: int) -> None:
        super().__init__(target)
        self._vocab_size = vocab_size

    def draft_for(self, query: DraftQuery) -> list[int]:
        return [(token_id + 1) % self._vocab_size for token_id in super().draft_for(query)]


class MixedDrafter(RightDrafter):
    """Right for a random stretch, then wrong; sometimes empty, always within the vocabulary."""

    def __init__(self, target: Target, vocab_size: int, rng_seed: int = 1) -> None:
        super().__init__(target)
        self._vocab_size = vocab_size
        self._random = random.Random(rng_seed)

    def draft_for(self, query: DraftQuery) -> list[int]:
        draft = super().draft_for(query)[: self._random.randint(0, query.max_draft_tokens)]
        for i in range(self._random.randint(0, len(draft)), len(draft)):
            draft[i] = self._random.randrange(self._vocab_size)
        return draft


class ScriptedDrafter(DrafterDouble):
    """The n-th batch gets the n-th script (every query the same); afterwards nothing."""

    def __init__(self, scripts: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self._scripts = list(scripts)

    def draft_for(self, query: DraftQuery) -> Sequence[int]:
        number = len(self.batches) - 1
        return self._scripts[number] if number < len(self._scripts) else ()


class GarbageDrafter(DrafterDouble):
    """Breaks every rule in turn: strange ids, too many, stale, for strangers, nothing at all."""

    def __init__(self, rng_seed: int = 1) -> None:
        super().__init__()
        self._random = random.Random(rng_seed)

    async def propose(self, batch: DraftBatch) -> Drafts:
        self.batches.append(batch)
        drafts = {q.sequence_id: self._nonsense(q) for q in batch.queries}
        drafts[SequenceId(10**9)] = Draft(SequenceId(10**9), 3, (1, 2, 3))
        return Drafts(drafts=drafts)

    def _nonsense(self, query: DraftQuery) -> Draft:
        length = len(query.token_ids)
        k = query.max_draft_tokens
        token_ids, base_len = self._random.choice(
            [
                ((10**12,) * k, length),
                ((-1,) * k, length),
                ((1,) * (k + 1), length),
                ((1,) * k, length - 1),
                ((1,) * k, length + 7),
                (tuple(self._random.randrange(100) for _ in range(k)), length),
                ((), length),
            ]
        )
        return Draft(query.sequence_id, base_len, token_ids, card=CARD)


class LateDrafter(RightDrafter):
    """Waits for its gate before each answer."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()

    async def propose(self, batch: DraftBatch) -> Drafts:
        self.asked.set()
        await self.gate.wait()
        return await super().propose(batch)


class MortalDrafter(RightDrafter):
    """Dies at some batches: names the reason, or (rudely) raises."""

    def __init__(
        self, target: Target, dead: Callable[[int], bool], *, reason: str | None = "disconnected"
    ) -> None:
        super().__init__(target)
        self._dead = dead
        self._reason = reason

    async def propose(self, batch: DraftBatch) -> Drafts:
        drafts = await super().propose(batch)
        if not self._dead(len(self.batches)):
            return drafts
        if self._reason is None:
            raise ConnectionResetError("card host gone")
        return Drafts(fallbacks={q.sequence_id: self._reason for q in batch.queries})


def replay(requests: Sequence[GenerationRequest], outputs: Sequence[Sequence[int]]) -> Target:
    """A "target" that knows what each request's plain decoding gave; token 0 beyond that."""
    known = {
        (one.prompt_token_ids, one.sampling): list(output)
        for one, output in zip(requests, outputs, strict=True)
    }

    def next_token(token_ids: Sequence[int], num_prompt: int, sampling: SamplingParams) -> int:
        output = known[tuple(token_ids[:num_prompt]), sampling]
        index = len(token_ids) - num_prompt
        return output[index] if index < len(output) else 0

    return next_token
