"""Cycles of a start, from the program, the rows in flight and a card's numbers.

The structure that is modelled (docs/simulated-card.md tells it in prose):

- A reader on each memory port streams the weights of one instruction after the other. It does not
  wait for instructions, only for room in its FIFO; so while vector units work, up to one FIFO of
  the next matrix arrives.
- The array takes a beat from each port a cycle, for all lanes at once, once its activations are
  ready; then its pipeline drains.
- Vector units work on their lane alone, so that rows in flight cost no extra time there.
- Attention reads the KV of every row, at most as fast as the memory delivers, and computes
  meanwhile.

Times are in cycles from the beginning of the start, as floats; the total is rounded up. Nothing
here looks at values, so the same work always costs the same.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fpga.driver.buffers import LaneCommand
from fpga.program import isa
from fpga.program.layout import BEAT_BYTES, align, matrix_bytes
from sim.calib.profile import CardProfile
from sim.schedule import Pass, card_passes

_SCALE_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """One start. ``bytes_read``: over all ports, filler of packed regions included.

    ``by_instruction``: cycles until each kind of instruction was done, counted from the end of
    the one before; ``start`` is the fixed part.
    """

    cycles: int
    bytes_read: int
    passes: int
    by_instruction: dict[str, float] = field(default_factory=dict)

    def bytes_per_s(self, clock_hz: int) -> float:
        """Average bandwidth over the whole start."""
        return self.bytes_read * clock_hz / self.cycles


@dataclass(slots=True)
class _Timeline:
    """Where a start has got to: ``now`` the units, ``stream`` the reader."""

    now: float
    stream: float
    bytes_read: int = 0
    spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


class CycleModel:
    """Costs of one program on one card."""

    def __init__(self, program: Sequence[isa.Instruction], profile: CardProfile) -> None:
        self._program = [op for op in program if not isinstance(op, isa.End)]
        self._engine = profile.engine
        self._kernel = profile.kernel
        self._latency = profile.memory.latency_cycles
        self._bytes_per_cycle = profile.bytes_per_cycle
        self._costs: dict[type[Any], Callable[[Any, Pass, _Timeline], None]] = {
            isa.Embed: self._embed,
            isa.NormQuant: self._vector,
            isa.Quant: self._vector,
            isa.MatMul: self._matmul,
            isa.RopeRow: self._rope_row,
            isa.RopeKv: self._rope_kv,
            isa.Attention: self._attention,
            isa.SiluGate: self._vector,
            isa.Head: self._head,
            isa.Draw: self._draw,
        }

    def start(self, lanes: Sequence[LaneCommand]) -> CycleReport:
        """One start with these lanes."""
        passes = card_passes(lanes, self._kernel.max_lanes)
        begin = float(self._engine.start_cycles)
        line = _Timeline(now=begin, stream=begin)
        line.spent["start"] += begin
        for rows in passes:
            self._pass(rows, line)
        return CycleReport(
            cycles=math.ceil(line.now),
            bytes_read=line.bytes_read,
            passes=len(passes),
            by_instruction=dict(line.spent),
        )

    def _pass(self, rows: Pass, line: _Timeline) -> None:
        active = rows
        for op in self._program:
            if op.sampled_only:
                active = tuple(row for row in active if row.sampled)
            if not active:
                return
            before = line.now
            self._costs[type(op)](op, active, line)
            line.now += self._engine.instruction_cycles
            line.spent[type(op).__name__] += line.now - before

    def _vector(self, op: Any, rows: Pass, line: _Timeline) -> None:  # noqa: ARG002
        line.now += self._vector_cycles(op.width)

    def _vector_cycles(self, elements: int) -> float:
        engine = self._engine
        return -(-elements // engine.vector_elements_per_cycle) + engine.vector_pipeline_cycles

    def _embed(self, op: isa.Embed, rows: Pass, line: _Timeline) -> None:
        # Which row is known only now: nothing can be read ahead.
        row_bytes = op.width * len(rows)
        line.bytes_read += row_bytes
        line.now += self._latency + row_bytes / self._bytes_per_cycle
        line.stream = max(line.stream, line.now)
        line.now += self._vector_cycles(op.width)

    def _matmul(self, op: isa.MatMul, rows: Pass, line: _Timeline) -> None:  # noqa: ARG002
        self._matrix(op, line)

    def _head(self, op: isa.Head, rows: Pass, line: _Timeline) -> None:  # noqa: ARG002
        self._matrix(op, line)
        # The candidates of the last tile still have to be sorted in.
        line.now += op.num_candidates

    def _matrix(self, op: isa.MatMul | isa.Head, line: _Timeline) -> None:
        size = align(matrix_bytes(op.num_rows, op.width, op.weight_bits), BEAT_BYTES)
        self._consume(size, line)
        line.now += self._engine.tile_pipeline_cycles

    def _consume(self, size: int, line: _Timeline) -> None:
        """Stream ``size`` bytes through the array, which is free from ``line.now`` on."""
        fifo = self._engine.fifo_beats * self._kernel.port_beat_bytes * self._kernel.ports
        idle = max(line.now - line.stream, 0.0)
        ahead = min(idle * self._bytes_per_cycle, fifo, size)
        arrived = max(line.now, line.stream) + (size - ahead) / self._bytes_per_cycle
        consumed = line.now + size / (self._kernel.ports * self._kernel.port_beat_bytes)
        line.stream = arrived
        line.now = max(arrived, consumed)
        line.bytes_read += size

    def _rope_row(self, op: isa.RopeRow, rows: Pass, line: _Timeline) -> None:
        """Known with the position and read ahead: costs nothing here."""

    def _rope_kv(self, op: isa.RopeKv, rows: Pass, line: _Timeline) -> None:
        heads = op.num_heads + 2 * op.num_kv_heads
        line.now += self._vector_cycles(heads * op.head_dim)
        # Writes share the bus with the reader but nobody waits for them.
        written = len(rows) * 2 * op.num_kv_heads * (op.head_dim + _SCALE_BYTES)
        line.stream += written / self._bytes_per_cycle

    def _attention(self, op: isa.Attention, rows: Pass, line: _Timeline) -> None:
        engine = self._engine
        token_bytes = 2 * op.num_kv_heads * (op.head_dim + _SCALE_BYTES)
        size = sum(token_bytes * (row.position + 1) for row in rows)
        # The array's weights already ahead stay in their FIFOs; KV comes in between.
        begin = max(line.now, line.stream) + self._latency
        arrived = begin + size / self._bytes_per_cycle
        longest = max(row.position + 1 for row in rows)
        products = 2 * longest * op.num_heads * op.head_dim / engine.attention_products_per_cycle
        scores = longest * op.num_heads / engine.softmax_scores_per_cycle
        line.stream = max(line.stream, line.now) + size / self._bytes_per_cycle
        # Keys give scores and their maximum first; exponentials then run beside the values.
        computed = line.now + products / 2 + max(products / 2, scores)
        line.now = max(arrived, computed) + 2 * engine.vector_pipeline_cycles
        line.bytes_read += size

    def _draw(self, op: isa.Draw, rows: Pass, line: _Timeline) -> None:  # noqa: ARG002
        line.now += self._engine.sample_cycles
