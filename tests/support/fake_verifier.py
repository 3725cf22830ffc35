"""A target model in microseconds: the next token is a hash of everything before it.

``FakeVerifier`` is a ports.Verifier with real acceptance (the target draws its own token for each
row; drafts stand while they are equal) and a KV cache that holds the tokens it was fed. Each draw
hashes what the *cache* holds, so a hole, a stale draft or a wrong position changes the output as
it would change a model's. Every misuse of the port is an AssertionError.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hetero.core.errors import CapacityError
from hetero.core.types import (
    KvUsage,
    SamplingParams,
    SequenceId,
    Verdict,
    VerifierInfo,
    VerifyItem,
)

Target = Callable[[Sequence[int], int, SamplingParams], int]
"""(tokens so far, number of prompt tokens, sampling) -> the token that follows."""


def info(**overrides) -> VerifierInfo:
    fields = dict(
        model_name="fake",
        vocab_size=128,
        max_context_tokens=2048,
        eos_token_ids=(0,),
        tokenizer_sha256="b" * 64,
        system_fingerprint="fp_fake",
        device="cpu",
        dtype="none",
    )
    return VerifierInfo(**{**fields, **overrides})


INFO = info()


def hash_target(vocab_size: int = 128, eos_token_ids: Sequence[int] = (0,)) -> Target:
    """Depends on all tokens and, above temperature 0, on seed and choice. Honours min_tokens."""

    def next_token(token_ids: Sequence[int], num_prompt: int, sampling: SamplingParams) -> int:
        key = (sampling.seed, sampling.choice_index) if sampling.temperature > 0 else (0, 0)
        masked = set(sampling.stop_token_ids)
        if not sampling.ignore_eos:
            masked |= set(eos_token_ids)
        if len(token_ids) - num_prompt >= sampling.min_tokens:
            masked = set()
        for attempt in range(1000):
            packed = struct.pack(f"<QQq{len(token_ids)}q", *key, attempt, *token_ids)
            digest = hashlib.blake2b(packed, digest_size=8).digest()
            token_id = int.from_bytes(digest, "little") % vocab_size
            if token_id not in masked:
                return token_id
        raise AssertionError("everything is masked")

    return next_token


def scripted_target(outputs: Sequence[int]) -> Target:
    """Says ``outputs`` one after the other, whatever the prompt; then the last one for ever."""

    def next_token(token_ids: Sequence[int], num_prompt: int, sampling: SamplingParams) -> int:
        return outputs[min(len(token_ids) - num_prompt, len(outputs) - 1)]

    return next_token


@dataclass
class _Cache:
    max_tokens: int
    tokens: list[int] = field(default_factory=list)
    num_committed: int = 0


class FakeVerifier:
    """See the module. ``fail_steps``: numbers of the verify calls (1 is the first) that raise."""

    def __init__(
        self,
        target: Target | None = None,
        *,
        info: VerifierInfo = INFO,
        num_blocks: int = 4096,
        block_tokens: int = 16,
        fail_steps: Sequence[int] = (),
    ) -> None:
        self.info = info
        self._target = target or hash_target(info.vocab_size, info.eos_token_ids)
        self._num_blocks = num_blocks
        self._block_tokens = block_tokens
        self._fail_steps = set(fail_steps)
        self._caches: dict[SequenceId, _Cache] = {}
        self._busy = False
        self.steps: list[list[VerifyItem]] = []
        self.released: list[SequenceId] = []

    def can_admit(self, num_tokens: int) -> bool:
        return self._blocks(num_tokens) <= self.kv_usage().free_blocks

    def admit(self, sequence_id: SequenceId, num_tokens: int) -> None:
        assert sequence_id not in self._caches, "admitted twice"
        assert num_tokens <= self.info.max_context_tokens
        if not self.can_admit(num_tokens):
            raise CapacityError("no room")
        self._caches[sequence_id] = _Cache(num_tokens)

    async def verify(self, items: Sequence[VerifyItem]) -> list[Verdict]:
        assert not self._busy, "verify calls overlap"
        assert items, "empty step"
        assert len({item.sequence_id for item in items}) == len(items)
        self._busy = True
        try:
            self.steps.append(list(items))
            await self.before_step(len(self.steps))
            if len(self.steps) in self._fail_steps:
                raise RuntimeError("the accelerator fell off the bus")
            verdicts = [self._run(item) for item in items]
            return [verdict for verdict in verdicts if verdict is not None]
        finally:
            self._busy = False

    async def before_step(self, number: int) -> None:
        """Override, or replace, to let something happen while a step runs."""

    def commit(self, sequence_id: SequenceId, num_tokens: int) -> None:
        cache = self._caches[sequence_id]
        assert cache.num_committed <= num_tokens <= len(cache.tokens), "commit out of range"
        cache.num_committed = num_tokens
        del cache.tokens[num_tokens:]

    def release(self, sequence_id: SequenceId) -> None:
        self.released.append(sequence_id)
        self._caches.pop(sequence_id, None)

    def kv_usage(self) -> KvUsage:
        committed = sum(self._blocks(c.num_committed) for c in self._caches.values())
        held = sum(self._blocks(c.max_tokens) for c in self._caches.values())
        return KvUsage(
            total_blocks=self._num_blocks,
            free_blocks=self._num_blocks - held,
            committed_blocks=committed,
            reserved_blocks=held - committed,
            num_sequences=len(self._caches),
        )

    def _blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._block_tokens)

    def _run(self, item: VerifyItem) -> Verdict | None:
        cache = self._caches[item.sequence_id]
        assert item.start == cache.num_committed == len(cache.tokens), "not at the cache's end"
        assert item.token_ids, "nothing to read"
        rows = [*item.token_ids, *item.draft_token_ids]
        assert all(0 <= token_id < self.info.vocab_size for token_id in rows), "unknown token"
        assert item.start + len(rows) <= cache.max_tokens, "beyond the reservation"
        cache.tokens += rows
        if not item.sample:
            assert not item.draft_token_ids, "drafts before the end of the prompt"
            return None
        num_accepted = 0
        while True:
            known = item.start + len(item.token_ids) + num_accepted
            token_id = self._target(cache.tokens[:known], item.num_prompt_tokens, item.sampling)
            assert known < self.info.max_context_tokens, "sampled beyond the context"
            if item.draft_token_ids[num_accepted : num_accepted + 1] != (token_id,):
                num_drafted = len(item.draft_token_ids)
                return Verdict(item.sequence_id, num_drafted, num_accepted, token_id)
            num_accepted += 1
