"""SmolLM2-135M-Instruct in float32 against tokens that five other engines agree on.

The vectors (tests/vectors/smollm2_greedy_vectors.jsonl) are greedy, EOS ignored; transformers,
OpenVINO GenAI, vLLM CPU, CTranslate2 and llama.cpp wrote them identically. A difference is
reported with the distance between the two tokens' logits: below 1e-3 it would be a near-tie.
"""

import asyncio
import json
import random
from pathlib import Path

import pytest
from support.stepping import Run, finish

from gpu_verifier.golden.plain_decoding import PlainDecoder
from gpu_verifier.load import VerifierConfig, load_verifier
from hetero.core.types import SamplingParams

pytestmark = pytest.mark.real_model

VOCAB = 49152
CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "vectors" / "smollm2_greedy_vectors.jsonl")
    .read_text()
    .splitlines()
]
GREEDY = SamplingParams(ignore_eos=True)


def load(real_model_dir, threads):
    """Loaded with its self-test, as it would serve."""
    return load_verifier(
        VerifierConfig(
            model_dir=real_model_dir,
            model_name="SmolLM2-135M-Instruct",
            tokenizer_sha256="0" * 64,
            tokenizer_vocab_size=VOCAB,
            dtype="float32",
            threads=threads,
            num_kv_blocks=256,
        )
    )


@pytest.fixture(scope="module")
def verifier(real_model_dir):
    """One thread: with more, every product waits for the slowest core of a shared machine."""
    loaded = load(real_model_dir, threads=1)
    yield loaded
    loaded.check()
    assert loaded.kv_usage().free_blocks == 256
    loaded.close()


def near_tie_report(model_dir, case, tokens):
    expected = case["greedy_token_ids"]
    at = next(i for i, pair in enumerate(zip(tokens, expected, strict=True)) if pair[0] != pair[1])
    logits_v = PlainDecoder(model_dir).logits([*case["prompt_token_ids"], *expected[:at]])[-1]
    gap = abs(float(logits_v[tokens[at]]) - float(logits_v[expected[at]]))
    kind = "a near-tie" if gap < 1e-3 else "no near-tie"
    return f"differs at {at}: {tokens[at]} for {expected[at]}, logits {gap:.2e} apart, {kind}"


def drafts_from(case, k, wrong_every):
    """Drafts of the expected answer with every so many tokens spoilt."""
    expected = case["greedy_token_ids"]
    return lambda done: [
        (t + 1) % VOCAB if i % wrong_every == 0 else t
        for i, t in enumerate(expected[len(done) : len(done) + k], start=len(done))
    ]


def check(verifier, model_dir, cases, runs):
    for case, tokens in zip(cases, asyncio.run(finish(verifier, runs)), strict=True):
        if tokens != case["greedy_token_ids"]:
            pytest.fail(near_tie_report(model_dir, case, tokens))


def test_two_prompts_together_with_drafts(verifier, real_model_dir):
    cases = CASES[:2]
    runs = [
        Run(1, cases[0]["prompt_token_ids"], GREEDY, 128, drafts_from(cases[0], 8, 7)),
        Run(2, cases[1]["prompt_token_ids"], GREEDY, 128, drafts_from(cases[1], 4, 3), [11, 5]),
    ]
    check(verifier, real_model_dir, cases, runs)
    assert runs[0].accepted > 80


def test_sampled_drafts_chunks_and_company_change_nothing(verifier):
    """A few cells on the real model: 130 prompt tokens, T = 0.8, alone against in company."""
    rng = random.Random(5)
    prompt = [1, *rng.choices(range(20, VOCAB), k=125)]
    warm = SamplingParams(temperature=0.8, top_p=0.95, seed=99, ignore_eos=True)
    alone = asyncio.run(finish(verifier, [Run(1, prompt, warm, 10)]))[0]
    runs = [
        Run(2, prompt, warm, 10, lambda done: alone[len(done) :][:4], [60, 59, 4]),
        Run(3, prompt, warm, 10, lambda done: [7, 8], [64, 61]),
        Run(4, CASES[3]["prompt_token_ids"], GREEDY, 10, chunks=[60] * 9),
    ]
    together = asyncio.run(finish(verifier, runs))
    assert together == [alone, alone, CASES[3]["greedy_token_ids"][:10]]


@pytest.mark.exactness
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("threads", [1, 2])
def test_all_prompts_together(real_model_dir, threads):
    verifier = load(real_model_dir, threads)
    for k in (0, 3):
        runs = [
            Run(i, case["prompt_token_ids"], GREEDY, 128, drafts_from(case, k, 5), [24] * 40)
            for i, case in enumerate(CASES)
        ]
        check(verifier, real_model_dir, CASES, runs)
    verifier.close()
