"""Block accounting of the paged KV cache. No tensors: this is the book, not the shelf.

A sequence reserves its worst case at ``admit`` and takes physical blocks from that reservation
only as positions get allocated, so a running sequence never finds the pool empty. Two lengths
tell what its blocks hold: positions below ``committed_len`` are final, those up to
``allocated_len`` may still be rejected, and everything beyond is dead.
"""

from dataclasses import dataclass, field

from hetero.core.errors import CapacityError
from hetero.core.types import KvUsage, SequenceId


@dataclass(slots=True)
class _Held:
    """What one sequence holds; ``block_ids`` always covers exactly ``allocated_len``."""

    reserved_tokens: int
    reserved_blocks: int
    block_ids: list[int] = field(default_factory=list)
    committed_len: int = 0
    allocated_len: int = 0


class BlockPool:
    """Hands out blocks of ``block_tokens`` positions, numbered 0 .. num_blocks - 1."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        self._free_ids = list(range(num_blocks - 1, -1, -1))
        self._unreserved = num_blocks
        self._held: dict[SequenceId, _Held] = {}

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that ``num_tokens`` positions need."""
        return -(-num_tokens // self.block_tokens)

    def can_reserve(self, num_tokens: int) -> bool:
        """Whether ``reserve`` would succeed now."""
        return self.blocks_for(num_tokens) <= self._unreserved

    def reserve(self, sequence_id: SequenceId, num_tokens: int) -> None:
        """Promise ``num_tokens`` positions to a new sequence; raises CapacityError if too many."""
        if sequence_id in self._held:
            raise ValueError(f"sequence {sequence_id} is already admitted")
        blocks = self.blocks_for(num_tokens)
        if blocks > self._unreserved:
            raise CapacityError(
                f"sequence {sequence_id}: {num_tokens} positions need {blocks} KV blocks, "
                f"{self._unreserved} of {self.num_blocks} are free. "
                "Wait for a request to end, or raise num_kv_blocks."
            )
        self._unreserved -= blocks
        self._held[sequence_id] = _Held(num_tokens, blocks)

    def allocate(self, sequence_id: SequenceId, num_tokens: int) -> None:
        """Back positions below ``num_tokens`` with blocks; never shrinks.

        Raises CapacityError beyond what the sequence reserved.
        """
        held = self._of(sequence_id)
        if num_tokens > held.reserved_tokens:
            raise CapacityError(
                f"sequence {sequence_id}: position {num_tokens - 1} is beyond the "
                f"{held.reserved_tokens} positions reserved. Draft fewer tokens, or admit more."
            )
        held.allocated_len = max(held.allocated_len, num_tokens)
        while len(held.block_ids) < self.blocks_for(held.allocated_len):
            held.block_ids.append(self._free_ids.pop())

    def commit(self, sequence_id: SequenceId, num_tokens: int) -> None:
        """Make the first ``num_tokens`` positions final; they must be allocated."""
        held = self._of(sequence_id)
        if not held.committed_len <= num_tokens <= held.allocated_len:
            raise ValueError(
                f"sequence {sequence_id}: cannot commit {num_tokens} positions with "
                f"{held.committed_len} committed and {held.allocated_len} allocated"
            )
        held.committed_len = num_tokens

    def rollback(self, sequence_id: SequenceId) -> None:
        """Forget what is allocated but not committed; its blocks return to the reservation."""
        held = self._of(sequence_id)
        held.allocated_len = held.committed_len
        keep = self.blocks_for(held.committed_len)
        self._free_ids.extend(reversed(held.block_ids[keep:]))
        del held.block_ids[keep:]

    def release(self, sequence_id: SequenceId) -> None:
        """Return everything a sequence holds, allocated or promised. Unknown ids are ignored."""
        held = self._held.pop(sequence_id, None)
        if held is not None:
            self._free_ids.extend(reversed(held.block_ids))
            self._unreserved += held.reserved_blocks

    def block_ids(self, sequence_id: SequenceId) -> tuple[int, ...]:
        """The blocks behind positions 0 .. allocated_len - 1, in order."""
        return tuple(self._of(sequence_id).block_ids)

    def committed_len(self, sequence_id: SequenceId) -> int:
        """Positions that are final."""
        return self._of(sequence_id).committed_len

    def allocated_len(self, sequence_id: SequenceId) -> int:
        """Positions that have blocks, final or not."""
        return self._of(sequence_id).allocated_len

    def usage(self) -> KvUsage:
        """Counts for metrics; ``reserved`` is promised or allocated, but not committed."""
        committed = sum(self.blocks_for(held.committed_len) for held in self._held.values())
        reserved = sum(held.reserved_blocks for held in self._held.values()) - committed
        return KvUsage(self.num_blocks, self._unreserved, committed, reserved, len(self._held))

    def check(self) -> None:
        """Raise AssertionError, both sides of the equation shown, if the book does not balance."""
        usage = self.usage()
        parts = usage.free_blocks + usage.committed_blocks + usage.reserved_blocks
        assert parts == self.num_blocks, (
            f"free {usage.free_blocks} + committed {usage.committed_blocks} + reserved "
            f"{usage.reserved_blocks} = {parts}, total {self.num_blocks}"
        )
        owned = [block for held in self._held.values() for block in held.block_ids]
        everywhere = sorted(owned + self._free_ids)
        assert everywhere == list(range(self.num_blocks)), (
            f"free list {len(self._free_ids)} + owned {len(owned)} blocks are not 0.."
            f"{self.num_blocks - 1} once each: {everywhere}"
        )
        for sequence_id, held in self._held.items():
            needed = self.blocks_for(held.allocated_len)
            assert len(held.block_ids) == needed, (
                f"sequence {sequence_id}: {len(held.block_ids)} blocks for "
                f"{held.allocated_len} positions, which need {needed}"
            )

    def _of(self, sequence_id: SequenceId) -> _Held:
        try:
            return self._held[sequence_id]
        except KeyError:
            raise ValueError(f"sequence {sequence_id} is not admitted") from None
