"""PagedVerifier on a tiny model: whatever is drafted, however it is batched, the same tokens."""

import asyncio
import dataclasses
import random

import pytest
from support.stepping import Run, finish, step
from support.tiny import TOKENIZER_VOCAB_SIZE

from gpu_verifier.golden.plain_decoding import PlainDecoder
from gpu_verifier.load import VerifierConfig, load_verifier
from gpu_verifier.sampling.sampler import TokenRules
from hetero.core.errors import CapacityError, ContextOverflowError, RequestError
from hetero.core.types import SamplingParams, SequenceId, VerifyItem

GREEDY = SamplingParams()
WARM = SamplingParams(temperature=0.8, seed=1234)
LENGTH = 24


def load(tiny_checkpoint, **changes):
    cfg = VerifierConfig(
        model_dir=tiny_checkpoint,
        model_name="tiny",
        tokenizer_sha256="0" * 64,
        tokenizer_vocab_size=TOKENIZER_VOCAB_SIZE,
        threads=1,
        num_kv_blocks=160,
        max_batch_rows=128,
        dtype="float32",  # bfloat16 logits tie, and transformers' own sums differ by whole steps
    )
    return load_verifier(dataclasses.replace(cfg, **changes))


@pytest.fixture(scope="module")
def verifier(tiny_checkpoint):
    loaded = load(tiny_checkpoint)
    yield loaded
    assert loaded.kv_usage().free_blocks == 160
    loaded.close()


def prompt_of(length, seed=0):
    return random.Random(seed).choices(range(3, TOKENIZER_VOCAB_SIZE), k=length)


def plain(verifier, prompt, sampling, room=LENGTH):
    return asyncio.run(finish(verifier, [Run(1, prompt, sampling, room)]))[0]


# ---- the same tokens --------------------------------------------------------------------------


def test_plain_decoding_agrees_with_transformers_eager(verifier, tiny_checkpoint):
    """Multi-token steps on an empty and a growing cache equal a full recompute."""
    decoder = PlainDecoder(tiny_checkpoint)
    rules = TokenRules(TOKENIZER_VOCAB_SIZE, verifier.info.eos_token_ids)
    for sampling in (GREEDY, WARM, dataclasses.replace(WARM, top_p=0.9, top_k=40, min_p=0.01)):
        prompt = prompt_of(30, seed=5)
        steps = decoder.generate(prompt, LENGTH, sampling, rules)
        ours = plain(verifier, prompt, sampling)
        if ours != (theirs := [s.token_id for s in steps]):
            first = next(i for i in range(LENGTH) if ours[i] != theirs[i])
            pytest.fail(f"differ at {first}, where the best logit leads by {steps[first].lead}")


DRAFTERS = {
    "right": lambda truth, k: lambda done: truth[len(done) : len(done) + k],
    "wrong": lambda truth, k: lambda done: [(t + 1) % 375 for t in truth[len(done) :][:k]],
    "half": lambda truth, k: (
        lambda done: [t if i % 2 else (t + 7) % 375 for i, t in enumerate(truth)][
            len(done) : len(done) + k
        ]
    ),
    "random": lambda truth, k: lambda done: random.Random(len(done)).choices(range(375), k=k),
    "no tokens at all": lambda truth, k: lambda done: [truth[min(len(done), 23)], 10**9, -5, 7],
}


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_drafts_change_nothing(verifier, drafter, sampling, k):
    """ml-explore/mlx-lm#1423, ml-explore/mlx-lm#1470: output diverged with K = 2 and K = 4."""
    prompt = prompt_of(11, seed=k)
    truth = plain(verifier, prompt, sampling)
    run = Run(2, prompt, sampling, LENGTH, DRAFTERS[drafter](truth, k))
    assert asyncio.run(finish(verifier, [run])) == [truth]
    if drafter == "right":
        assert run.accepted >= LENGTH - 1 - LENGTH // (k + 1)
    if drafter == "wrong":
        assert run.accepted == 0


def test_a_batch_of_unlike_sequences_equals_each_alone(verifier):
    """Prompts, temperatures, drafters and chunks all differ; sgl-project/sglang#32666."""
    rng = random.Random(3)
    runs, alone = [], []
    for i in range(8):
        prompt = prompt_of(rng.randint(1, 60), seed=100 + i)
        sampling = SamplingParams(temperature=[0.0, 1.0, 1e-6, 0.7][i % 4], seed=i)
        truth = plain(verifier, prompt, sampling)
        drafts = DRAFTERS[list(DRAFTERS)[i % 5]](truth, 1 + i % 4)
        runs.append(Run(10 + i, prompt, sampling, LENGTH, drafts, chunks=[10] * 6))
        alone.append(truth)
    assert asyncio.run(finish(verifier, runs)) == alone


def test_tiny_temperatures_beside_greedy_and_warm(verifier):
    """vllm-project/vllm#27077: T = 0, 1e-6, 0.005 and 1 in one batch.

    At 1e-6 only logits within 3e-5 of the best could win; at 0.005 a near-tie may.
    """
    prompt = prompt_of(20, seed=8)
    runs = [
        Run(20 + i, prompt, SamplingParams(temperature=t, seed=9), LENGTH)
        for i, t in enumerate([0.0, 1e-6, 0.005, 1.0])
    ]
    greedy, tiny, small, warm = asyncio.run(finish(verifier, runs))
    assert greedy == tiny == plain(verifier, prompt, GREEDY)
    assert small == plain(verifier, prompt, SamplingParams(temperature=0.005, seed=9))
    assert warm != greedy


@pytest.mark.parametrize("near", [128, 256, 384, 512])
def test_chunk_boundaries_change_nothing(verifier, near):
    """Prefill cut at random places around every edge of a key split."""
    rng = random.Random(near)
    prompt = prompt_of(near + 6, seed=near)
    even = Run(30, prompt, WARM, 6, chunks=[100] * (near // 100 + 1))
    expected = asyncio.run(finish(verifier, [even]))
    for _ in range(3):
        chunks = [rng.randint(40, 100) for _ in range(near)]
        while sum(chunks) > near - 10:  # the rest ends in two cuts close to the edge
            chunks.pop()
        chunks += [near - sum(chunks) - rng.randint(0, 9), rng.randint(1, 9)]
        run = Run(31, prompt, WARM, 6, chunks=chunks)
        assert asyncio.run(finish(verifier, [run])) == expected


def test_rollback_then_another_continuation(verifier):
    """vllm-project/vllm#57128: the state of rejected drafts stayed reachable.

    The same positions are written again; nothing of the draft remains.
    """
    prompt = prompt_of(14, seed=6)
    truth = plain(verifier, prompt, GREEDY)
    first = Run(40, prompt, GREEDY, LENGTH, lambda done: [3] * 8)
    second = Run(40, prompt, GREEDY, LENGTH, lambda done: truth[len(done) : len(done) + 3])

    async def switch_drafter():
        verifier.admit(SequenceId(40), len(prompt) + LENGTH)
        await step(verifier, [first])
        second.output, second.start = first.output, first.start
        while not second.done:
            await step(verifier, [second])
        verifier.release(SequenceId(40))

    asyncio.run(switch_drafter())
    assert second.output[:LENGTH] == truth


def test_verify_without_commit_can_be_repeated(verifier):
    """A round whose verdict was dropped leaves nothing behind."""
    prompt = prompt_of(9, seed=2)
    truth = plain(verifier, prompt, GREEDY)
    run = Run(41, prompt, GREEDY, LENGTH, lambda done: [5, 6, 7])

    async def repeat():
        verifier.admit(SequenceId(41), len(prompt) + LENGTH)
        await verifier.verify([run.item()])
        run.drafts_for = None
        while not run.done:
            await step(verifier, [run])
        verifier.release(SequenceId(41))

    asyncio.run(repeat())
    assert run.output == truth


# ---- blocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("block_tokens", [16, 64])
def test_blocks_are_accounted_for_after_a_stop_in_mid_block(tiny_checkpoint, block_tokens):
    """sgl-project/sglang#19518, sgl-project/sglang#13741: K does not divide the block."""
    verifier = load(tiny_checkpoint, kv_block_tokens=block_tokens, num_kv_blocks=12)
    run = Run(1, prompt_of(17), GREEDY, 40, lambda done: [1, 2, 3, 4, 5])

    async def stop_early():
        verifier.admit(SequenceId(1), 57)
        for _ in range(3):
            await step(verifier, [run])
        await verifier.verify([run.item()])  # and the answer to this one is never committed
        usage = verifier.kv_usage()
        assert usage.free_blocks + usage.committed_blocks + usage.reserved_blocks == 12
        assert usage.reserved_blocks == -(-57 // block_tokens) - usage.committed_blocks
        verifier.release(SequenceId(1))

    asyncio.run(stop_early())
    verifier.check()
    assert verifier.kv_usage().free_blocks == 12
    verifier.close()


def test_admission(verifier):
    assert verifier.can_admit(1024)
    assert not verifier.can_admit(1025)
    with pytest.raises(ContextOverflowError, match="1025 positions, the target has 1024"):
        verifier.admit(SequenceId(50), 1025)
    for i in range(2):
        verifier.admit(SequenceId(50 + i), 1024)
    assert verifier.can_admit(512)
    assert not verifier.can_admit(513)
    with pytest.raises(CapacityError, match="33 KV blocks, 32 of 160 are free"):
        verifier.admit(SequenceId(52), 513)
    verifier.release(SequenceId(50))
    verifier.release(SequenceId(51))
    verifier.release(SequenceId(99))


# ---- what it refuses --------------------------------------------------------------------------


def item(**changes):
    base = VerifyItem(SequenceId(60), 0, (5, 6, 7), (), True, 3, GREEDY)
    return dataclasses.replace(base, **changes)


@pytest.mark.parametrize(
    "bad,error,match",
    [
        (item(start=3), ValueError, "rows start at 3, but 0 positions are committed"),
        (item(token_ids=()), ValueError, "needs a committed token"),
        (item(sample=False, draft_token_ids=(1,)), ValueError, "drafts only where it samples"),
        (item(token_ids=(5, 384)), RequestError, "must be in 0..383"),
        (item(token_ids=(-1,)), RequestError, "must be in 0..383"),
        (item(sequence_id=SequenceId(61)), ValueError, "61 is not admitted"),
        (item(draft_token_ids=(1,) * 90), CapacityError, "beyond the 90 positions reserved"),
        (item(token_ids=(5,) * 129, num_prompt_tokens=129), CapacityError, "beyond the 90"),
    ],
)
def test_bad_items_are_refused_and_harm_nobody(verifier, bad, error, match):
    verifier.admit(SequenceId(60), 90)
    with pytest.raises(error, match=match):
        asyncio.run(verifier.verify([bad]))
    verifier.check()
    assert asyncio.run(verifier.verify([item()]))[0].num_drafted == 0
    verifier.release(SequenceId(60))


def test_a_step_that_is_too_big_names_the_limit(verifier):
    verifier.admit(SequenceId(60), 200)
    with pytest.raises(CapacityError, match="129 rows exceeds max_batch_rows = 128"):
        asyncio.run(verifier.verify([item(token_ids=(5,) * 129, num_prompt_tokens=129)]))
    verifier.release(SequenceId(60))


def test_nothing_to_verify(verifier):
    assert asyncio.run(verifier.verify([])) == []


def test_calls_must_not_overlap(verifier):
    verifier.admit(SequenceId(60), 90)

    async def overlap():
        first = asyncio.create_task(verifier.verify([item()]))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already running"):
            await verifier.verify([item()])
        await first

    asyncio.run(overlap())
    verifier.release(SequenceId(60))


def test_the_event_loop_stays_free_while_a_step_computes(verifier):
    verifier.admit(SequenceId(60), 128)
    ticks = []

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0)

    async def both():
        ticker = asyncio.create_task(tick())
        await verifier.verify([item(token_ids=(5,) * 120, num_prompt_tokens=120)])
        ticker.cancel()

    asyncio.run(both())
    assert len(ticks) > 3
    verifier.release(SequenceId(60))
