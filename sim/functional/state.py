"""What rows in flight hold while a pass takes them through the program."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpga.driver.buffers import KvGeometry
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


class Drawn(NamedTuple):
    """Target id and confidence in 1/255."""

    token_id: int
    confidence: int


@dataclass(slots=True)
class Rows:
    """State of the rows of a pass; see sim.functional.kernels for the arrays' axes."""

    ids_r: NDArray[np.int64]
    pos_rc: NDArray[np.int64]
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
    drawn: dict[int, Drawn] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        ids: list[int],
        places: list[tuple[int, int]],
        keys: list[RowKey],
        sampled: list[bool],
        sizes: Sizes,
    ) -> "Rows":
        """Fresh rows. ``places``: (slot, position) of each."""
        count = len(ids)
        return cls(
            ids_r=np.array(ids, dtype=np.int64),
            pos_rc=np.array(places, dtype=np.int64),
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
    """The striped cache in card memory. ``base_p``: address of each port's share."""

    memory: NDArray[np.uint8]
    base_p: NDArray[np.int64]
    geometry: KvGeometry

    def strides(self, layer: int, num_kv_heads: int) -> tuple[int, int, int, int, int]:
        """Bytes: slot, head, data, scale, offset of the layer."""
        kv = self.geometry
        beats = (kv.slot_beats, kv.head_beats, kv.data_beats, kv.scale_beats)
        slot, head, data, scale = (BEAT_BYTES * b for b in beats)
        return slot, head, data, scale, layer * num_kv_heads * head
