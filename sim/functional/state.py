"""What rows in flight hold while a pass takes them through the program."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpga.driver.buffers import DraftedToken, KvGeometry
from fpga.program import isa
from fpga.program.layout import BEAT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Largest sizes that a program asks for."""

    vector_words: int
    act_columns: int
    num_heads: int
    query_columns: int
    num_candidates: int
    num_kv_heads: int

    @classmethod
    def of(cls, program: tuple[isa.Instruction, ...], vector_words: int) -> "Sizes":
        """Over all instructions; zero where none of a kind is there."""
        products = [op for op in program if isinstance(op, isa.MatMul | isa.Head)]
        rope = [op for op in program if isinstance(op, isa.RopeKv)]
        heads = [op for op in program if isinstance(op, isa.Head)]
        return cls(
            vector_words=vector_words,
            act_columns=max((op.width for op in products), default=0),
            num_heads=max((op.num_heads for op in rope), default=0),
            query_columns=max((op.num_heads * op.head_dim for op in rope), default=0),
            num_candidates=max((op.num_candidates for op in heads), default=0),
            num_kv_heads=max((op.num_kv_heads for op in rope), default=0),
        )


class RowKey(NamedTuple):
    """What a row's draw depends on besides its logits."""

    seed: int
    output_index: int
    choice_index: int
    inv_temperature: int


class RowPlace(NamedTuple):
    """Where a row writes and what it sees: [first, end) in memory, and ``fresh`` rows beside it.

    Positions below ``prefix_len`` lie in ``slot``, others in ``write_slot``. ``fresh``: write slot
    and position of rows of this pass that are not in that range.
    """

    write_slot: int
    position: int
    slot: int
    prefix_len: int
    first: int
    end: int
    fresh: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Rows:
    """State of the rows of a pass; see sim.functional.kernels for the arrays' axes.

    ``pos_rc``: RowPlace, with the number of fresh rows at its end. ``fresh_rmc``: those, filled up.
    """

    ids_r: NDArray[np.int64]
    pos_rc: NDArray[np.int64]
    fresh_rmc: NDArray[np.int64]
    keys: list[RowKey]
    every: NDArray[np.int64]
    sampled: NDArray[np.int64]
    vec_rw: NDArray[np.int32]
    act_rk: NDArray[np.int16]
    scale_rc: NDArray[np.int64]
    query_rd: NDArray[np.int8]
    query_scale_rhc: NDArray[np.int64]
    logit_rc: NDArray[np.int64]
    head_row_rc: NDArray[np.int64]
    drawn: dict[int, DraftedToken] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        ids: list[int],
        places: list[RowPlace],
        keys: list[RowKey],
        sampled: list[bool],
        sizes: Sizes,
    ) -> "Rows":
        """New rows."""
        count = len(ids)
        fresh = np.zeros((count, max(len(place.fresh) for place in places), 2), dtype=np.int64)
        for row, place in enumerate(places):
            fresh[row, : len(place.fresh)] = np.array(place.fresh, dtype=np.int64).reshape(-1, 2)
        return cls(
            ids_r=np.array(ids, dtype=np.int64),
            pos_rc=np.array([(*p[:-1], len(p.fresh)) for p in places], dtype=np.int64),
            fresh_rmc=fresh,
            keys=keys,
            every=np.arange(count, dtype=np.int64),
            sampled=np.flatnonzero(sampled).astype(np.int64),
            vec_rw=np.zeros((count, sizes.vector_words), dtype=np.int32),
            act_rk=np.zeros((count, sizes.act_columns), dtype=np.int16),
            scale_rc=np.zeros((count, 2), dtype=np.int64),
            query_rd=np.zeros((count, sizes.query_columns), dtype=np.int8),
            query_scale_rhc=np.zeros((count, sizes.num_heads, 2), dtype=np.int64),
            logit_rc=np.zeros((count, sizes.num_candidates), dtype=np.int64),
            head_row_rc=np.zeros((count, sizes.num_candidates), dtype=np.int64),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheView:
    """The cache in card memory. ``base_p``: address of each port's share."""

    memory: NDArray[np.uint8]
    base_p: NDArray[np.int64]
    geometry: KvGeometry

    def strides(self, layer: int) -> tuple[int, int, int, int]:
        """Bytes: from slot to slot; offset of the layer; in it, offsets of keys and values."""
        kv = self.geometry
        beats = (kv.slot_beats, layer * kv.layer_beats, kv.k_beats, kv.v_beats)
        slot, at, keys, values = (BEAT_BYTES * b for b in beats)
        return slot, at, keys, values
