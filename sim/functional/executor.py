"""Runs a start of the card: all rows of a pass share each sweep over the weights."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from fpga.driver.buffers import DraftedToken, LaneCommand, LaneOutcome
from fpga.program import isa
from sim.functional.state import KvCacheView, RowKey, RowPlace, Rows, Sizes
from sim.functional.steps import Step, bind_program
from sim.functional.weights import Weights
from sim.schedule import Row, chunked, drafting, reading

ROWS_AT_ONCE: Final = 64
"""Rows read together. No result depends on it; larger only costs memory."""

Observer = Callable[[isa.Instruction, Rows, Sequence[int]], None]
"""Called after each instruction with the rows it was for: for comparing with other executors."""


class FunctionalExecutor:
    """The draft program, bound to weights and KV cache in card memory."""

    def __init__(
        self,
        program: tuple[isa.Instruction, ...],
        weights: Weights,
        kv: KvCacheView,
        *,
        vector_words: int,
    ) -> None:
        self._sizes = Sizes.of(program, vector_words)
        self.kv = kv
        self._steps: list[Step] = bind_program(program, weights, kv)

    def run(
        self,
        lanes: Sequence[LaneCommand],
        observe: Observer | None = None,
        *,
        window: int = 0,
    ) -> tuple[LaneOutcome, ...]:
        """One start; the lanes are valid and write to distinct slots. ``window`` 0: see all."""
        work = _Start(lanes, window, [[] for _ in lanes])
        for chunk in chunked(reading(lanes), ROWS_AT_ONCE):
            self._pass(work, chunk, observe)
        for chunk in drafting(lanes):
            self._pass(work, chunk, observe)
        return tuple(
            LaneOutcome(slot=lane.slot, tokens=tuple(draft))
            for lane, draft in zip(lanes, work.drafts, strict=True)
        )

    def _pass(self, work: "_Start", chunk: Sequence[Row], observe: Observer | None) -> None:
        rows = Rows.of(
            [work.token(row) for row in chunk],
            [work.place(row) for row in chunk],
            [work.key(row) for row in chunk],
            [row.sampled for row in chunk],
            self._sizes,
        )
        index = rows.every
        for step in self._steps:
            if step.instruction.sampled_only:
                # Everything behind the first such instruction is skipped too.
                index = rows.sampled
            if not index.size:
                return
            step.execute(rows, index)
            if observe is not None:
                observe(step.instruction, rows, [int(i) for i in index])
        for row, drawn in rows.drawn.items():
            work.drafts[chunk[row].lane].append(drawn)


class _Start(NamedTuple):
    """What a start is to do, and has drafted."""

    lanes: Sequence[LaneCommand]
    window: int
    drafts: list[list[DraftedToken]]

    def token(self, row: Row) -> int:
        lane = self.lanes[row.lane]
        offset = row.position - lane.start
        if offset < len(lane.token_ids):
            return lane.token_ids[offset]
        return self.drafts[row.lane][offset - len(lane.token_ids)].top[0].token_id

    def key(self, row: Row) -> RowKey:
        lane, step = self.lanes[row.lane], len(self.drafts[row.lane])
        return RowKey(lane.seed, lane.output_index + step, lane.choice_index, lane.inv_temperature)

    def place(self, row: Row) -> RowPlace:
        lane = self.lanes[row.lane]
        first = max(row.position + 1 - self.window, 0) if self.window else 0
        end = row.position + 1
        fresh: tuple[tuple[int, int], ...] = ()
        if lane.ancestor_mask and row.position == lane.start:
            end, fresh = min(lane.prefix_len, end), self._ancestors(row.lane, first)
        return RowPlace(
            lane.write_slot, row.position, lane.slot, lane.prefix_len, min(first, end), end, fresh
        )

    def _ancestors(self, index: int, first: int) -> tuple[tuple[int, int], ...]:
        """Rows of a tree's first pass that a lane sees, its own always; from ``first`` on."""
        mask = self.lanes[index].ancestor_mask | 1 << index
        return tuple(
            (lane.write_slot, lane.start)
            for other, lane in enumerate(self.lanes)
            if mask >> other & 1 and lane.start >= first
        )
