"""Cycles of a start, from the program, the rows in flight and a build's shape.

The structure is that of fpga/rtl (docs/simulated-card.md tells it in prose);
``sim/cycles/engine.py`` runs it. The same work always costs the same.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from fpga.driver.buffers import KvGeometry, LaneCommand
from fpga.program import isa
from fpga.program.layout import BEAT_BYTES, KvLayout
from hetero.core.errors import ConfigError
from sim.calib.profile import CardProfile
from sim.cycles import engine
from sim.cycles.dram import dram, serve
from sim.cycles.passes import Drafted, lay_out
from sim.cycles.stream import I64, ITEM_COLUMNS, RING, SHARE_COLUMNS, Shape
from sim.cycles.table import op_table, share_beats
from sim.rtl.parameters import MemoryTiming
from sim.rtl.timing import dram_timing

PAGE_BYTES: Final = 4096
CONTEXT_TOKENS: Final = 2048
COMMAND_ADDRESS: Final = 0
MAX_BURST_BYTES: Final = 1024
MAX_BURST_TRANSFERS: Final = 16
"""As fpga/rtl/port_reader.sv cuts bursts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """One start. ``bytes_read``: over all ports, filler of packed regions included.

    ``by_instruction``: cycles from the start of an instruction to the start of the next one, for
    each kind; ``spent`` int64 [pass, op]: the same for each instruction of each pass, 0 for one
    that no row of the pass needs.
    """

    cycles: int
    bytes_read: int
    passes: int
    by_instruction: dict[str, int] = field(default_factory=dict)
    spent: I64 = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64), compare=False)

    def bytes_per_s(self, clock_hz: int) -> float:
        """Average bandwidth over the whole start."""
        return self.bytes_read * clock_hz / self.cycles


class CycleModel:
    """Costs of one program on one card.

    ``timing``: of the memory around the kernel; None: the card's own. ``kv``: how the KV cache lies
    in memory; None: one of 2,048 positions. ``weight_addresses``, ``kv_addresses``: byte addresses
    on each port, for ports that share a memory; None: as a driver lays them, one after the other.
    """

    def __init__(
        self,
        program: Sequence[isa.Instruction],
        profile: CardProfile,
        *,
        timing: MemoryTiming | None = None,
        kv: KvGeometry | None = None,
        weight_addresses: Sequence[int] | None = None,
        kv_addresses: Sequence[int] | None = None,
    ) -> None:
        self._program = [op for op in program if not isinstance(op, isa.End)]
        ports = profile.kernel.ports
        self._timing = timing or dram_timing(profile, ports=ports)
        self._shape = shape_of(profile, self._timing)
        self._constants = profile.constants
        self._ops = op_table(self._program, ports)
        geometry = kv or _geometry(self._program, ports)
        self._kv, self._kv_bytes = _kv_beats(geometry), geometry.port_bytes
        self._base = self._bases(weight_addresses, kv_addresses)

    def start(
        self,
        lanes: Sequence[LaneCommand],
        *,
        drafted: Drafted | None = None,
        window: int = 0,
        loads_program: bool = False,
        at_cycle: int = 0,
    ) -> CycleReport:
        """One start with these lanes; ``loads_program``: the card does not hold it yet;
        ``at_cycle``: when it begins, which only refresh cares for.

        ``drafted``: the tokens that each lane drafts. Only one thing depends on a value: the port
        that a token's embedding row lies on. None: as if tokens were spread evenly.
        """
        shape, k, memory = self._shape, self._constants, dram(self._timing)
        latency = self._timing.latency_cycles
        layout = lay_out(lanes, shape.lanes, window, drafted)
        num_passes, num_ops = layout.rows.shape[0], len(self._program)
        tokens = sum(len(lane.token_ids) for lane in lanes)
        asked = at_cycle + k.start // 2  # for the command
        answered = serve(memory, 0, COMMAND_ADDRESS, 0, asked)
        begin = answered + k.start - k.start // 2 + tokens + len(lanes)
        if loads_program:
            begin += k.program + 2 * latency + num_ops
        bound = num_passes * num_ops * (6 * shape.lanes + 1)
        items = np.zeros((bound, ITEM_COLUMNS), dtype=np.int64)
        share = np.zeros((shape.ports, bound, SHARE_COLUMNS), dtype=np.int64)
        number = engine.plan_items(self._ops, layout.rows, layout.groups, self._kv, items, share)
        spent = np.zeros((num_passes, num_ops), dtype=np.int64)
        end, beats = engine.run(
            self._ops,
            items[:number],
            np.ascontiguousarray(share[:, :number]),
            layout.rows,
            layout.groups,
            shape,
            k,
            begin,
            memory,
            self._base,
            spent,
        )
        written = serve(memory, 0, COMMAND_ADDRESS + PAGE_BYTES, 1, end + k.end // 2)
        return CycleReport(
            cycles=int(written) - at_cycle + k.end - k.end // 2 + shape.ports,
            bytes_read=int(beats) * shape.ports * BEAT_BYTES,
            passes=num_passes,
            by_instruction=self._by_kind(spent.sum(axis=0).tolist()),
            spent=spent,
        )

    def _bases(self, weights: Sequence[int] | None, kv: Sequence[int] | None) -> I64:
        """[region, port]: of the ports that share port 0's channel."""
        ports, size = self._shape.ports, share_beats(self._ops) * BEAT_BYTES
        usual = one_after_the_other(ports, size, self._kv_bytes)
        step = ports // self._shape.sharing
        return np.array([(weights or usual[0])[::step], (kv or usual[1])[::step]], dtype=np.int64)

    def _by_kind(self, spent: Sequence[int]) -> dict[str, int]:
        kinds: defaultdict[str, int] = defaultdict(int)
        for op, cycles in zip(self._program, spent, strict=True):
            kinds[type(op).__name__] += cycles
        return dict(kinds)


def shape_of(profile: CardProfile, timing: MemoryTiming) -> Shape:
    """The card's build as the engine wants it."""
    kernel = profile.kernel
    burst_bytes = min(MAX_BURST_BYTES, MAX_BURST_TRANSFERS * kernel.port_beat_bytes)
    if kernel.fifo_beats > RING // 2:
        raise ConfigError(f"{profile.name}: fifo_beats = {kernel.fifo_beats}: at most {RING // 2}.")
    return Shape(
        ports=kernel.ports,
        port_log=kernel.ports.bit_length() - 1,
        parts=BEAT_BYTES // kernel.port_beat_bytes,
        lanes=kernel.max_lanes,
        arrays=kernel.num_arrays,
        array_steps=BEAT_BYTES // kernel.array_bytes,
        fifo_beats=kernel.fifo_beats,
        burst_beats=burst_bytes // BEAT_BYTES,
        stages=kernel.slr_stages,
        sharing=-(-kernel.ports // timing.channels) if timing.is_banked else 1,
        attention_heads=kernel.attention_heads,
        attention_bytes=kernel.attention_bytes,
        out_elements=8 if kernel.ports >= 8 else 4,
    )


def one_after_the_other(
    ports: int, share_bytes: int, kv_bytes: int, *, before: Sequence[int] = ()
) -> tuple[list[int], list[int]]:
    """Addresses of weights and KV of each port in one memory, as a driver lays them: on pages,
    all weights first. ``before``: sizes of the buffers before them."""
    share, cache, begin = _pages(share_bytes), _pages(kv_bytes), sum(map(_pages, before))
    weights = [begin + port * share for port in range(ports)]
    return weights, [begin + ports * share + port * cache for port in range(ports)]


def _kv_beats(kv: KvGeometry) -> I64:
    return np.array([kv.slot_beats, kv.layer_beats, kv.k_beats, kv.v_beats], dtype=np.int64)


def _geometry(program: Sequence[isa.Instruction], ports: int) -> KvGeometry:
    """Of the program's KV cache with CONTEXT_TOKENS positions."""
    layers = [op for op in program if isinstance(op, isa.Attention)]
    layout = KvLayout(
        num_slots=1,
        context_tokens=CONTEXT_TOKENS,
        num_layers=len(layers),
        num_kv_heads=layers[0].num_kv_heads if layers else 1,
        head_dim=layers[0].head_dim if layers else BEAT_BYTES,
    )
    return KvGeometry.of(layout, ports)


def _pages(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
