"""Speculative equals plain, token for token, on a tiny random Llama in torch: the wide matrix."""

import asyncio
import random

import pytest
from support.drafters import (
    GarbageDrafter,
    MixedDrafter,
    MortalDrafter,
    RightDrafter,
    WrongDrafter,
    replay,
)
from support.engines import assert_all_free, collect, collect_all, open_engine, request
from support.tiny import TOKENIZER_VOCAB_SIZE

from gpu_verifier.load import VerifierConfig, load_verifier
from hetero.drafters.ngram import NgramDrafter
from hetero.drafters.none import NoDrafter

NUM_TOKENS = 24
PROMPT_LENGTHS = (1, 2, 7, 15, 16, 17, 40, 129)


def load_tiny(checkpoint, *, dtype="float32"):
    config = VerifierConfig(
        model_dir=checkpoint,
        model_name="tiny",
        tokenizer_sha256="b" * 64,
        tokenizer_vocab_size=TOKENIZER_VOCAB_SIZE,
        dtype=dtype,
        threads=1,
        num_kv_blocks=256,
        max_batch_rows=96,
        self_test=False,  # tested on its own
    )
    return load_verifier(config)


@pytest.fixture(scope="module")
def verifier(tiny_checkpoint):
    verifier = load_tiny(tiny_checkpoint)
    yield verifier
    verifier.close()


def requests_of(temperature, k):
    rng = random.Random(5)
    return [
        request(
            [rng.randrange(3, TOKENIZER_VOCAB_SIZE) for _ in range(length)],
            k=k,
            temperature=temperature,
            top_p=0.95 if i % 2 else 1.0,
            top_k=40 if i % 3 == 0 else 0,
            seed=i,
            max_tokens=NUM_TOKENS,
        )
        for i, length in enumerate(PROMPT_LENGTHS)
    ]


@pytest.fixture(scope="module")
def plain(verifier):
    """Temperature -> outputs without speculation, each request alone."""

    async def outputs(temperature):
        if temperature not in known:
            async with open_engine(verifier, max_batch_rows=96, max_running=8) as engine:
                known[temperature] = [
                    (await collect(engine, one)).token_ids for one in requests_of(temperature, 0)
                ]
        return known[temperature]

    known = {}
    return outputs


DOUBLES = {
    "right": RightDrafter,
    "wrong": lambda target: WrongDrafter(target, TOKENIZER_VOCAB_SIZE),
    "mixed": lambda target: MixedDrafter(target, TOKENIZER_VOCAB_SIZE),
    "dies": lambda target: MortalDrafter(target, lambda n: n % 3 == 0),
    "garbage": lambda target: GarbageDrafter(),
    "ngram": lambda target: NgramDrafter(min_ngram_tokens=1),
}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("double", DOUBLES)
async def test_speculative_equals_plain(verifier, plain, double, k, temperature):
    """vllm-project/vllm#7627, sgl-project/sglang#32666, huggingface/transformers#46741."""
    expected = await plain(temperature)
    requests = requests_of(temperature, k)
    drafter = DOUBLES[double](replay(requests, expected))
    async with open_engine(verifier, drafter, max_batch_rows=96, max_running=8) as engine:
        together = await collect_all(engine, requests)
        assert [a.token_ids for a in together] == expected
        alone = await collect(engine, requests[k % 8])
        assert alone.token_ids == expected[k % 8]
        assert_all_free(verifier)
    if double == "right":
        for answer in together:
            stats = answer.finish.speculation
            assert stats.num_accepted_draft_tokens == stats.num_draft_tokens > 0


def named(name, drafter):
    drafter.name = name
    return drafter


def short_request(kind, number=0):
    """One of sixty questions; ``number`` decides who drafts how much, which must not show."""
    return request(
        [3 + kind] * (1 + kind % 33),
        k=number % 6,
        method=("mixed", "garbage", "ngram")[number % 3],
        temperature=0.8 * (kind % 2),
        seed=kind,
        max_tokens=1 + 2 * (kind % 5),
    )


async def test_a_thousand_requests_leak_nothing(verifier):
    """Blocks of a real cache; every seventh reader leaves after its first token."""
    settings = dict(max_batch_rows=96, max_running=32, max_waiting=1000)
    sixty = [short_request(kind) for kind in range(60)]
    async with open_engine(verifier, named("mixed", NoDrafter()), **settings) as engine:
        expected = [answer.token_ids for answer in await collect_all(engine, sixty)]
    mixed = named("mixed", MixedDrafter(replay(sixty, expected), TOKENIZER_VOCAB_SIZE))
    garbage = named("garbage", GarbageDrafter())
    async with open_engine(
        verifier, mixed, garbage, NgramDrafter(min_ngram_tokens=1), **settings
    ) as engine:

        async def ask(number):
            stream, token_ids = engine.generate(short_request(number % 60, number)), []
            async for delta in stream:
                token_ids += delta.token_ids
                if number % 7 == 0:
                    await stream.aclose()
            assert token_ids == expected[number % 60][: len(token_ids)]
            assert number % 7 == 0 or len(token_ids) == len(expected[number % 60])

        await asyncio.gather(*(ask(number) for number in range(1000)))
        while engine.snapshot().num_running:
            await asyncio.sleep(0)
        totals = engine.snapshot()
        assert_all_free(verifier)
    verifier.check()
    assert sum(totals.finished.values()) == 1000
    assert totals.finished["cancelled"] > 50
    assert totals.num_draft_tokens > totals.num_accepted_draft_tokens > 100


async def test_prompt_chunks_do_not_matter(verifier):
    """The row budget decides where a prompt is split; the tokens must not show it."""
    rng = random.Random(9)
    requests = [
        request([rng.randrange(3, 300) for _ in range(n)], k=3, temperature=0.8, max_tokens=6)
        for n in (127, 129, 255, 257, 384, 511, 513)
    ]
    outputs = []
    for max_batch_rows in (96, 17, 61):
        async with open_engine(
            verifier, NgramDrafter(), max_batch_rows=max_batch_rows, max_running=3
        ) as engine:
            outputs.append([a.token_ids for a in await collect_all(engine, requests)])
    assert outputs[0] == outputs[1] == outputs[2]


async def test_bfloat16_is_as_exact(tiny_checkpoint):
    """huggingface/transformers#39421: parted from plain decoding by "tiny logit ties"."""
    verifier = load_tiny(tiny_checkpoint, dtype="bfloat16")
    for temperature in (0.0, 0.8):
        known = requests_of(temperature, 0)
        async with open_engine(verifier, max_batch_rows=96, max_running=8) as engine:
            expected = [(await collect(engine, one)).token_ids for one in known]
        for k in (3, 8):
            requests = requests_of(temperature, k)
            drafter = MixedDrafter(replay(requests, expected), TOKENIZER_VOCAB_SIZE)
            async with open_engine(verifier, drafter, max_batch_rows=96, max_running=8) as engine:
                answers = await collect_all(engine, requests)
            assert [a.token_ids for a in answers] == expected
    verifier.close()
