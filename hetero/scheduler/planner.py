"""Who takes part in a round, and with how many rows of the verify step.

The row budget goes first to one row for each decoding sequence, so that nobody stands still;
what is left goes to drafts, but while prompts wait to be read half of it is kept for them. Rows
that drafts leave unused go to the prompts too, first come, first served.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hetero.core.types import Draft, DraftQuery, SequenceId, Verdict, VerifyItem
from hetero.scheduler.sequence import LiveSequence


@dataclass(slots=True)
class Round:
    """One round, filled in from top to bottom as it goes. ``queries``: by drafter name."""

    decoding: list[LiveSequence]
    reading: list[LiveSequence]
    queries: dict[str, list[DraftQuery]]
    drafts: dict[SequenceId, Draft] = field(default_factory=dict)
    draft_s: float = 0.0
    items: list[VerifyItem] = field(default_factory=list)
    verdicts: dict[SequenceId, Verdict] = field(default_factory=dict)
    verify_s: float = 0.0

    @property
    def sequences(self) -> dict[SequenceId, LiveSequence]:
        """Everyone who takes part."""
        return {s.sequence_id: s for s in [*self.decoding, *self.reading]}


def plan_round(running: Sequence[LiveSequence], max_rows: int) -> Round:
    """Sort sequences into decoding and reading, and say who may draft how much."""
    decoding = [s for s in running if s.decoding]
    reading = [s for s in running if not s.decoding]
    spare_rows = max_rows - len(decoding)
    draft_rows = spare_rows // 2 if reading else spare_rows
    grants = share_rows([s.num_draft_slots for s in decoding], draft_rows)
    queries: dict[str, list[DraftQuery]] = {}
    for sequence, grant in zip(decoding, grants, strict=True):
        if grant > 0:
            queries.setdefault(sequence.drafter_name, []).append(sequence.draft_query(grant))
    return Round(decoding, reading, queries)


def share_rows(wanted: Sequence[int], budget: int) -> list[int]:
    """Give each what it wants, up to a common ceiling that makes the sum fit."""
    grants = [max(0, want) for want in wanted]
    if sum(grants) <= budget:
        return grants
    order = sorted(range(len(grants)), key=grants.__getitem__)
    for place, i in enumerate(order):
        grants[i] = min(grants[i], budget // (len(order) - place))
        budget -= grants[i]
    return grants


def lay_out_rows(
    decoding: Sequence[LiveSequence],
    reading: Sequence[LiveSequence],
    drafts: Mapping[SequenceId, Draft],
    max_rows: int,
) -> list[VerifyItem]:
    """The verify step: every decoding sequence with its drafts, then chunks of prompts."""
    items = []
    for sequence in decoding:
        draft = drafts.get(sequence.sequence_id)
        draft_ids = draft.token_ids if draft else ()
        items.append(
            sequence.verify_item(num_tokens=sequence.num_uncached, draft_token_ids=draft_ids)
        )
    rows_left = max_rows - num_rows(items)
    for sequence in reading:
        num_tokens = min(sequence.num_uncached, rows_left)
        if num_tokens > 0:
            items.append(sequence.verify_item(num_tokens=num_tokens))
            rows_left -= num_tokens
    return items


def num_rows(items: Sequence[VerifyItem]) -> int:
    """Rows of a verify step."""
    return sum(len(item.token_ids) + len(item.draft_token_ids) for item in items)
