"""Where the rows of a lane write and what they see, and which lanes a card can't take together."""

from collections.abc import Sequence
from typing import NamedTuple

from fpga.program.layout import KvLayout
from hetero.core.errors import CardError
from hetero.core.types import LaneWork


class Place(NamedTuple):
    """A row's position and its memory: below ``prefix_len`` in ``slot``, else in ``write_slot``."""

    position: int
    slot: int
    write_slot: int
    prefix_len: int


def place(work: LaneWork, position: int) -> Place:
    """Of a lane's row at a position."""
    return Place(position, work.slot, work.write_slot, work.prefix_len)


def is_tree(lanes: Sequence[LaneWork]) -> bool:
    """Whether lanes may see what others read in the same start."""
    return any(work.ancestor_mask for work in lanes)


def ancestors(lanes: Sequence[LaneWork], index: int) -> tuple[Place, ...]:
    """What a lane of a tree sees of this start: the lanes in its mask and always itself."""
    mask = lanes[index].ancestor_mask | 1 << index
    return tuple(place(work, work.start) for m, work in enumerate(lanes) if mask >> m & 1)


def first_seen(position: int, window: int) -> int:
    """The first position inside of the window; 0 without one."""
    return max(position + 1 - window, 0) if window else 0


def check_start(lanes: Sequence[LaneWork], kv: KvLayout, vocab_size: int) -> None:
    """CardError for work that a card could not take."""
    if len({work.write_slot for work in lanes}) != len(lanes):
        raise CardError("two lanes name one slot. Give each slot one lane a start.")
    for work in lanes:
        _check_lane(work, kv, vocab_size)
        _check_tail(work, lanes)
    if is_tree(lanes):
        for work in lanes:
            _check_node(work, len(lanes))


def _check_lane(work: LaneWork, kv: KvLayout, vocab_size: int) -> None:
    end = work.start + len(work.token_ids) + max(work.num_draft_tokens - 1, 0)
    for slot in (work.slot, work.write_slot):
        if not 0 <= slot < kv.num_slots:
            raise CardError(f"slot {slot}: this card has slots 0..{kv.num_slots - 1}.")
    if work.start < 0 or not work.token_ids or end > kv.context_tokens:
        raise CardError(
            f"slot {work.slot}: positions {work.start}..{end - 1} with {len(work.token_ids)} "
            f"tokens to read; a slot holds {kv.context_tokens} and needs one to read."
        )
    if not all(0 <= token < vocab_size for token in work.token_ids):
        raise CardError(f"slot {work.slot}: a token outside 0..{vocab_size - 1}.")


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
    if len(work.token_ids) != 1 or work.ancestor_mask >> num_lanes or work.ancestor_mask < 0:
        raise CardError(
            f"slot {work.slot}: in a tree of {num_lanes} lanes each reads one token and its "
            f"ancestor_mask names lanes 0..{num_lanes - 1}."
        )
    if work.num_draft_tokens > 1 and work.start != work.prefix_len and work.ancestor_mask:
        raise CardError(
            f"slot {work.slot}: drafts {work.num_draft_tokens} tokens behind a tree's inner node, "
            "whose ancestors lie in other slots. Let it draft one."
        )
