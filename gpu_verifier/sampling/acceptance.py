"""How many draft tokens stand, and which token follows them. Pure functions of what they are given.

``accept_coupled`` is what the engine uses: the target's own token at each position is fixed by its
keyed noise, and a draft stands while it is equal. ``accept_rejection`` (Leviathan et al., arXiv
2211.17192) and ``accept_block`` (Sun et al., arXiv 2403.10444) work on probability rows; they are
exact only if each draft token was sampled from the row given for it.

The probability versions use nothing but + - * / and comparisons, so they run on ``Fraction`` as
well as on float: tests push every outcome through them and demand equality, not closeness.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeAlias

Number: TypeAlias = float | Fraction
Row: TypeAlias = Sequence[Number]
"""Probabilities or weights of a vocabulary."""


class Randomness(Protocol):
    """Fresh randomness for each call, independent of the draft's own."""

    def chance(self, numerator: Number, denominator: Number) -> bool:
        """True with probability min(1, numerator / denominator); denominator > 0."""
        ...

    def pick(self, weights_v: Row) -> int:
        """An index with probability proportional to its weight; their sum is positive."""
        ...


@dataclass(frozen=True, slots=True)
class Acceptance:
    """``num_accepted`` drafts stand; ``next_token_id`` is recovered, or bonus if all stand."""

    num_accepted: int
    next_token_id: int


def accept_coupled(
    draft_token_ids: Sequence[int], target_token_at: Callable[[int], int]
) -> Acceptance:
    """Accept drafts while they equal the target's token.

    ``target_token_at(i)``: the target's token after i accepted drafts. Asked in order and no
    further than needed, so that noise is not spent on rows behind a rejection.
    """
    for i, draft_token_id in enumerate(draft_token_ids):
        token_id = target_token_at(i)
        if token_id != draft_token_id:
            return Acceptance(i, token_id)
    return Acceptance(len(draft_token_ids), target_token_at(len(draft_token_ids)))


def accept_rejection(
    draft_token_ids: Sequence[int],
    target_rows_kv: Sequence[Row],
    draft_rows_kv: Sequence[Row],
    randomness: Randomness,
) -> Acceptance:
    """Token-level rejection sampling.

    ``target_rows_kv``: K + 1 processed rows, the last one for the bonus. ``draft_rows_kv``: the K
    rows that the drafts were sampled from (a greedy draft's row is one-hot).
    """
    for i, token_id in enumerate(draft_token_ids):
        target_v, draft_v = target_rows_kv[i], draft_rows_kv[i]
        if not randomness.chance(target_v[token_id], draft_v[token_id]):
            return Acceptance(i, _recover(1, target_v, draft_v, randomness))
    return Acceptance(len(draft_token_ids), randomness.pick(target_rows_kv[-1]))


def accept_block(
    draft_token_ids: Sequence[int],
    target_rows_kv: Sequence[Row],
    draft_rows_kv: Sequence[Row],
    randomness: Randomness,
) -> Acceptance:
    """Block verification: accepts at least as many tokens as rejection sampling on average.

    Arguments as for ``accept_rejection``. Given the drafts X_1..X_i, at least i of them are
    accepted with probability ``reach[i]``, the paper's clipped running product.
    """
    num_drafts = len(draft_token_ids)
    reach = _reach(draft_token_ids, target_rows_kv, draft_rows_kv)
    if num_drafts == 0 or randomness.chance(reach[num_drafts], 1):
        return Acceptance(num_drafts, randomness.pick(target_rows_kv[num_drafts]))
    for i in range(num_drafts - 1, 0, -1):
        gain = sum(_excess(reach[i], target_rows_kv[i], draft_rows_kv[i]))
        total = gain + 1 - reach[i]
        # total is 0 where reach is 1 and target equals draft: then i tokens certainly stand.
        if total <= 0 or randomness.chance(gain, total):
            break
    else:
        i = 0
    return Acceptance(i, _recover(reach[i], target_rows_kv[i], draft_rows_kv[i], randomness))


def _reach(
    draft_token_ids: Sequence[int], target_rows_kv: Sequence[Row], draft_rows_kv: Sequence[Row]
) -> list[Number]:
    reach: list[Number] = [1]
    for i, token_id in enumerate(draft_token_ids):
        ratio = target_rows_kv[i][token_id] / draft_rows_kv[i][token_id]
        reach.append(min(1, reach[i] * ratio))
    return reach


def _recover(reach: Number, target_v: Row, draft_v: Row, randomness: Randomness) -> int:
    """Draw from what the target has beyond the draft; from the target where rounding left none."""
    excess_v = _excess(reach, target_v, draft_v)
    return randomness.pick(excess_v if sum(excess_v) > 0 else target_v)


def _excess(reach: Number, target_v: Row, draft_v: Row) -> list[Number]:
    return [max(reach * t - d, 0) for t, d in zip(target_v, draft_v, strict=True)]
