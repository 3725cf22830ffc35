"""Where the rows of a lane write and what they see."""

from collections.abc import Sequence
from typing import NamedTuple

from fpga.program.layout import KvLayout
from fpga.program.sharing import check_sharing
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
    check_sharing(lanes, kv.num_slots)
    for work in lanes:
        _check_lane(work, kv, vocab_size)


def _check_lane(work: LaneWork, kv: KvLayout, vocab_size: int) -> None:
    end = work.start + len(work.token_ids) + max(work.num_draft_tokens - 1, 0)
    if work.start < 0 or not work.token_ids or end > kv.context_tokens:
        raise CardError(
            f"slot {work.slot}: positions {work.start}..{end - 1} with {len(work.token_ids)} "
            f"tokens to read; a slot holds {kv.context_tokens} and needs one to read."
        )
    if not all(0 <= token < vocab_size for token in work.token_ids):
        raise CardError(f"slot {work.slot}: a token outside 0..{vocab_size - 1}.")
