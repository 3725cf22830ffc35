"""Runs a start of the card: all rows of a pass share each sweep over the weights."""

from collections.abc import Callable, Sequence
from typing import Final

from fpga.driver.buffers import LaneCommand, LaneOutcome
from fpga.program import isa
from sim.functional.state import Drawn, KvCacheView, RowKey, Rows, Sizes
from sim.functional.steps import Step, bind_program
from sim.functional.weights import WeightImage
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
        weights: WeightImage,
        kv: KvCacheView,
        *,
        vector_words: int,
    ) -> None:
        self._sizes = Sizes.of(program, vector_words)
        self.kv = kv
        self._steps: list[Step] = bind_program(program, weights, kv)

    def run(
        self, lanes: Sequence[LaneCommand], observe: Observer | None = None
    ) -> tuple[LaneOutcome, ...]:
        """One start; the lanes are valid and their slots distinct."""
        drafts: list[list[Drawn]] = [[] for _ in lanes]
        for chunk in chunked(reading(lanes), ROWS_AT_ONCE):
            self._pass(lanes, chunk, drafts, observe)
        for chunk in drafting(lanes):
            self._pass(lanes, chunk, drafts, observe)
        return tuple(
            LaneOutcome(
                slot=lane.slot,
                token_ids=tuple(drawn.token_id for drawn in draft),
                confidence=tuple(drawn.confidence for drawn in draft),
            )
            for lane, draft in zip(lanes, drafts, strict=True)
        )

    def _pass(
        self,
        lanes: Sequence[LaneCommand],
        chunk: Sequence[Row],
        drafts: list[list[Drawn]],
        observe: Observer | None,
    ) -> None:
        rows = self._rows(lanes, chunk, drafts)
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
            drafts[chunk[row].lane].append(drawn)

    def _rows(
        self, lanes: Sequence[LaneCommand], chunk: Sequence[Row], drafts: list[list[Drawn]]
    ) -> Rows:
        return Rows.of(
            [_token(lanes[row.lane], row, drafts[row.lane]) for row in chunk],
            [(lanes[row.lane].slot, row.position) for row in chunk],
            [_key(lanes[row.lane], len(drafts[row.lane])) for row in chunk],
            [row.sampled for row in chunk],
            self._sizes,
        )


def _token(lane: LaneCommand, row: Row, draft: Sequence[Drawn]) -> int:
    offset = row.position - lane.start
    if offset < len(lane.token_ids):
        return lane.token_ids[offset]
    return draft[offset - len(lane.token_ids)].token_id


def _key(lane: LaneCommand, step: int) -> RowKey:
    return RowKey(lane.seed, lane.output_index + step, lane.choice_index, lane.inv_temperature)
