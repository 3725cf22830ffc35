"""Binds each instruction to its weights once; what is left is one call for each pass."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpga.program import isa
from hetero.core.noise import gumbel_noise
from sim.functional import kernels
from sim.functional.state import Drawn, KvCacheView, RowKey, Rows
from sim.functional.weights import WeightImage

RowIndex = NDArray[np.int64]
Execute = Callable[[Rows, RowIndex], None]


class Step(NamedTuple):
    """One bound instruction; ``execute`` changes the rows that are listed."""

    instruction: isa.Instruction
    execute: Execute


def bind_program(
    program: tuple[isa.Instruction, ...], weights: WeightImage, kv: KvCacheView
) -> list[Step]:
    """All instructions but END, in order."""
    binder = _Binder(weights, kv)
    return [Step(op, binder.bind(op)) for op in program if not isinstance(op, isa.End)]


class _Binder:
    def __init__(self, weights: WeightImage, kv: KvCacheView) -> None:
        self._weights = weights
        self._kv = kv
        self._target_ids: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._num_candidates = 0

    def bind(self, op: isa.Instruction) -> Execute:
        binders: dict[type[Any], Callable[[Any], Execute]] = {
            isa.Embed: self._embed,
            isa.NormQuant: self._norm_quant,
            isa.Quant: self._quant,
            isa.MatMul: self._matmul,
            isa.RopeKv: self._rope_kv,
            isa.Attention: self._attention,
            isa.SiluGate: self._silu_gate,
            isa.Head: self._head,
            isa.Draw: self._draw,
        }
        return binders[type(op)](op)

    def _embed(self, op: isa.Embed) -> Execute:
        matrix, shift = self._weights.matrix(op), op.row_shift - op.out_frac

        def execute(rows: Rows, index: RowIndex) -> None:
            kernels.embed(index, rows.ids_r, *_arrays(matrix), shift, rows.vec_rw, op.out_vec)

        return execute

    def _norm_quant(self, op: isa.NormQuant) -> Execute:
        gamma, constants = self._weights.gamma(op), (op.gamma_shift, op.eps_q)

        def execute(rows: Rows, index: RowIndex) -> None:
            kernels.norm_quant(
                index, rows.vec_rw, op.in_vec, gamma, constants, rows.act_rk, rows.scale_rc
            )

        return execute

    def _quant(self, op: isa.Quant) -> Execute:
        def execute(rows: Rows, index: RowIndex) -> None:
            kernels.quant(
                index, rows.vec_rw, op.in_vec, op.width, op.in_frac, rows.act_rk, rows.scale_rc
            )

        return execute

    def _matmul(self, op: isa.MatMul) -> Execute:
        matrix, shift = self._weights.matrix(op), op.row_shift - op.out_frac
        accumulate = op.accumulate

        def execute(rows: Rows, index: RowIndex) -> None:
            act = (rows.act_rk, rows.scale_rc)
            kernels.matmul(
                index, *_arrays(matrix), shift, *act, rows.vec_rw, op.out_vec, accumulate
            )

        return execute

    def _rope_kv(self, op: isa.RopeKv) -> Execute:
        kv = self._kv
        table = self._weights.rope(op, kv.geometry.context_tokens)
        strides = kv.strides(op.layer, op.num_kv_heads)
        place, heads = (op.in_vec, op.in_frac), (op.num_heads, op.num_kv_heads)

        def execute(rows: Rows, index: RowIndex) -> None:
            query = (rows.query_rd, rows.query_scale_rhc)
            kernels.rope_kv(
                index, rows.pos_rc, rows.vec_rw, place, heads, table, strides, *query,
                kv.memory, kv.base_p,
            )  # fmt: skip

        return execute

    def _attention(self, op: isa.Attention) -> Execute:
        kv = self._kv
        strides = kv.strides(op.layer, op.num_kv_heads)
        heads, place = (op.num_heads, op.num_kv_heads, op.head_dim), (op.out_vec, op.out_frac)

        def execute(rows: Rows, index: RowIndex) -> None:
            query = (rows.query_rd, rows.query_scale_rhc)
            kernels.attention(
                index, rows.pos_rc, heads, strides, *query, kv.memory, kv.base_p, rows.vec_rw,
                place,
            )  # fmt: skip

        return execute

    def _silu_gate(self, op: isa.SiluGate) -> Execute:
        places = (op.gate_vec, op.up_vec, op.out_vec)

        def execute(rows: Rows, index: RowIndex) -> None:
            kernels.silu_gate(index, rows.vec_rw, places, op.width, op.out_frac)

        return execute

    def _head(self, op: isa.Head) -> Execute:
        matrix = self._weights.matrix(op).first(op.valid_rows)
        shift = op.row_shift - op.out_frac
        self._target_ids = self._weights.target_ids(op)
        self._num_candidates = min(op.num_candidates, op.valid_rows)

        def execute(rows: Rows, index: RowIndex) -> None:
            act = (rows.act_rk, rows.scale_rc)
            kernels.head(index, *_arrays(matrix), shift, *act, rows.logit_rc, rows.head_row_rc)

        return execute

    def _draw(self, op: isa.Draw) -> Execute:
        target_ids, shift, kept = self._target_ids, op.logit_frac - 4, self._num_candidates

        def execute(rows: Rows, index: RowIndex) -> None:
            for row in index:
                logit_c = rows.logit_rc[row, :kept]
                ids_c = target_ids[rows.head_row_rc[row, :kept]]
                rows.drawn[int(row)] = draw(logit_c, ids_c, rows.keys[row], shift)

        return execute


def _arrays(matrix: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    return matrix.weight_oi, matrix.mantissa_o


def draw(logit_c: NDArray[np.int64], ids_c: NDArray[np.int64], key: RowKey, shift: int) -> Drawn:
    """DRAW: one of the candidates, best first, ids int64 [candidate]."""
    inv_t = key.inv_temperature or 1 << 16
    scaled_c, weight_c = np.empty_like(logit_c), np.empty_like(logit_c)
    total = int(kernels.scale_logits(logit_c, inv_t, shift, scaled_c, weight_c))
    chosen = 0
    if key.inv_temperature:
        noise_c = gumbel_noise(key.seed, key.output_index, ids_c, choice_index=key.choice_index)
        # Largest score, ties to the lower id.
        chosen = int(np.lexsort((ids_c, -(scaled_c + noise_c)))[0])
    confidence = (255 * int(weight_c[chosen]) + total // 2) // total
    return Drawn(int(ids_c[chosen]), confidence)
