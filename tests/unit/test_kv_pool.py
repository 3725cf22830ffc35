"""Block accounting: hand-worked cases, then random traces against a naive model."""

import random

import pytest

from gpu_verifier.kv.pool import BlockPool
from hetero.core.errors import CapacityError
from hetero.core.types import KvUsage, SequenceId

A, B = SequenceId(1), SequenceId(2)


def test_reserve_promises_and_allocate_takes():
    pool = BlockPool(num_blocks=10, block_tokens=16)
    pool.reserve(A, 40)
    assert pool.usage() == KvUsage(10, 7, 0, 3, 1)
    assert pool.block_ids(A) == ()
    pool.allocate(A, 17)
    pool.commit(A, 1)
    assert len(pool.block_ids(A)) == 2
    assert pool.usage() == KvUsage(10, 7, 1, 2, 1)
    pool.check()


def test_blocks_of_two_sequences_never_meet():
    pool = BlockPool(num_blocks=8, block_tokens=16)
    pool.reserve(A, 64)
    pool.reserve(B, 64)
    for length in (10, 20, 50, 64):
        pool.allocate(A, length)
        pool.allocate(B, length)
    assert not set(pool.block_ids(A)) & set(pool.block_ids(B))


def test_a_full_pool_refuses_and_says_how_much_is_left():
    pool = BlockPool(num_blocks=4, block_tokens=16)
    pool.reserve(A, 49)
    assert not pool.can_reserve(1)
    with pytest.raises(CapacityError, match="1 positions need 1 KV blocks, 0 of 4 are free"):
        pool.reserve(B, 1)
    pool.release(A)
    assert pool.can_reserve(64)


def test_a_sequence_cannot_outgrow_its_reservation():
    pool = BlockPool(num_blocks=4, block_tokens=16)
    pool.reserve(A, 20)
    pool.allocate(A, 20)
    with pytest.raises(CapacityError, match="position 20 is beyond the 20"):
        pool.allocate(A, 21)


def test_commit_only_what_is_allocated_and_never_backwards():
    pool = BlockPool(num_blocks=4, block_tokens=16)
    pool.reserve(A, 20)
    pool.allocate(A, 8)
    pool.commit(A, 5)
    with pytest.raises(ValueError, match="cannot commit 9"):
        pool.commit(A, 9)
    with pytest.raises(ValueError, match="cannot commit 4"):
        pool.commit(A, 4)


def test_unknown_sequences():
    pool = BlockPool(num_blocks=4, block_tokens=16)
    pool.release(A)
    with pytest.raises(ValueError, match="not admitted"):
        pool.allocate(A, 1)
    pool.reserve(A, 1)
    with pytest.raises(ValueError, match="already admitted"):
        pool.reserve(A, 1)


@pytest.mark.parametrize("block_tokens", [1, 16, 64])
def test_rejected_lookahead_is_never_leaked(block_tokens):
    """K does not divide the block; after draining, every block is free.

    sgl-project/sglang#13741, sgl-project/sglang#27789, sgl-project/sglang-jax#1147.
    """
    pool = BlockPool(num_blocks=128, block_tokens=block_tokens)
    pool.reserve(A, 100)
    committed = 0
    for accepted in (0, 3, 7, 1, 0, 5):
        pool.allocate(A, committed + 8)
        committed += accepted + 1
        pool.commit(A, committed)
        pool.rollback(A)
        pool.check()
        assert len(pool.block_ids(A)) == pool.blocks_for(committed)
    pool.release(A)
    assert pool.usage() == KvUsage(128, 128, 0, 0, 0)


def test_the_uncommitted_range_goes_with_the_request():
    """EOS in the middle of a block: [committed, allocated) is freed too.

    sgl-project/sglang#19518.
    """
    pool = BlockPool(num_blocks=8, block_tokens=16)
    pool.reserve(A, 80)
    pool.allocate(A, 45)
    pool.commit(A, 21)
    pool.release(A)
    pool.check()
    assert pool.usage().free_blocks == 8


def test_check_shows_both_sides():
    pool = BlockPool(num_blocks=8, block_tokens=16)
    pool.reserve(A, 33)
    pool._unreserved += 1
    with pytest.raises(AssertionError, match=r"free 6 \+ committed 0 \+ reserved 3 = 9, total 8"):
        pool.check()


class NaivePool:
    """Counts in tokens and divides late; knows nothing of lists of ids."""

    def __init__(self, num_blocks, block_tokens):
        self.num_blocks, self.block_tokens = num_blocks, block_tokens
        self.lengths = {}  # id -> [reserved, allocated, committed], in tokens

    def blocks(self, tokens):
        return (tokens + self.block_tokens - 1) // self.block_tokens

    def usage(self):
        promised = sum(self.blocks(r) for r, _, _ in self.lengths.values())
        committed = sum(self.blocks(c) for _, _, c in self.lengths.values())
        return KvUsage(
            self.num_blocks,
            self.num_blocks - promised,
            committed,
            promised - committed,
            len(self.lengths),
        )


def _random_step(rng, pool, naive, next_id):
    known = list(naive.lengths)
    action = rng.choice(["admit", "allocate", "allocate", "commit", "rollback", "release"])
    if action == "admit":
        tokens = rng.randint(1, 6 * pool.block_tokens + 5)
        fits = naive.blocks(tokens) <= naive.usage().free_blocks
        assert pool.can_reserve(tokens) == fits
        if fits:
            pool.reserve(next_id, tokens)
            naive.lengths[next_id] = [tokens, 0, 0]
        else:
            with pytest.raises(CapacityError):
                pool.reserve(next_id, tokens)
        return
    if not known:
        return
    chosen = rng.choice(known)
    reserved, allocated, committed = naive.lengths[chosen]
    if action == "allocate":
        tokens = rng.randint(0, reserved)
        pool.allocate(chosen, tokens)
        naive.lengths[chosen][1] = max(allocated, tokens)
    elif action == "commit":
        tokens = rng.randint(committed, allocated)
        pool.commit(chosen, tokens)
        naive.lengths[chosen][2] = tokens
    elif action == "rollback":
        pool.rollback(chosen)
        naive.lengths[chosen][1] = committed
    else:
        pool.release(chosen)
        del naive.lengths[chosen]


@pytest.mark.parametrize("block_tokens", [1, 16, 64])
@pytest.mark.parametrize("seed", range(4))
def test_random_traces_agree_with_a_naive_model(block_tokens, seed):
    rng = random.Random(seed)
    pool, naive = BlockPool(40, block_tokens), NaivePool(40, block_tokens)
    for step in range(1500):
        _random_step(rng, pool, naive, SequenceId(step))
        pool.check()
        assert pool.usage() == naive.usage()
        for sequence_id, (_, allocated, committed) in naive.lengths.items():
            assert pool.allocated_len(sequence_id) == allocated
            assert pool.committed_len(sequence_id) == committed
            assert len(pool.block_ids(sequence_id)) == naive.blocks(allocated)
    for sequence_id in list(naive.lengths):
        pool.release(sequence_id)
    pool.check()
    assert pool.usage() == KvUsage(40, 40, 0, 0, 0)
