"""Binds each instruction to its weights once; what is left is one call for each pass."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpga.driver.buffers import CONFIDENCE_ONE, NUM_TOP, DraftedToken, TopCandidate
from fpga.program import isa
from hetero.core.noise import gumbel_noise
from sim.functional import kernels
from sim.functional.state import KvCacheView, RowKey, Rows
from sim.functional.weights import Weights

RowIndex = NDArray[np.int64]
Execute = Callable[[Rows, RowIndex], None]


class Step(NamedTuple):
    """One bound instruction; ``execute`` changes the rows that are listed."""

    instruction: isa.Instruction
    execute: Execute


def bind_program(
    program: tuple[isa.Instruction, ...], weights: Weights, kv: KvCacheView
) -> list[Step]:
    """All instructions but END, in order."""
    binder = _Binder(weights, kv)
    return [Step(op, binder.bind(op)) for op in program if not isinstance(op, isa.End)]


class _Binder:
    def __init__(self, weights: Weights, kv: KvCacheView) -> None:
        self._weights = weights
        self._kv = kv
        self._target_ids: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._num_candidates = 0
        self._rope: NDArray[np.int16] = np.zeros((0, 0), dtype=np.int16)

    def bind(self, op: isa.Instruction) -> Execute:
        binders: dict[type[Any], Callable[[Any], Execute]] = {
            isa.Embed: self._embed,
            isa.NormQuant: self._norm_quant,
            isa.Quant: self._quant,
            isa.MatMul: self._matmul,
            isa.RopeRow: self._rope_row,
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

    def _rope_row(self, op: isa.RopeRow) -> Execute:
        # Every row finds its own line of the table by its position.
        self._rope = self._weights.rope(op, self._kv.geometry.context_tokens)

        def execute(rows: Rows, index: RowIndex) -> None:
            pass

        return execute

    def _rope_kv(self, op: isa.RopeKv) -> Execute:
        kv, table = self._kv, np.ascontiguousarray(self._rope[:, : op.head_dim])
        strides = kv.strides(op.layer)
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
        strides = kv.strides(op.layer)
        heads, place = (op.num_heads, op.num_kv_heads, op.head_dim), (op.out_vec, op.out_frac)

        def execute(rows: Rows, index: RowIndex) -> None:
            query = (rows.query_rd, rows.query_scale_rhc)
            kernels.attention(
                index, rows.pos_rc, rows.fresh_rmc, heads, strides, *query, kv.memory,
                kv.base_p, rows.vec_rw, place,
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


def draw(
    logit_c: NDArray[np.int64], ids_c: NDArray[np.int64], key: RowKey, shift: int
) -> DraftedToken:
    """DRAW: the best of the candidates, which come best logit first; ids int64 [candidate]."""
    inv_t = key.inv_temperature or 1 << 16
    scaled_c, weight_c = np.empty_like(logit_c), np.empty_like(logit_c)
    total = int(kernels.scale_logits(logit_c, inv_t, shift, scaled_c, weight_c))
    order_c = np.arange(logit_c.size)
    if key.inv_temperature:
        noise_c = gumbel_noise(key.seed, key.output_index, ids_c, choice_index=key.choice_index)
        # Largest score first, ties to the lower id.
        order_c = np.lexsort((ids_c, -(scaled_c + noise_c)))
    best = order_c[:NUM_TOP]
    confidence = (CONFIDENCE_ONE * weight_c[best] + total // 2) // total
    columns = (column.tolist() for column in (ids_c[best], confidence, logit_c[best]))
    return DraftedToken(tuple(TopCandidate(*row) for row in zip(*columns, strict=True)))
