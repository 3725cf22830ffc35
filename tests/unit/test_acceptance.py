"""Acceptance is exact: every outcome enumerated with fractions, and every known mistake caught.

Models are small random tables that depend on the whole prefix. One round is drafted, judged and
then completed with the target alone to K + 1 tokens; the law of those tokens must *equal* the
target's own, with no tolerance.
"""

import random
from fractions import Fraction

import pytest
from support.exact import continue_with, law, total_variation

from gpu_verifier.sampling.acceptance import (
    Acceptance,
    accept_block,
    accept_coupled,
    accept_rejection,
)

# ---- models: prefix -> row of fractions --------------------------------------------------------


def table(name, seed, vocab, weights):
    """A model whose row is a pure function of (name, seed, prefix)."""

    def row(prefix):
        rng = random.Random(f"{name}{seed}{prefix}")
        while not any(counts := [rng.choice(weights) for _ in range(vocab)]):
            pass
        return [Fraction(count, sum(counts)) for count in counts]

    return row


def one_hot(row):
    """The greedy drafter's law: all on the likeliest token, ties to the lowest id."""
    top = row.index(max(row))
    return [Fraction(int(token == top)) for token in range(len(row))]


def without(row, token):
    """A row with one token masked and the rest renormalised."""
    if row[token] == 1:
        return row
    return [Fraction(0) if t == token else w / (1 - row[token]) for t, w in enumerate(row)]


def min_tokens(row, length):
    """Token 0 plays EOS and is masked in the first two positions, whatever was drafted."""
    return lambda prefix: without(row(prefix), 0) if len(prefix) < length else row(prefix)


def penalised(row):
    """A presence penalty: a token that is in the prefix already is masked."""

    def next_row(prefix):
        result = row(prefix)
        for token in set(prefix):
            result = without(result, token)
        return result

    return next_row


def eighths(seed, vocab):
    """A draft law of integers that sum to exactly 2^3."""

    def row(prefix):
        rng = random.Random(f"eighths{seed}{prefix}")
        counts = [0] * vocab
        for _ in range(8):
            counts[rng.randrange(vocab)] += 1
        return [Fraction(count, 8) for count in counts]

    return row


def disjoint(vocab, parity):
    """Support on tokens of one parity only: target and draft never agree."""
    tokens = [t for t in range(vocab) if t % 2 == parity]
    return lambda prefix: [Fraction(int(t in tokens), len(tokens)) for t in range(vocab)]


def models(vocab, seed):
    """(target, draft) pairs by name."""
    target = table("target", seed, vocab, [1, 2, 3, 5, 8])
    draft = table("draft", seed, vocab, [1, 2, 3, 5, 8])
    sparse_target = table("target", seed, vocab, [0, 0, 1, 2, 5])
    sparse_draft = table("draft", seed, vocab, [0, 1, 3])
    return {
        "dense": (target, draft),
        "zeros in both": (sparse_target, sparse_draft),
        "equal": (target, target),
        "disjoint": (disjoint(vocab, 0), disjoint(vocab, 1)),
        "greedy draft": (target, lambda prefix: one_hot(draft(prefix))),
        "integer draft": (target, eighths(seed, vocab)),
        "min_tokens": (min_tokens(target, 2), draft),
        "presence": (penalised(target), draft),
    }


KINDS = list(models(3, 0))


# ---- one round ---------------------------------------------------------------------------------


def draft_chain(draft, num_drafts, source, keep_going=lambda row, prefix: True):
    """Sample a chain; returns tokens and the rows they were sampled from."""
    tokens, rows = (), []
    while len(tokens) < num_drafts and keep_going(draft(tokens), tokens):
        rows.append(draft(tokens))
        tokens += (source.pick(rows[-1]),)
    return tokens, rows


def round_law(accept, target, draft, num_drafts, make_drafts=draft_chain):
    """Law of the tokens that one round commits."""

    def run(source):
        tokens, draft_rows = make_drafts(draft, num_drafts, source)
        target_rows = [target(tokens[:i]) for i in range(len(tokens) + 1)]
        result = accept(tokens, target_rows, draft_rows, source)
        return (*tokens[: result.num_accepted], result.next_token_id)

    return law(run)


def error(accept, target, draft, num_drafts, make_drafts=draft_chain):
    """Total variation between a round completed by the target and the target alone. Exact."""
    length = num_drafts + 1
    got = continue_with(round_law(accept, target, draft, num_drafts, make_drafts), target, length)
    return total_variation(got, continue_with({(): Fraction(1)}, target, length))


@pytest.mark.parametrize("accept", [accept_rejection, accept_block])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocab", [3, 4, 5])
@pytest.mark.parametrize("num_drafts", [2, 3])
def test_a_round_keeps_the_target_law(accept, kind, vocab, num_drafts):
    for seed in range(1 if vocab * num_drafts > 12 else 3):
        target, draft = models(vocab, seed)[kind]
        assert error(accept, target, draft, num_drafts) == 0


@pytest.mark.parametrize("accept", [accept_rejection, accept_block])
def test_without_drafts_a_round_is_plain_decoding(accept):
    target, draft = models(4, 0)["dense"]
    assert round_law(accept, target, draft, 0) == {(t,): w for t, w in enumerate(target(()))}


def stop_before(row, prefix):
    """Lossless stop: decided from the row before the token is sampled."""
    return max(row) > Fraction(1, 2) or not prefix


def stop_after(draft, num_drafts, source):
    """Lossless stop: an unlikely token is kept, and is the last."""
    tokens, rows = (), []
    while len(tokens) < num_drafts:
        rows.append(draft(tokens))
        tokens += (source.pick(rows[-1]),)
        if rows[-1][tokens[-1]] < Fraction(1, 4):
            break
    return tokens, rows


@pytest.mark.parametrize("accept", [accept_rejection, accept_block])
@pytest.mark.parametrize(
    "make_drafts",
    [lambda draft, k, source: draft_chain(draft, k, source, stop_before), stop_after],
)
def test_variable_draft_length_keeps_the_target_law(accept, make_drafts):
    for seed in range(3):
        target, draft = models(4, seed)["dense"]
        assert error(accept, target, draft, 3, make_drafts) == 0


def mean_accepted(accept, target, draft, num_drafts):
    committed = round_law(accept, target, draft, num_drafts)
    return sum((len(tokens) - 1) * weight for tokens, weight in committed.items())


def test_block_verification_reproduces_the_papers_example():
    """Sun et al., arXiv 2403.10444: 10/9 accepted tokens become 11/9."""
    target = lambda prefix: [Fraction(1, 3), Fraction(2, 3)]  # noqa: E731
    draft = lambda prefix: [Fraction(2, 3), Fraction(1, 3)]  # noqa: E731
    assert mean_accepted(accept_rejection, target, draft, 2) == Fraction(10, 9)
    assert mean_accepted(accept_block, target, draft, 2) == Fraction(11, 9)


@pytest.mark.parametrize("kind", KINDS)
def test_block_never_accepts_less_than_rejection(kind):
    for seed in range(3):
        target, draft = models(3, seed)[kind]
        by_block = mean_accepted(accept_block, target, draft, 3)
        assert by_block >= mean_accepted(accept_rejection, target, draft, 3)


# ---- mistakes that enumeration must catch ------------------------------------------------------


def _excess(reach, target_v, draft_v):
    return [max(reach * t - d, 0) for t, d in zip(target_v, draft_v, strict=True)]


def _block_with(clip, residual_reach):
    """Block verification with two of its steps replaceable, for mutants."""

    def accept(tokens, target_rows, draft_rows, randomness):
        reach = [Fraction(1)]
        for i, token in enumerate(tokens):
            reach.append(clip(reach[-1] * target_rows[i][token] / draft_rows[i][token]))
        accepted = 0
        for i in range(len(tokens), 0, -1):
            if i == len(tokens):
                stand, total = reach[i], Fraction(1)
            else:
                stand = sum(_excess(reach[i], target_rows[i], draft_rows[i]))
                total = stand + 1 - reach[i]
            if total <= 0 or randomness.chance(max(stand, 0), total):
                accepted = i
                break
        if accepted == len(tokens):
            return Acceptance(accepted, randomness.pick(target_rows[-1]))
        row = _excess(residual_reach(reach[accepted]), target_rows[accepted], draft_rows[accepted])
        return Acceptance(accepted, randomness.pick(row if sum(row) else target_rows[accepted]))

    return accept


def recovered_from_target(tokens, target_rows, draft_rows, randomness):
    for i, token in enumerate(tokens):
        if not randomness.chance(target_rows[i][token], draft_rows[i][token]):
            return Acceptance(i, randomness.pick(target_rows[i]))
    return Acceptance(len(tokens), randomness.pick(target_rows[-1]))


def bonus_from_last_draft_row(tokens, target_rows, draft_rows, randomness):
    result = accept_rejection(tokens, target_rows, draft_rows, randomness)
    if result.num_accepted < len(tokens):
        return result
    return Acceptance(len(tokens), randomness.pick(target_rows[len(tokens) - 1]))


def draft_row_off_by_a_thousandth(tokens, target_rows, draft_rows, randomness):
    step = Fraction(1, 1000)
    shifted = [[row[0] + step, row[1] - step, *row[2:]] for row in draft_rows]
    return accept_rejection(tokens, target_rows, shifted, randomness)


def accept_the_likely(tokens, target_rows, draft_rows, randomness):
    """Typical acceptance: a draft stands when the target thinks it likely."""
    for i, token in enumerate(tokens):
        if target_rows[i][token] < Fraction(1, 3):
            return Acceptance(i, randomness.pick(target_rows[i]))
    return Acceptance(len(tokens), randomness.pick(target_rows[-1]))


ACCEPT_MUTANTS = {
    "block residual without the running product": _block_with(lambda r: min(r, 1), lambda r: 1),
    "block product not clipped": _block_with(lambda r: r, lambda r: r),
    "recovered token drawn from the target": recovered_from_target,
    "bonus token from the wrong row": bonus_from_last_draft_row,
    "draft probability off by 0.001": draft_row_off_by_a_thousandth,
    "typical acceptance": accept_the_likely,
}


@pytest.mark.parametrize("name", ACCEPT_MUTANTS)
def test_mutants_of_acceptance_are_caught(name):
    pairs = [models(3, seed)["dense"] for seed in range(4)]
    assert max(error(ACCEPT_MUTANTS[name], *pair, 2) for pair in pairs) > 0


def test_the_replaceable_block_is_right_when_nothing_is_replaced():
    """Otherwise the two block mutants above would prove nothing."""
    intact = _block_with(lambda r: min(r, 1), lambda r: r)
    for seed in range(4):
        assert error(intact, *models(3, seed)["dense"], 2) == 0


def drop_the_unsure(draft, num_drafts, source):
    """Discards a sampled token because of its own probability."""
    tokens, rows = draft_chain(draft, num_drafts, source)
    for i, token in enumerate(tokens):
        if rows[i][token] < Fraction(1, 3):
            return tokens[:i], rows[:i]
    return tokens, rows


def greedy_drafts_with_soft_rows(draft, num_drafts, source):
    tokens, rows = (), []
    for _ in range(num_drafts):
        rows.append(draft(tokens))
        tokens += (rows[-1].index(max(rows[-1])),)
    return tokens, rows


@pytest.mark.parametrize("accept", [accept_rejection, accept_block])
@pytest.mark.parametrize("make_drafts", [drop_the_unsure, greedy_drafts_with_soft_rows])
def test_drafts_not_sampled_from_their_rows_are_caught(accept, make_drafts):
    """jaymody/speculative-sampling#3 and #9, huggingface/transformers#47932."""
    errors = [error(accept, *models(3, seed)["dense"], 2, make_drafts) for seed in range(4)]
    assert all(found > 0 for found in errors)


def test_stale_processors_are_caught():
    """Rows processed with the state of the round's start instead of each draft's prefix."""
    plain = table("target", 1, 3, [1, 2, 3, 5, 8])
    draft = table("draft", 1, 3, [1, 2, 3, 5, 8])
    target = penalised(plain)

    def stale(tokens, target_rows, draft_rows, randomness):
        rows = [plain(tokens[:i]) for i in range(len(tokens) + 1)]
        return accept_rejection(tokens, rows, draft_rows, randomness)

    assert error(stale, target, draft, 2) > 0


class OneNumber:
    """Randomness that is not fresh: drafts, accepts and recovers from the same uniform."""

    def __init__(self, uniform):
        self._uniform = uniform

    def chance(self, numerator, denominator):
        return self._uniform.below(Fraction(numerator) / Fraction(denominator))

    def pick(self, weights_v):
        return self._uniform.pick(weights_v)


def test_one_random_stream_for_draft_and_acceptance_is_caught():
    target, draft = models(3, 2)["dense"]

    def run(source):
        shared = OneNumber(source.uniform())
        token = shared.pick(draft(()))
        rows = [target(()), target((token,))]
        result = accept_rejection((token,), rows, [draft(())], shared)
        return (*(token,)[: result.num_accepted], result.next_token_id)

    got = continue_with(law(run), target, 2)
    assert total_variation(got, continue_with({(): Fraction(1)}, target, 2)) > 0


# ---- coupled -----------------------------------------------------------------------------------


def coupled_rounds(source, target, draft, num_drafts, length, noise_index=lambda base, i: base + i):
    """Whole rounds with one uniform per output index, shared by target and drafter."""
    noise = [source.uniform() for _ in range(length + num_drafts + 1)]
    done = ()
    while len(done) < length:
        chain = done
        for _ in range(num_drafts):
            chain += (noise[len(chain)].pick(draft(chain)),)
        drafts = chain[len(done) :]
        result = accept_coupled(
            drafts,
            lambda i, base=done, drafts=drafts: noise[noise_index(len(base), i)].pick(
                target((*base, *drafts[:i]))
            ),
        )
        done += (*drafts[: result.num_accepted], result.next_token_id)
    plain = ()
    while len(plain) < length:
        plain += (noise[len(plain)].pick(target(plain)),)
    return done[:length], plain


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_drafts", [0, 1, 2])
def test_coupled_rounds_write_what_plain_decoding_writes(kind, num_drafts):
    """Not only the same law: the same tokens, for every value of the noise."""
    target, draft = models(3, 0)[kind]
    outcomes = law(lambda source: coupled_rounds(source, target, draft, num_drafts, 3))
    assert all(speculative == plain for speculative, plain in outcomes)
    plain_law = {}
    for (_, plain), weight in outcomes.items():
        plain_law[plain] = plain_law.get(plain, 0) + weight
    assert plain_law == continue_with({(): Fraction(1)}, target, 3)


def test_coupled_with_a_noise_index_that_stands_still_is_caught():
    target, draft = models(3, 0)["dense"]
    outcomes = law(lambda source: coupled_rounds(source, target, draft, 2, 3, lambda base, i: base))
    assert any(speculative != plain for speculative, plain in outcomes)


def test_coupled_asks_no_further_than_the_first_difference():
    asked = []

    def target_token_at(i):
        asked.append(i)
        return 7

    assert accept_coupled((7, 7, 3, 7), target_token_at) == Acceptance(2, 7)
    assert asked == [0, 1, 2]


@pytest.mark.parametrize(
    "drafts,target,expected",
    [
        ((), (5,), Acceptance(0, 5)),
        ((5,), (5, 6), Acceptance(1, 6)),
        ((4,), (5, 6), Acceptance(0, 5)),
        ((5, 6, 7), (5, 6, 7, 8), Acceptance(3, 8)),
        ((5, 9, 7), (5, 6, 7, 8), Acceptance(1, 6)),
    ],
)
def test_coupled_by_hand(drafts, target, expected):
    assert accept_coupled(drafts, target.__getitem__) == expected
