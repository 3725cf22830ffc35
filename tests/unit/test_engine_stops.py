"""Where answers end: EOS, stop ids, stop strings, max_tokens, the context; and what is counted."""

import pytest
from support.drafters import MixedDrafter, RightDrafter, ScriptedDrafter, WrongDrafter
from support.engines import open_engine, request, run
from support.fake_verifier import FakeVerifier, hash_target, info, scripted_target
from support.text_tools import text_tools

from hetero.core.errors import ContextOverflowError, RequestError
from hetero.drafters.ngram import NgramDrafter

TARGET = hash_target()
EOS = 0
LONG = [10 + i for i in range(60)]


def says(*token_ids, eos=(EOS,), **kwargs):
    """A target that says these tokens, and a drafter that knows."""
    target = scripted_target(token_ids)
    verifier = FakeVerifier(target, info=info(eos_token_ids=tuple(eos)), **kwargs)
    return verifier, RightDrafter(target)


def spelt(text):
    """A token for each character: (target, drafter, text tools)."""
    verifier, drafter = says(*(1 + ord(c) % 127 for c in text))
    table = {1 + code % 127: bytes([code]) for code in range(32, 127)}
    return verifier, drafter, text_tools(table)


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("end", range(1, 12))
async def test_eos_inside_a_block_ends_there(end, k):
    """huggingface/transformers#47912, #31301: EOS was accepted mid-block and decoding went on."""
    verifier, drafter = says(*LONG, eos=(LONG[end],))
    (answer,) = await run(verifier, drafter, requests=[request(k=k)])
    assert answer.token_ids == LONG[: end + 1]
    assert answer.finish.reason == "stop"
    assert answer.finish.matched_stop is None
    assert answer.text == "".join(f"<{t}>" for t in LONG[:end])


async def test_a_drafted_eos_means_nothing():
    """vllm-project/vllm#41493: an EOS at a draft position ended the answer early."""
    verifier, _ = says(*LONG)
    drafter = ScriptedDrafter([[LONG[1], EOS, LONG[3]]] + [[EOS, EOS]] * 9)
    (answer,) = await run(verifier, drafter, requests=[request(k=3, max_tokens=8)])
    assert answer.token_ids == LONG[:8]
    assert answer.finish.reason == "length"


async def test_stop_string_early_in_a_large_block():
    """sgl-project/sglang#23802: a stop string early in a large accepted chunk was missed."""
    verifier, drafter, texts = spelt("ha ha ha and on it goes, on and on")
    one = request(k=16, stop=(" ha",))
    (answer,) = await run(verifier, drafter, requests=[one], texts=texts)
    assert (answer.text, answer.finish.reason, answer.finish.matched_stop) == ("ha", "stop", " ha")
    assert len(answer.token_ids) == 5


async def test_an_earlier_stop_beats_the_length():
    """sgl-project/sglang#31599: the max_tokens check hid an earlier stop."""
    verifier, drafter = says(11, 12, 13, 14, 15, 16, 17)
    one = request(k=6, stop_token_ids=(13,), max_tokens=5)
    (answer,) = await run(verifier, drafter, requests=[one])
    assert answer.finish.reason == "stop"
    assert answer.finish.matched_stop == 13
    assert answer.token_ids == [11, 12, 13]
    assert answer.text == "<11><12>"


@pytest.mark.parametrize("k", [1, 4, 8])
async def test_a_stop_on_the_last_allowed_token_is_a_stop(k):
    verifier, drafter = says(*LONG, eos=(LONG[4],))
    (answer,) = await run(verifier, drafter, requests=[request(k=k, max_tokens=5)])
    assert answer.finish.reason == "stop"


@pytest.mark.parametrize("make", [NgramDrafter, lambda: RightDrafter(scripted_target([7] * 99))])
async def test_max_tokens_is_exact(make):
    """huggingface/transformers#46993, #47195: prompt lookup went past max_new_tokens."""
    k = 4
    for max_tokens in (1, 2, k, k + 1):
        verifier, _ = says(*[7] * 99)
        one = request([7] * 20, k=k, max_tokens=max_tokens)
        (answer,) = await run(verifier, make(), requests=[one])
        assert answer.token_ids == [7] * max_tokens
        assert answer.finish.reason == "length"


@pytest.mark.parametrize("room", [1, 2, 4, 5, 9])
async def test_the_context_ends_the_answer(room):
    """predibase/lorax#474, turboderp-org/exllamav2#274: look-ahead crossed the context's end."""
    verifier, drafter = says(*LONG * 9)
    verifier.info = info(max_context_tokens=64)
    one = request([3] * (64 - room), k=4, max_tokens=100)
    (answer,) = await run(verifier, drafter, requests=[one])
    assert answer.finish.reason == "length"
    assert len(answer.token_ids) == room


async def test_stop_strings_of_different_length_stop_at_the_right_character():
    """openvinotoolkit/openvino.genai#1719, #1676: wrong offset with several stop strings."""
    said = "some are atoms with a large number of 11 protons, others are ionized"
    verifier, drafter, texts = spelt(said)
    stops = ("ionized", "atoms with a large number of 11 protons", *("x" * 500, "y" * 500))
    one = request(k=16, stop=stops, max_tokens=200)
    (answer,) = await run(verifier, drafter, requests=[one], texts=texts)
    assert answer.text == "some are "
    assert answer.finish.matched_stop == stops[1]


async def test_min_tokens_and_ignore_eos():
    """vllm-project/vllm#26317, NVIDIA/TensorRT-LLM#12358: min_tokens ignored, prompt counted."""
    happy = hash_target(vocab_size=4, eos_token_ids=(0, 1))
    verifier = FakeVerifier(happy, info=info(eos_token_ids=(0, 1)))
    requests = [request([2, 3], min_tokens=20, k=k, seed=s) for k in (0, 4) for s in range(5)]
    answers = await run(verifier, RightDrafter(happy), requests=requests)
    assert all(len(a.token_ids) >= 20 and a.token_ids[-1] in (0, 1) for a in answers)
    assert not {0, 1} & {t for a in answers for t in a.token_ids[:20]}

    free = [request([2, 3], ignore_eos=True, k=k, max_tokens=80) for k in (0, 4)]
    for answer in await run(verifier, RightDrafter(happy), requests=free):
        assert answer.finish.reason == "length"
        assert set(answer.token_ids) == {0, 1, 2, 3}  # no token is banned


async def test_stop_strings_within_min_tokens_are_text():
    verifier, drafter, texts = spelt("stop stop stop")
    one = request(k=4, stop=("stop",), min_tokens=6)
    (answer,) = await run(verifier, drafter, requests=[one], texts=texts)
    assert answer.text == "stop stop "


@pytest.mark.parametrize("end", range(1, 12))
@pytest.mark.parametrize("double", [RightDrafter, lambda t: WrongDrafter(t, 128)])
async def test_counters_add_up_to_the_tokens(double, end):
    """vllm-project/vllm#56101: mean acceptance length counted drafts after EOS."""
    target = scripted_target(LONG)
    verifier = FakeVerifier(target, info=info(eos_token_ids=(LONG[end],)))
    (answer,) = await run(verifier, double(target), requests=[request(k=4)])
    stats = answer.finish.speculation
    emitted_by_spec_steps = stats.num_accepted_draft_tokens + stats.num_spec_steps
    assert 1 + emitted_by_spec_steps == len(answer.token_ids)  # 1: from prefill
    assert sum(stats.drafted_per_position) == stats.num_draft_tokens
    assert sum(stats.accepted_per_position) == stats.num_accepted_draft_tokens
    assert len(stats.accepted_per_position) == len(stats.drafted_per_position)


async def test_counters_before_the_first_draft():
    """vllm-project/vllm#24322: no drafts gave NaN or a division by zero; K = 0 is no draft."""
    verifier, drafter = says(*LONG)
    async with open_engine(verifier, drafter) as engine:
        totals = engine.snapshot()
        assert (totals.num_spec_steps, totals.drafted_per_position) == (0, ())
    (answer,) = await run(verifier, drafter, requests=[request(k=0)])
    assert answer.finish.speculation.num_spec_steps == 0
    assert answer.finish.latency.draft_s == 0


async def test_sub_counters_stay_below_completion_tokens():
    """sgl-project/sglang#39826: a sub-counter exceeded completion_tokens."""
    requests = [request([i + 1], k=8, max_tokens=20) for i in range(20)]
    for answer in await run(FakeVerifier(TARGET), MixedDrafter(TARGET, 128), requests=requests):
        stats = answer.finish.speculation
        assert stats.num_accepted_draft_tokens + stats.num_spec_steps < len(answer.token_ids) + 1


async def test_a_model_without_eos():
    """huggingface/transformers#46790: prompt lookup crashed when no EOS was configured."""
    for drafter in (NgramDrafter(), RightDrafter(TARGET)):
        verifier = FakeVerifier(TARGET, info=info(eos_token_ids=()))
        (answer,) = await run(verifier, drafter, requests=[request([4, 5, 4, 5, 4])])
        assert answer.finish.reason == "length"


async def test_empty_and_tiny_prompts():
    """vLLM answers an empty prompt with 400; tiny ones must work with every drafter."""
    async with open_engine(FakeVerifier(TARGET), NgramDrafter()) as engine:
        with pytest.raises(RequestError, match="prompt"):
            await anext(engine.generate(request([])))
        with pytest.raises(RequestError, match=r"0\.\.127"):
            await anext(engine.generate(request([128])))
        with pytest.raises(ContextOverflowError, match="2048"):
            await anext(engine.generate(request([1] * 2048)))
        with pytest.raises(RequestError, match=r"speculative\.method = rtl"):
            await anext(engine.generate(request(method="rtl")))
    tiny = [request(p, k=4) for p in ([1], [EOS], [1, 2], [1, 2, 3])]
    with_lookup = await run(FakeVerifier(TARGET), NgramDrafter(), requests=tiny)
    without = await run(FakeVerifier(TARGET), requests=tiny)
    assert [a.token_ids for a in with_lookup] == [a.token_ids for a in without]


async def test_held_back_text_comes_out_at_the_end():
    verifier, drafter, texts = spelt("a stor")
    one = request(k=4, stop=("story",), max_tokens=6)
    (answer,) = await run(verifier, drafter, requests=[one], texts=texts)
    assert answer.text == "a stor"
    assert answer.deltas[-1].text.endswith("stor")


async def test_broken_utf8_is_held_back_then_replaced():
    table = {1: b"ok ", 2: b"\xf0\x9f", 3: b"\x98\x80", 4: b"\xe2\x82"}
    verifier, drafter = says(1, 2, 3, 4, 4)
    one = request([9], k=0, max_tokens=4)
    (answer,) = await run(verifier, drafter, requests=[one], texts=text_tools(table))
    assert [d.text for d in answer.deltas] == ["ok ", "", "\U0001f600", "\ufffd"]


@pytest.mark.parametrize("end", [{"max_tokens": 2}, {"stop_token_ids": (3,)}])
@pytest.mark.parametrize("stop", ["\ufffd", "k\ufffd"])
@pytest.mark.parametrize("min_tokens", [0, 2])
async def test_a_character_cut_off_by_the_end_is_not_lost_to_a_stop_string(min_tokens, stop, end):
    """The end makes U+FFFD of it; what did not end the answer must not take text from it."""
    table = {1: b"ok", 2: b"\xf0\x9f", 3: b"."}
    verifier, drafter = says(1, 2, 3)
    one = request([9], k=2, stop=(stop,), min_tokens=min_tokens, **{"max_tokens": 9, **end})
    (answer,) = await run(verifier, drafter, requests=[one], texts=text_tools(table))
    assert answer.text == "ok\ufffd"
    assert answer.finish.reason == ("length" if "max_tokens" in end else "stop")
    assert answer.finish.matched_stop == (None if "max_tokens" in end else 3)
