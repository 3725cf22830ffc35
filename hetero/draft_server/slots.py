"""Sequences and the card slots they live in: what the card has read, and what it should have."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from hetero.core.errors import CapacityError
from hetero.core.types import CardUsage, SamplingParams
from hetero.draft_protocol.messages import DraftReply, Open

SequenceKey = tuple[int, int]
"""(stream number, sequence id): clients choose ids without knowing of each other."""

_CHUNK = 256


def common_prefix_len(a: Sequence[int], b: Sequence[int], start: int = 0) -> int:
    """Length of the common prefix, given that the first ``start`` elements agree."""
    limit = min(len(a), len(b))
    while start < limit and a[start : start + _CHUNK] == b[start : start + _CHUNK]:
        start = min(start + _CHUNK, limit)
    while start < limit and a[start] == b[start]:
        start += 1
    return start


@dataclass(slots=True, eq=False)
class Slot:
    """A fixed KV region on the card. ``history``: the token at each position it holds."""

    index: int
    history: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class DraftSequence:
    """One client's sequence. ``agreed``: leading tokens that the slot's history shares.

    The card keeps its own drafted tokens in its KV. Those the verdict confirms agree with the
    committed tokens and are never read again; what comes after the first difference is dead.
    """

    key: SequenceKey
    slot: Slot
    epoch: int
    tokens: list[int]
    num_prompt_tokens: int
    sampling: SamplingParams
    agreed: int = 0
    last_draft: DraftReply | None = None
    unreported: CardUsage = field(default_factory=CardUsage)

    @property
    def num_unread(self) -> int:
        """Committed tokens that the card has yet to read."""
        return len(self.tokens) - self.agreed

    def reopen(self, item: Open) -> None:
        """Replace the tokens; what the slot holds of the new ones stays valid."""
        self.epoch = item.epoch
        self.tokens = list(item.token_ids)
        self.num_prompt_tokens = item.num_prompt_tokens
        self.sampling = item.sampling
        self.last_draft = None
        self.agreed = 0
        self.roll_back()

    def commit(self, epoch: int, token_ids: Iterable[int]) -> None:
        """Append committed tokens and void drafts of earlier epochs."""
        self.epoch = epoch
        self.tokens += token_ids
        self.last_draft = None
        self.roll_back()

    def roll_back(self) -> None:
        """Advance ``agreed``, then forget what the slot holds beyond the first difference."""
        history = self.slot.history
        self.agreed = common_prefix_len(history, self.tokens, self.agreed)
        if self.agreed < len(self.tokens):
            del history[self.agreed :]


class SlotTable:
    """Which sequence has which slot. A slot is never taken from a sequence that has it."""

    def __init__(self, num_slots: int) -> None:
        self.slots = [Slot(index) for index in range(num_slots)]
        self._free = list(self.slots)
        self._sequences: dict[SequenceKey, DraftSequence] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[DraftSequence]:
        return iter(self._sequences.values())

    def get(self, key: SequenceKey) -> DraftSequence | None:
        """An open sequence, or None."""
        return self._sequences.get(key)

    def open(self, key: SequenceKey, item: Open) -> DraftSequence:
        """Give a sequence a slot, preferring one that holds some of its prefix.

        Raises CapacityError when every slot is taken.
        """
        sequence = self._sequences.get(key)
        if sequence is None:
            sequence = DraftSequence(key, self._take(item.token_ids), 0, [], 0, item.sampling)
            self._sequences[key] = sequence
        sequence.reopen(item)
        return sequence

    def close(self, key: SequenceKey) -> None:
        """Free a sequence's slot. Unknown keys are ignored."""
        sequence = self._sequences.pop(key, None)
        if sequence is not None:
            self._free.append(sequence.slot)

    def close_stream(self, stream_number: int) -> None:
        """Free every slot of one client."""
        for key in [key for key in self._sequences if key[0] == stream_number]:
            self.close(key)

    def card_lost_all(self) -> None:
        """Forget every history: the card failed, its KV is unknown."""
        for slot in self.slots:
            slot.history.clear()
        for sequence in self._sequences.values():
            sequence.agreed = 0

    def _take(self, token_ids: tuple[int, ...]) -> Slot:
        if not self._free:
            raise CapacityError(f"all {len(self.slots)} card slots are taken")
        tokens = list(token_ids)
        best = max(self._free, key=lambda slot: common_prefix_len(slot.history, tokens))
        self._free.remove(best)
        return best
