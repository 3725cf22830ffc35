"""The target's token at one position: filters against a naive version, masks, and the law drawn."""

import math
import random

import numpy as np
import pytest

from gpu_verifier.sampling.acceptance import accept_coupled, accept_rejection
from gpu_verifier.sampling.filters import keep_min_p, keep_top_k, keep_top_p
from gpu_verifier.sampling.noise_kernel import coupled_draw
from gpu_verifier.sampling.sampler import TokenRules, target_token
from hetero.core.errors import ModelError
from hetero.core.types import SamplingParams

CHI_SQUARE_4_DEGREES = 18.47  # 0.999 quantile
RULES = TokenRules(vocab_size=5, eos_token_ids=(4,))
LOGITS = np.log(np.array([0.4, 0.3, 0.15, 0.1, 0.05], dtype=np.float32))


def kept(z_v):
    return np.flatnonzero(z_v > -np.inf).tolist()


def naive_kept(logits, temperature, min_p, top_k, top_p):
    """Sorts everything; plain Python floats."""
    order = sorted(range(len(logits)), key=lambda t: (-logits[t], t))
    top = logits[order[0]] / temperature
    weight = {t: math.exp(float(logits[t]) / temperature - top) for t in order}
    order = [t for t in order if weight[t] >= min_p]
    order = order[: top_k or len(order)]
    total, reached, out = sum(weight[t] for t in order), 0.0, []
    for t in order:
        if top_p < 1.0 and reached >= top_p * total:
            break
        reached += weight[t]
        out.append(t)
    return sorted(out)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
@pytest.mark.parametrize(
    "min_p,top_k,top_p",
    [(0, 0, 1.0), (0.05, 0, 1.0), (0, 7, 1.0), (0, 0, 0.9), (0.02, 40, 0.8), (0, 0, 0.9999)],
)
def test_filters_agree_with_sorting_everything(temperature, min_p, top_k, top_p):
    for seed in range(6):
        z_v = np.random.default_rng(seed).normal(0, 2, 3000).astype(np.float32)
        out = keep_min_p(z_v, temperature, min_p)
        out = keep_top_p(keep_top_k(out, top_k), temperature, top_p)
        assert kept(out) == naive_kept(z_v, temperature, min_p, top_k, top_p)


def test_ties_at_the_edge_keep_the_lowest_ids():
    z_v = np.array([1, 2, 2, 2, 2, 0], dtype=np.float32)
    assert kept(keep_top_k(z_v, 3)) == [1, 2, 3]
    # four equal tokens hold 0.85; half of everything needs three of them
    assert kept(keep_top_p(z_v, 1.0, 0.5)) == [1, 2, 3]


def test_top_p_is_exact_beyond_its_first_look():
    """Flat logits: thousands of tokens are needed, in order of id."""
    z_v = np.zeros(5000, dtype=np.float32)
    assert kept(keep_top_p(z_v, 1.0, 0.5)) == list(range(2500))


@pytest.mark.parametrize("top_p", [1e-9, 0.1])
def test_the_likeliest_token_always_stays(top_p):
    z_v = np.array([0, 3, 3, 1], dtype=np.float32)
    assert kept(keep_top_p(z_v, 1.0, top_p)) == [1]
    assert kept(keep_min_p(z_v, 1.0, 1.0)) == [1, 2]
    assert kept(keep_top_k(z_v, 1)) == [1]


def test_filters_that_are_off_return_the_row_itself():
    assert keep_min_p(LOGITS, 1.0, 0.0) is LOGITS
    assert keep_top_k(LOGITS, 0) is LOGITS
    assert keep_top_k(LOGITS, 5) is LOGITS
    assert keep_top_p(LOGITS, 1.0, 1.0) is LOGITS


@pytest.mark.parametrize(
    "logits,expected",
    [([0, 2, 1, 0, 0], 1), ([3, 3, 3, 0, 0], 0), ([-1, -5, -1, -1, -2], 0)],
)
def test_greedy_takes_the_first_of_the_greatest(logits, expected):
    row_v = np.array(logits, dtype=np.float32)
    for top_p, top_k in [(1.0, 0), (0.3, 2)]:
        sampling = SamplingParams(top_p=top_p, top_k=top_k, seed=3)
        assert target_token(row_v, sampling, 0, RULES) == expected


@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1.0])
def test_ids_beyond_the_tokenizer_are_never_sampled(temperature):
    row_v = np.array([0, 0, 1, 0, 0, 50, 60], dtype=np.float32)
    for index in range(50):
        sampling = SamplingParams(temperature=temperature, seed=1)
        assert target_token(row_v, sampling, index, RULES) < 5


def test_min_tokens_counts_output_and_masks_what_would_stop():
    """vllm-project/vllm#26317, NVIDIA/TensorRT-LLM#12358: the prompt does not count."""
    row_v = np.array([0, 1, 8, 2, 9], dtype=np.float32)
    sampling = SamplingParams(min_tokens=3, stop_token_ids=(2, 1000))
    assert [target_token(row_v, sampling, index, RULES) for index in (0, 2, 3, 4)] == [3, 3, 4, 4]


def test_ignore_eos_bans_no_token():
    """vllm-project/vllm#26317: EOS is written like any other token; stop ids stay masked."""
    row_v = np.array([0, 1, 8, 2, 9], dtype=np.float32)
    sampling = SamplingParams(min_tokens=3, ignore_eos=True, stop_token_ids=(2,))
    assert target_token(row_v, sampling, 0, RULES) == 4


def test_the_logits_are_not_changed():
    row_v = LOGITS.copy()
    sampling = SamplingParams(temperature=0.7, min_tokens=2, top_k=2, top_p=0.5, min_p=0.1)
    target_token(row_v, sampling, 0, RULES)
    np.testing.assert_array_equal(row_v, LOGITS)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_an_error(bad, temperature):
    row_v = np.array([0, bad, 1, 0, 0], dtype=np.float32)
    with pytest.raises(ModelError, match="output index 3"):
        target_token(row_v, SamplingParams(temperature=temperature), 3, RULES)


def test_everything_masked_is_an_error():
    row_v = np.full(5, -np.inf, dtype=np.float32)
    with pytest.raises(ModelError, match="no finite maximum"):
        target_token(row_v, SamplingParams(), 0, RULES)


@pytest.mark.parametrize("temperature", [1e-6, 0.005])
def test_tiny_temperatures_are_greedy_without_nan(temperature):
    """vllm-project/vllm#27077."""
    row_v = np.random.default_rng(0).normal(0, 3, 500).astype(np.float32)
    rules = TokenRules(500, ())
    for top_p in (1.0, 0.9):
        sampling = SamplingParams(temperature=temperature, top_p=top_p, min_p=0.01, seed=5)
        assert target_token(row_v, sampling, 0, rules) == int(np.argmax(row_v))


def test_a_seed_decides_and_seeds_differ():
    """vllm-project/vllm#6038, vllm-project/vllm#13196."""
    row_v = np.zeros(500, dtype=np.float32)
    rules = TokenRules(500, ())

    def by_seed():
        samplings = [SamplingParams(temperature=1.0, seed=seed) for seed in range(20)]
        return [target_token(row_v, sampling, 0, rules) for sampling in samplings]

    first = by_seed()
    assert by_seed() == first
    assert len(set(first)) >= 15


# ---- statistics: a smoke test, the exact proof is tests/unit/test_acceptance.py ------------------


def chi_square(counts, probabilities):
    expected = np.array(probabilities) * sum(counts)
    used = expected > 0
    assert not np.array(counts)[~used].any()
    return float((((np.array(counts) - expected) ** 2)[used] / expected[used]).sum())


@pytest.mark.parametrize(
    "sampling,law",
    [
        (SamplingParams(temperature=1.0, seed=1), [0.4, 0.3, 0.15, 0.1, 0.05]),
        (SamplingParams(temperature=1.0, top_k=2, seed=2), [4 / 7, 3 / 7, 0, 0, 0]),
        (SamplingParams(temperature=1.0, top_p=0.8, seed=3), [8 / 17, 6 / 17, 3 / 17, 0, 0]),
        (SamplingParams(temperature=0.5, seed=4), [64 / 114, 36 / 114, 9 / 114, 4 / 114, 1 / 114]),
    ],
)
def test_tokens_follow_the_processed_softmax(sampling, law):
    tokens = [target_token(LOGITS, sampling, index, RULES) for index in range(20_000)]
    assert chi_square(np.bincount(tokens, minlength=5), law) < CHI_SQUARE_4_DEGREES


@pytest.mark.parametrize("drafter", ["coupled", "greedy"])
def test_coupled_acceptance_keeps_the_law_for_any_drafter(drafter):
    """100,000 tokens, in rounds of two drafts. jaymody/speculative-sampling#3."""
    sampling = SamplingParams(temperature=1.0, seed=11)
    draft_v = np.log(np.array([0.1, 0.2, 0.3, 0.2, 0.2], dtype=np.float32))
    counts, index = np.zeros(5, dtype=np.int64), 0
    while index < 100_000:
        drafts = [
            2 if drafter == "greedy" else coupled_draw(draft_v, 1.0, 11, index + i)
            for i in range(2)
        ]
        result = accept_coupled(
            drafts, lambda i, base=index: target_token(LOGITS, sampling, base + i, RULES)
        )
        for token in (*drafts[: result.num_accepted], result.next_token_id):
            counts[token] += 1
        index += result.num_accepted + 1
    assert chi_square(counts, np.exp(LOGITS)) < CHI_SQUARE_4_DEGREES


class FloatRandomness:
    def __init__(self, seed):
        self._random = random.Random(seed)

    def chance(self, numerator, denominator):
        return self._random.random() * denominator <= numerator

    def pick(self, weights_v):
        return self._random.choices(range(len(weights_v)), weights_v)[0]


TARGET = [0.4, 0.3, 0.15, 0.1, 0.05]
SOFT = [0.1, 0.2, 0.3, 0.2, 0.2]


@pytest.mark.parametrize(
    "sampled_from,claimed,right",
    [
        ([0, 0, 1.0, 0, 0], [0, 0, 1.0, 0, 0], True),  # greedy, reported as one-hot
        ([0, 0.4, 0.6, 0, 0], [0, 0.4, 0.6, 0, 0], True),  # top-k 2, reported as sampled
        ([0, 0.4, 0.6, 0, 0], SOFT, False),  # top-k 2, reported before top-k
        ([0, 0, 1.0, 0, 0], SOFT, False),  # greedy, reported as the softmax
    ],
)
def test_rejection_needs_the_law_the_draft_was_sampled_from(sampled_from, claimed, right):
    """huggingface/transformers#47932; 200,000 samples, mislabelled drafts must be noticed."""
    randomness, drafts = FloatRandomness(1), random.Random(2)
    counts = [0] * 5
    for draft in drafts.choices(range(5), sampled_from, k=200_000):
        result = accept_rejection((draft,), [TARGET, TARGET], [claimed], randomness)
        counts[draft if result.num_accepted else result.next_token_id] += 1
    assert (chi_square(counts, TARGET) < CHI_SQUARE_4_DEGREES) == right
