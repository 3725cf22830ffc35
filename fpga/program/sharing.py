"""Which lanes of one start can share KV: prefixes, tails and trees (docs/draft-program.md, KV)."""

from collections.abc import Sequence

from hetero.core.errors import CardError
from hetero.core.types import LaneWork


def check_sharing(lanes: Sequence[LaneWork], num_slots: int) -> None:
    """CardError for lanes that would disturb each other, or see what nobody wrote."""
    for work in lanes:
        for slot in (work.slot, work.write_slot):
            if not 0 <= slot < num_slots:
                raise CardError(f"slot {slot}: this card has slots 0..{num_slots - 1}.")
    if len({work.write_slot for work in lanes}) != len(lanes):
        raise CardError("two lanes name one slot. Give each slot one lane a start.")
    for work in lanes:
        _check_tail(work, lanes)
    if any(work.ancestor_mask for work in lanes):
        for work in lanes:
            _check_node(work, len(lanes))


def _check_tail(work: LaneWork, lanes: Sequence[LaneWork]) -> None:
    """A shared prefix must lie before everything that this start writes there."""
    if work.write_slot == work.slot and not work.ancestor_mask:
        return
    if not 0 <= work.prefix_len <= work.start:
        raise CardError(
            f"slot {work.slot}: prefix_len {work.prefix_len} with start {work.start}: the shared "
            "prefix ends at or before what is read."
        )
    for other in lanes:
        if other.write_slot == work.slot and other.start < work.prefix_len:
            raise CardError(
                f"slot {work.slot}: a lane writes position {other.start}, below another lane's "
                f"prefix_len {work.prefix_len}. Give it a tail_slot of its own."
            )


def _check_node(work: LaneWork, num_lanes: int) -> None:
    if len(work.token_ids) != 1 or work.ancestor_mask < 0 or work.ancestor_mask >> num_lanes:
        raise CardError(
            f"slot {work.slot}: in a tree of {num_lanes} lanes each reads one token and its "
            f"ancestor_mask names lanes 0..{num_lanes - 1}."
        )
    if work.num_draft_tokens > 1 and work.start != work.prefix_len and work.ancestor_mask:
        raise CardError(
            f"slot {work.slot}: drafts {work.num_draft_tokens} tokens behind a tree's inner node, "
            "whose ancestors lie in other slots. Let it draft one."
        )
