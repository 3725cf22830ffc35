"""What users may ask for, and what they are told otherwise."""

import pytest
from support.engines import run
from support.fake_verifier import FakeVerifier, hash_target, info

from hetero.core.errors import ContextOverflowError, RequestError
from hetero.core.types import GenerationRequest, SpeculativeParams
from hetero.core.validation import SamplingWishes, resolve_sampling, resolve_speculative

TARGET = info(max_context_tokens=100, vocab_size=50)


def resolve(num_prompt_tokens=10, **wishes):
    return resolve_sampling(SamplingWishes(**wishes), TARGET, num_prompt_tokens=num_prompt_tokens)


def test_defaults_are_greedy_with_a_drawn_seed():
    one, other = resolve(), resolve()
    assert (one.temperature, one.top_p, one.top_k, one.min_p) == (0.0, 1.0, 0, 0.0)
    assert one.seed != other.seed
    assert 0 <= one.seed < 2**64


def test_the_default_length_respects_the_true_limit():
    """NVIDIA/TensorRT-LLM#16826: default max_tokens came from a limit inflated by the drafts."""
    assert resolve(num_prompt_tokens=99).max_tokens == 1
    assert resolve(num_prompt_tokens=10).max_tokens == 90
    assert resolve(num_prompt_tokens=10, default_max_tokens=16).max_tokens == 16
    assert resolve(num_prompt_tokens=95, default_max_tokens=16).max_tokens == 5
    assert resolve(num_prompt_tokens=95, max_tokens=1000).max_tokens == 5


async def test_a_prompt_near_the_limit_completes():
    sampling = resolve(num_prompt_tokens=97)
    one = GenerationRequest(request_id="r", prompt_token_ids=(1,) * 97, sampling=sampling)
    (answer,) = await run(FakeVerifier(hash_target(50), info=TARGET), requests=[one])
    assert answer.finish.reason in ("length", "stop")
    assert len(answer.token_ids) <= 3


@pytest.mark.parametrize(
    "wish, value, limit",
    [
        ("temperature", -0.1, "0..2"),
        ("temperature", float("nan"), "0..2"),
        ("temperature", True, "0..2"),
        ("temperature", "hot", "0..2"),
        ("top_p", 0.0, "above 0, at most 1"),
        ("top_p", 1.01, "above 0, at most 1"),
        ("top_k", -2, "-1.."),
        ("top_k", 1.5, "-1.."),
        ("min_p", 1.2, "0..1"),
        ("seed", -1, "0..18446744073709551615"),
        ("seed", 2**64, "0..18446744073709551615"),
        ("max_tokens", 0, "1.."),
        ("min_tokens", 91, "0..90"),
        ("stop", [""], "1..1024 characters"),
        ("stop", ["x"] * 17, "at most 16"),
        ("stop", ["x" * 1025], "1..1024 characters"),
        ("stop", ["ok", "\ud800"], "lone surrogate"),
        ("temperature", "x" * 10**6, "0..2"),
        ("stop_token_ids", [50], "0..49"),
        ("stop_token_ids", [1] * 65, "at most 64"),
    ],
    ids=lambda value: ascii(value)[:30] if isinstance(value, (str, float)) else None,
)
def test_out_of_range_is_refused_by_name(wish, value, limit):
    with pytest.raises(RequestError) as caught:
        resolve(**{wish: value})
    assert caught.value.param == wish
    assert wish in str(caught.value)
    assert limit in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_an_integer_too_long_to_be_written_is_refused_like_any_other():
    with pytest.raises(RequestError, match="seed = an integer of 16610 bits: must be an integer 0"):
        resolve(seed=10**5000)


def test_the_ends_of_ranges_are_allowed():
    sampling = resolve(
        temperature=2,
        top_p=1,
        top_k=-1,
        min_p=1,
        seed=2**64 - 1,
        max_tokens=90,
        min_tokens=90,
        stop="x" * 1024,
        stop_token_ids=[0, 49],
        ignore_eos=True,
    )
    assert sampling.temperature == 2.0
    assert sampling.top_k == 0
    assert sampling.stop == ("x" * 1024,)


@pytest.mark.parametrize("wish, got", [(1e-6, 0.0), (1e-45, 0.0), (1e-5, 1e-5), (0.005, 0.005)])
def test_tiny_temperatures(wish, got):
    """vllm-project/vllm#27077: near-greedy temperatures gave NaN and negative counts."""
    assert resolve(temperature=wish).temperature == got


def test_prompts_that_cannot_run():
    with pytest.raises(RequestError, match="at least one"):
        resolve(num_prompt_tokens=0)
    with pytest.raises(ContextOverflowError, match="prompt has 100 tokens: fake takes 100"):
        resolve(num_prompt_tokens=100)


def test_speculation_wishes():
    methods = ("card", "ngram", "none")
    wish = SpeculativeParams(num_speculative_tokens=64, method="ngram")
    assert resolve_speculative(wish, methods) == wish
    assert resolve_speculative(SpeculativeParams(), methods) == SpeculativeParams()
    with pytest.raises(RequestError, match="this engine has card, ngram, none"):
        resolve_speculative(SpeculativeParams(method="suffix"), methods)
    for k in (-1, 65, 2.0):
        with pytest.raises(RequestError, match=r"num_speculative_tokens = .*0\.\.64"):
            resolve_speculative(SpeculativeParams(num_speculative_tokens=k), methods)
