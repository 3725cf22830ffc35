"""Executes a draft's instruction stream, one operation at a time. Knows no model.

Lanes run one after another; a lane's tokens to read go through each instruction together, in
chunks, which changes no bit (docs/draft-program.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fpga.golden.attention import attend
from fpga.golden.draw import CONFIDENCE_ONE, DrawKey, draw, inverse_temperature
from fpga.golden.embed import embed
from fpga.golden.fixed import I64, saturate32
from fpga.golden.head import Candidates, top_candidates
from fpga.golden.kv_cache import KvCache
from fpga.golden.matmul import accumulate, drain, folded
from fpga.golden.norm import norm_quant
from fpga.golden.quantise import Quantised, quantise
from fpga.golden.rope_kv import rotate
from fpga.golden.silu_gate import silu_gate
from fpga.program import isa
from fpga.program.artefact import Artefact
from fpga.program.layout import unpack_int4, unpack_int8
from hetero.core.errors import CardError
from hetero.core.types import LaneResult, LaneWork

CHUNK_TOKENS: Final = 128

Values: TypeAlias = dict[str, NDArray[Any]]
Observer = Callable[["Checkpoint"], None]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What one instruction left behind, for comparing with simulator and RTL.

    ``values``: integer arrays whose first axis are the tokens at ``start``, ``start`` + 1, ...
    """

    slot: int
    start: int
    label: str
    values: Values


@dataclass(slots=True)
class _Rows:
    """State of some consecutive tokens of a lane while they go through the program."""

    slot: int
    start: int
    token_ids: tuple[int, ...]
    vectors_nw: I64
    keys: tuple[DrawKey, ...] = ()
    act: Quantised | None = None
    query: Quantised | None = None
    logits_nv: I64 | None = None
    candidates: list[Candidates] = field(default_factory=list)
    drawn: list[tuple[int, int]] = field(default_factory=list)

    def keep_last(self, count: int) -> None:
        """Drop the leading tokens, whose program ends here."""
        dropped = len(self.token_ids) - count
        self.start += dropped
        self.token_ids = self.token_ids[dropped:]
        self.vectors_nw = self.vectors_nw[dropped:]
        self.act = self.act and self.act.at(slice(dropped, None))
        self.query = self.query and self.query.at(slice(dropped, None))


@dataclass(slots=True)
class _Matrix:
    weight_oi: NDArray[np.int16]
    mantissa_o: NDArray[np.uint16]


class GoldenExecutor:
    """The reference for every other executor. Single-threaded; owns its KV cache."""

    def __init__(self, artefact: Artefact, num_slots: int, max_context_tokens: int) -> None:
        self.artefact = artefact
        self.kv = KvCache(artefact.kv_layout(num_slots, max_context_tokens))
        self._matrices: dict[int, _Matrix] = {}
        self._observe: Observer | None = None

    def run(self, lanes: Sequence[LaneWork], observe: Observer | None = None) -> list[LaneResult]:
        """One start of the card. CardError for work that a card could not take."""
        if len({work.slot for work in lanes}) != len(lanes):
            raise CardError("two lanes name one slot. Give each slot one lane a start.")
        for work in lanes:
            self._check(work)
        self._observe = observe
        return [self._run_lane(work) for work in lanes]

    def logits(self, slot: int, token_ids: Sequence[int], *, num_last: int | None = None) -> I64:
        """Integer logits [token, head row] after each token of a sequence read from position 0.

        ``num_last``: only those of the last tokens; the others are merely read.
        """
        first = len(token_ids) - (len(token_ids) if num_last is None else num_last)
        parts = []
        for start in range(0, len(token_ids), CHUNK_TOKENS):
            rows = self._rows(slot, start, tuple(token_ids[start : start + CHUNK_TOKENS]))
            end = start + len(rows.token_ids)
            self._execute(rows, num_sampled=min(max(end - first, 0), len(rows.token_ids)))
            if rows.logits_nv is not None:
                parts.append(rows.logits_nv)
        return np.concatenate(parts)

    def _check(self, work: LaneWork) -> None:
        kv = self.kv.layout
        end = work.start + len(work.token_ids) + max(work.num_draft_tokens - 1, 0)
        vocab_size = self.artefact.shape.vocab_size
        if not 0 <= work.slot < kv.num_slots:
            raise CardError(f"slot {work.slot}: this card has slots 0..{kv.num_slots - 1}.")
        if work.start < 0 or not work.token_ids or end > kv.context_tokens:
            raise CardError(
                f"slot {work.slot}: positions {work.start}..{end - 1} with {len(work.token_ids)} "
                f"tokens to read; a slot holds {kv.context_tokens} and needs one to read."
            )
        if not all(0 <= token < vocab_size for token in work.token_ids):
            raise CardError(f"slot {work.slot}: a token outside 0..{vocab_size - 1}.")

    def _rows(self, slot: int, start: int, token_ids: tuple[int, ...]) -> _Rows:
        words = self.artefact.manifest.vector_words
        return _Rows(slot, start, token_ids, np.zeros((len(token_ids), words), dtype=np.int64))

    def _run_lane(self, work: LaneWork) -> LaneResult:
        drafts = work.num_draft_tokens
        for i in range(0, len(work.token_ids), CHUNK_TOKENS):
            tokens = work.token_ids[i : i + CHUNK_TOKENS]
            last = i + len(tokens) == len(work.token_ids)
            rows = self._rows(work.slot, work.start + i, tokens)
            rows.keys = (_key(work, 0),)
            self._execute(rows, num_sampled=int(last and drafts > 0))
        drawn = rows.drawn
        position = work.start + len(work.token_ids)
        for step in range(1, drafts):
            rows = self._rows(work.slot, position + step - 1, (drawn[-1][0],))
            rows.keys = (_key(work, step),)
            self._execute(rows, num_sampled=1)
            drawn += rows.drawn
        return LaneResult(
            slot=work.slot,
            token_ids=tuple(token for token, _ in drawn),
            confidence=tuple(confidence / CONFIDENCE_ONE for _, confidence in drawn),
        )

    def _execute(self, rows: _Rows, *, num_sampled: int) -> None:
        """Take rows through the program; the last ``num_sampled`` of them to its end."""
        for index, instruction in enumerate(self.artefact.program):
            if instruction.sampled_only and num_sampled < len(rows.token_ids):
                if num_sampled == 0:
                    return
                rows.keep_last(num_sampled)
            values = self._step(instruction, rows)
            if self._observe is not None:
                label = self.artefact.manifest.labels[index]
                self._observe(Checkpoint(rows.slot, rows.start, label, values))

    def _step(self, instruction: isa.Instruction, rows: _Rows) -> Values:
        """Execute one instruction; returns what it left behind."""
        match instruction:
            case isa.Embed():
                return self._embed(instruction, rows)
            case isa.NormQuant():
                return self._norm_quant(instruction, rows)
            case isa.Quant():
                return self._quant(instruction, rows)
            case isa.MatMul():
                return self._matmul(instruction, rows)
            case isa.RopeKv():
                return self._rope_kv(instruction, rows)
            case isa.Attention():
                return self._attention(instruction, rows)
            case isa.SiluGate():
                return self._silu_gate(instruction, rows)
            case isa.Head():
                return self._head(instruction, rows)
            case isa.Draw():
                return self._draw(instruction, rows)
            case isa.End():
                return {}

    def _embed(self, op: isa.Embed, rows: _Rows) -> Values:
        matrix = self._matrix(op.weight_beat, (op.num_rows, op.width), 8)
        index = list(rows.token_ids)
        quant_nd = matrix.weight_oi[index].astype(np.int8)
        out = embed(quant_nd, matrix.mantissa_o[index], shift=op.row_shift - op.out_frac)
        return _store(rows, op.out_vec, out)

    def _norm_quant(self, op: isa.NormQuant, rows: _Rows) -> Values:
        raw = self.artefact.region_from(op.gamma_beat)[: 2 * op.width]
        values_nd = rows.vectors_nw[:, op.in_vec : op.in_vec + op.width]
        gamma_d = raw.view("<i2")
        rows.act = norm_quant(values_nd, gamma_d, gamma_shift=op.gamma_shift, eps_q=op.eps_q)
        return rows.act._asdict()

    def _quant(self, op: isa.Quant, rows: _Rows) -> Values:
        values_nd = rows.vectors_nw[:, op.in_vec : op.in_vec + op.width]
        rows.act = quantise(values_nd, op.in_frac)
        return rows.act._asdict()

    def _matmul(self, op: isa.MatMul, rows: _Rows) -> Values:
        out = self._product(op, rows)
        if op.accumulate:
            old = rows.vectors_nw[:, op.out_vec : op.out_vec + op.num_rows]
            out = saturate32(old + out)
        return _store(rows, op.out_vec, out)

    def _product(self, op: isa.MatMul | isa.Head, rows: _Rows) -> I64:
        assert rows.act is not None, "no activation to multiply"
        matrix = self._matrix(op.weight_beat, (op.num_rows, op.width), op.weight_bits)
        acc_no = accumulate(matrix.weight_oi, rows.act.quant)
        return drain(acc_no, matrix.mantissa_o, rows.act, shift=op.row_shift - op.out_frac)

    def _rope_kv(self, op: isa.RopeKv, rows: _Rows) -> Values:
        heads = op.num_heads + 2 * op.num_kv_heads
        size = heads * op.head_dim
        values = rows.vectors_nw[:, op.in_vec : op.in_vec + size].reshape(-1, heads, op.head_dim)
        turned = op.num_heads + op.num_kv_heads
        table = self._rope_rows(op, rows.start, len(rows.token_ids))
        quantised = quantise(
            np.concatenate([rotate(values[:, :turned], table), values[:, turned:]], axis=1),
            op.in_frac,
        )
        every = slice(None)
        rows.query = quantised.at(every, slice(op.num_heads))
        keys = quantised.at(every, slice(op.num_heads, turned))
        new_values = quantised.at(every, slice(turned, None))
        self.kv.append(rows.slot, op.layer, rows.start, (keys, new_values))
        return quantised._asdict()

    def _rope_rows(self, op: isa.RopeKv, start: int, count: int) -> NDArray[np.int16]:
        row_bytes = 2 * op.head_dim
        raw = self.artefact.region_from(op.rope_beat)[
            start * row_bytes : (start + count) * row_bytes
        ]
        table: NDArray[np.int16] = raw.view("<i2").reshape(count, op.head_dim // 2, 2)
        return table

    def _attention(self, op: isa.Attention, rows: _Rows) -> Values:
        assert rows.query is not None, "no query to attend with"
        count = len(rows.token_ids)
        kv = self.kv.read(rows.slot, op.layer, rows.start + count)
        out = attend(rows.query, kv, start=rows.start, out_frac=op.out_frac)
        return _store(rows, op.out_vec, out.reshape(count, -1))

    def _silu_gate(self, op: isa.SiluGate, rows: _Rows) -> Values:
        gate, up = (rows.vectors_nw[:, vec : vec + op.width] for vec in (op.gate_vec, op.up_vec))
        return _store(rows, op.out_vec, silu_gate(gate, up, out_frac=op.out_frac))

    def _head(self, op: isa.Head, rows: _Rows) -> Values:
        rows.logits_nv = self._product(op, rows)[:, : op.valid_rows]
        d2t_v = None
        if op.d2t_beat != isa.NO_BEAT:
            d2t_v = self.artefact.region_from(op.d2t_beat)[: 4 * op.valid_rows].view("<i4")
        rows.candidates = [top_candidates(x, op.num_candidates, d2t_v) for x in rows.logits_nv]
        return {
            "logit": np.array([c.logit for c in rows.candidates]),
            "target_id": np.array([c.target_id for c in rows.candidates]),
        }

    def _draw(self, op: isa.Draw, rows: _Rows) -> Values:
        # Scoring runs have no key: they want the logits only.
        pairs = zip(rows.candidates, rows.keys, strict=False)
        rows.drawn = [draw(candidates, key, op.logit_frac) for candidates, key in pairs]
        return {"drawn": np.array(rows.drawn, dtype=np.int64)}

    def _matrix(self, beat: int, size: tuple[int, int], weight_bits: int) -> _Matrix:
        if beat not in self._matrices:
            region = self.artefact.region_from(beat)
            packed = (unpack_int4 if weight_bits == 4 else unpack_int8)(region, *size)
            self._matrices[beat] = _Matrix(folded(packed), packed.mantissa_o)
        return self._matrices[beat]


def _key(work: LaneWork, step: int) -> DrawKey:
    inv_t = inverse_temperature(work.temperature)
    return DrawKey(work.seed, work.output_index + step, work.choice_index, inv_t)


def _store(rows: _Rows, vec: int, out: I64) -> Values:
    rows.vectors_nw[:, vec : vec + out.shape[1]] = out
    return {"vector": out}
