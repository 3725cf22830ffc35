"""Bit for bit: the logits of a row are a function of its own prefix, whatever shares its batch."""

import random
from dataclasses import dataclass, field

import pytest
import torch
from support.tiny import TOKENIZER_VOCAB_SIZE

from gpu_verifier.attention.plan import SequenceRows
from gpu_verifier.kv.cache import PagedCache
from gpu_verifier.kv.pool import BlockPool
from gpu_verifier.model.target import StepRows, load_target, pad_to_tile

CPU = torch.device("cpu")
NUM_BLOCKS, BLOCK_TOKENS = 256, 16


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def target(request, tiny_checkpoint):
    torch.set_num_threads(1)
    return load_target(tiny_checkpoint, CPU, getattr(torch, request.param))


@dataclass
class Sequence:
    """A sequence whose logits are collected row by row, in whatever steps they come."""

    number: int
    tokens: list
    done: int = 0
    logits: list = field(default_factory=list)

    def take(self, rng, most):
        return min(rng.randint(1, most), len(self.tokens) - self.done)


class Bench:
    """A cache, a book, and steps over any mix of sequences."""

    def __init__(self, target):
        self.target = target
        self.cache = PagedCache(target.cache_shape(NUM_BLOCKS, BLOCK_TOKENS), CPU)
        self.pool = BlockPool(NUM_BLOCKS, BLOCK_TOKENS)

    def open(self, number, length, seed):
        tokens = random.Random(seed).choices(range(TOKENIZER_VOCAB_SIZE), k=length)
        self.pool.reserve(number, length)
        return Sequence(number, tokens)

    def step(self, parts, extra_padding=0):
        """``parts``: (sequence, rows to run). All logits are kept."""
        token_ids, rows = [], []
        for sequence, count in parts:
            end = sequence.done + count
            self.pool.allocate(sequence.number, end)
            token_ids += sequence.tokens[sequence.done : end]
            rows.append(SequenceRows(sequence.done, count, self.pool.block_ids(sequence.number)))
        step = StepRows(
            token_ids=tuple(token_ids),
            sequences=tuple(rows),
            logit_rows=tuple(range(len(token_ids))),
            num_padded_rows=pad_to_tile(len(token_ids)) + 16 * extra_padding,
        )
        logits = iter(self.target.forward(step, self.cache))
        for sequence, count in parts:
            sequence.logits += [next(logits).clone() for _ in range(count)]
            sequence.done += count


def one_row_at_a_time(target, length, seed):
    bench = Bench(target)
    sequence = bench.open(0, length, seed)
    while sequence.done < length:
        bench.step([(sequence, 1)])
    return torch.stack(sequence.logits)


@pytest.mark.parametrize("seed", range(3))
def test_random_batches_against_one_row_at_a_time(target, seed):
    """Six sequences advance by random amounts in random company, with spare padding."""
    rng = random.Random(seed)
    lengths = [rng.randint(1, 150) for _ in range(6)]
    bench = Bench(target)
    sequences = [bench.open(i, n, 100 * seed + i) for i, n in enumerate(lengths)]
    while alive := [s for s in sequences if s.done < len(s.tokens)]:
        chosen = rng.sample(alive, rng.randint(1, len(alive)))
        bench.step([(s, s.take(rng, rng.choice([1, 5, 40]))) for s in chosen], rng.randint(0, 3))
    for i, sequence in enumerate(sequences):
        expected = one_row_at_a_time(target, lengths[i], 100 * seed + i)
        assert torch.equal(torch.stack(sequence.logits), expected)


@pytest.mark.parametrize("low,high", [(120, 130), (250, 260), (380, 390), (510, 520)])
def test_random_chunk_boundaries_at_the_edges_of_splits(target, low, high):
    rng = random.Random(low)
    runs = []
    for attempt in range(4):
        bench = Bench(target)
        sequence = bench.open(0, high + 4, seed=low)
        neighbour = bench.open(1, 700, seed=1)
        bench.step([(neighbour, 600)] if attempt % 2 else [(neighbour, 3)])
        cuts = sorted({*rng.sample(range(low, high + 1), 3), high + 4})
        for cut in cuts:
            company = [(neighbour, 2)] if rng.random() < 0.5 else []
            bench.step([(sequence, cut - sequence.done), *company])
        runs.append(torch.stack(sequence.logits))
    assert all(torch.equal(runs[0], run) for run in runs[1:])


def test_the_place_in_a_tile_does_not_matter(target):
    """The same position as first, middle and last row of its tile."""
    expected = one_row_at_a_time(target, 40, seed=4)
    for first in range(1, 17):
        bench = Bench(target)
        sequence = bench.open(0, 40, seed=4)
        for count in (first, 16, 24 - first):
            if count:
                bench.step([(sequence, count)])
        assert torch.equal(torch.stack(sequence.logits), expected)


def test_stale_content_of_freed_blocks_is_invisible(target):
    """Blocks come back full of another sequence's keys, which must weigh exactly nothing."""
    bench = Bench(target)
    first = bench.open(0, 200, seed=1)
    bench.step([(first, 200)])
    bench.pool.release(0)
    again = bench.open(1, 130, seed=2)
    bench.step([(again, 130)])
    assert torch.equal(torch.stack(again.logits), one_row_at_a_time(target, 130, seed=2))


def test_block_size_does_not_matter(target, monkeypatch):
    expected = one_row_at_a_time(target, 150, seed=3)
    for block_tokens in (32, 64, 128):
        monkeypatch.setattr(f"{__name__}.BLOCK_TOKENS", block_tokens)
        assert torch.equal(one_row_at_a_time(target, 150, seed=3)[-3:], expected[-3:])
