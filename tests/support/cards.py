"""Draft cards in pure Python: each is a ports.CardDriver whose drafts the test decides.

Every double keeps the KV cache a real card would keep, one token per position and slot, and
drafts from what it *holds*, not from what it was told last. A hole or a stale token left by the
caller's bookkeeping therefore changes the drafts, as on hardware, and is noted in ``faults``.

    FakeCard(hash_model(vocab_size))                always right, if that is also the target
    FakeCard(next_from_sequences([full_ids, ...]))  replays known outputs, any temperature
    FakeCard(wrong(next_token, vocab_size))         never accepted
    GarbageCard(rng_seed)                           random ids, some outside the vocabulary
    ScriptedCard([[5, 6], [], [7]])                 the n-th draft asked for is the n-th script
    SlowCard(card, delay_s)                         sleeps in each start that drafts
    GatedCard(card)                                 each start waits until ``gate`` is set
    FailingCard(card, {2, 3})                       these starts (1 is the first) raise CardError
"""

import hashlib
import random
import struct
import threading
import time
from collections.abc import Callable, Container, Sequence

from hetero.core.errors import CardError
from hetero.core.types import CardInfo, CardRun, CardUsage, LaneResult, LaneWork

NextToken = Callable[[Sequence[int]], int]
"""All tokens so far -> the token that follows them."""

HOLE = -1
"""What a position holds that the caller claimed to have read but never did."""

CYCLES_PER_TOKEN = 1_000


def card_info(**overrides) -> CardInfo:
    """A small card; override any CardInfo field by name."""
    fields = dict(
        device="double",
        backend="python",
        simulated=True,
        num_slots=4,
        max_lanes=4,
        max_context_tokens=512,
        max_draft_tokens=16,
        max_prefill_tokens=32,
        vocab_size=256,
        clock_hz=100_000_000,
        artefact_sha256="a" * 64,
        target_tokenizer_sha256="b" * 64,
    )
    return CardInfo(**{**fields, **overrides})


# ---- targets ----------------------------------------------------------------------------------


def hash_model(vocab_size: int = 256, *, salt: int = 0) -> NextToken:
    """A deterministic "model": the next token depends on every earlier token and its position."""

    def next_token(token_ids: Sequence[int]) -> int:
        packed = struct.pack(f"<{len(token_ids) + 1}q", salt, *token_ids)
        digest = hashlib.blake2b(packed, digest_size=8).digest()
        return int.from_bytes(digest, "little") % vocab_size

    return next_token


def next_from_sequences(sequences: Sequence[Sequence[int]], *, default: int = 0) -> NextToken:
    """Continue whichever known sequence (prompt + output) has the given tokens as its prefix.

    This is how to have an always-right card for a real target at any temperature: decode once
    without drafts, then replay. Two sequences with the same prompt and different seeds cannot be
    told apart before they diverge; the first one listed wins.
    """
    table: dict[bytes, int] = {}
    for sequence in sequences:
        digest = hashlib.blake2b(digest_size=16)
        for token in sequence:
            table.setdefault(digest.digest(), token)
            digest.update(struct.pack("<q", token))

    def next_token(token_ids: Sequence[int]) -> int:
        packed = struct.pack(f"<{len(token_ids)}q", *token_ids)
        return table.get(hashlib.blake2b(packed, digest_size=16).digest(), default)

    return next_token


def wrong(next_token: NextToken, vocab_size: int = 256) -> NextToken:
    """Always another token than ``next_token`` would give."""
    return lambda token_ids: (next_token(token_ids) + 1) % vocab_size


# ---- cards ------------------------------------------------------------------------------------


class FakeCard:
    """Drafts with ``next_token`` from the tokens its slots hold."""

    def __init__(self, next_token: NextToken, *, info: CardInfo | None = None) -> None:
        self.info = info or card_info()
        self.next_token = next_token
        self.kv: dict[int, list[int]] = {slot: [] for slot in range(self.info.num_slots)}
        self.runs: list[tuple[LaneWork, ...]] = []  # everything asked of the card, in order
        self.faults: list[str] = []  # breaches of the CardDriver contract by the caller
        self.closed = False

    def run(self, work: Sequence[LaneWork]) -> CardRun:
        self.runs.append(tuple(work))
        self._check(work)
        lanes = tuple(self._run_lane(lane) for lane in work)
        tokens = sum(len(w.token_ids) + len(r.token_ids) for w, r in zip(work, lanes, strict=True))
        cycles = tokens * CYCLES_PER_TOKEN
        return CardRun(lanes, CardUsage(cycles, cycles / self.info.clock_hz))

    def close(self) -> None:
        self.closed = True

    def forget(self) -> None:
        """Lose all KV, as after a failed start."""
        self.kv = {slot: [] for slot in self.kv}

    def draft(self, lane: LaneWork, held: list[int]) -> list[int]:
        """Tokens to draft for ``lane`` whose slot now holds ``held``. Override me."""
        tokens = list(held)
        for _ in range(lane.num_draft_tokens):
            tokens.append(self.next_token(tokens))
        return tokens[len(held) :]

    def _run_lane(self, lane: LaneWork) -> LaneResult:
        held = self.kv[lane.slot]
        held += [HOLE] * (lane.start - len(held))
        held[lane.start :] = lane.token_ids
        drafted = self.draft(lane, held) if lane.num_draft_tokens else []
        held += drafted[:-1]
        return LaneResult(lane.slot, tuple(drafted), tuple(0.5 for _ in drafted))

    def _check(self, work: Sequence[LaneWork]) -> None:
        info = self.info
        self._expect(0 < len(work) <= info.max_lanes, f"{len(work)} lanes")
        self._expect(len({lane.slot for lane in work}) == len(work), "one slot in two lanes")
        for lane in work:
            read, drafts = len(lane.token_ids), lane.num_draft_tokens
            self._expect(lane.slot in self.kv, f"slot {lane.slot}")
            held = len(self.kv.get(lane.slot, ()))
            self._expect(lane.start <= held, f"start {lane.start} beyond the {held} tokens held")
            self._expect(0 < read <= info.max_prefill_tokens, f"{read} tokens to read")
            self._expect(0 <= drafts <= info.max_draft_tokens, f"{drafts} tokens to draft")
            self._expect(
                lane.start + read + drafts <= info.max_context_tokens,
                f"{lane.start} + {read} + {drafts} tokens of context",
            )
            self._expect(
                all(0 <= token < info.vocab_size for token in lane.token_ids), "token id to read"
            )

    def _expect(self, condition: bool, fault: str) -> None:
        if not condition:
            self.faults.append(fault)


class GarbageCard(FakeCard):
    """Random ids up to ``ceiling`` (default: twice the vocabulary), reproducible."""

    def __init__(
        self, rng_seed: int = 0, *, info: CardInfo | None = None, ceiling: int | None = None
    ) -> None:
        super().__init__(lambda _: 0, info=info)
        self._random = random.Random(rng_seed)
        self._ceiling = ceiling or 2 * self.info.vocab_size

    def draft(self, lane: LaneWork, held: list[int]) -> list[int]:
        return [self._random.randrange(self._ceiling) for _ in range(lane.num_draft_tokens)]


class ScriptedCard(FakeCard):
    """The n-th draft that is asked for is the n-th script, cut to the length asked for.

    When the script has run out, drafts are empty.
    """

    def __init__(self, scripts: Sequence[Sequence[int]], *, info: CardInfo | None = None) -> None:
        super().__init__(lambda _: 0, info=info)
        self._scripts = [list(script) for script in scripts]

    def draft(self, lane: LaneWork, held: list[int]) -> list[int]:
        return self._scripts.pop(0)[: lane.num_draft_tokens] if self._scripts else []


class SlowCard:
    """``card``, with ``delay_s`` of sleep in each start that drafts something."""

    def __init__(self, card: FakeCard, delay_s: float) -> None:
        self.card = card
        self.info = card.info
        self.delay_s = delay_s

    def run(self, work: Sequence[LaneWork]) -> CardRun:
        if any(lane.num_draft_tokens for lane in work):
            time.sleep(self.delay_s)
        return self.card.run(work)

    def close(self) -> None:
        self.card.close()


class GatedCard:
    """``card``, each start of which waits until ``gate`` is set; ``started`` tells it waits."""

    def __init__(self, card: FakeCard) -> None:
        self.card = card
        self.info = card.info
        self.gate = threading.Event()
        self.started = threading.Event()

    def run(self, work: Sequence[LaneWork]) -> CardRun:
        self.started.set()
        if not self.gate.wait(timeout=60):
            raise CardError("the test never opened the gate")
        return self.card.run(work)

    def close(self) -> None:
        self.gate.set()
        self.card.close()


class FailingCard:
    """``card``, whose numbered starts (the first is 1) fail and lose all KV.

    ``failures``: anything with ``in``, for instance a set or a range.
    """

    def __init__(
        self,
        card: FakeCard,
        failures: Container[int],
        *,
        error: Callable[[], Exception] = lambda: CardError("card fault injected by the test"),
    ) -> None:
        self.card = card
        self.info = card.info
        self.failures = failures
        self.error = error
        self.num_starts = 0

    def run(self, work: Sequence[LaneWork]) -> CardRun:
        self.num_starts += 1
        if self.num_starts in self.failures:
            self.card.forget()
            raise self.error()
        return self.card.run(work)

    def close(self) -> None:
        self.card.close()
