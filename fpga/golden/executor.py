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
from fpga.golden.draw import CONFIDENCE_ONE, DrawKey, Drawn, draw_top, inverse_temperature
from fpga.golden.embed import embed
from fpga.golden.fixed import I64, saturate32
from fpga.golden.head import Candidates, top_candidates
from fpga.golden.kv_cache import KvCache, joined
from fpga.golden.lanes import Place, ancestors, check_start, first_seen, is_tree, place
from fpga.golden.matmul import accumulate, drain, folded
from fpga.golden.norm import norm_quant
from fpga.golden.quantise import Quantised, quantise
from fpga.golden.rope_kv import rotate
from fpga.golden.silu_gate import silu_gate
from fpga.program import isa
from fpga.program.artefact import Artefact
from fpga.program.layout import unpack_int4, unpack_int8
from hetero.core.types import DraftCandidate, LaneResult, LaneWork

CHUNK_TOKENS: Final = 128

Values: TypeAlias = dict[str, NDArray[Any]]
Observer = Callable[["Checkpoint"], None]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What one instruction left behind, for comparing with simulator and RTL.

    ``slot``: that which the tokens write to. ``values``: integer arrays whose first axis are the
    tokens at ``start``, ``start`` + 1, ...
    """

    slot: int
    start: int
    label: str
    values: Values


@dataclass(slots=True)
class _Rows:
    """State of some tokens while they go through the program together.

    They are consecutive ones of one lane, or, with ``ancestors``, the nodes of a tree: then each
    row sees memory below its ``prefix_len`` and those nodes.
    """

    places: tuple[Place, ...]
    token_ids: tuple[int, ...]
    vectors_nw: I64
    window: int = 0
    keys: tuple[DrawKey, ...] = ()
    ancestors: tuple[tuple[Place, ...], ...] = ()
    act: Quantised | None = None
    query: Quantised | None = None
    rope_nj2: NDArray[np.int16] | None = None
    logits_nv: I64 | None = None
    candidates: list[Candidates] = field(default_factory=list)
    drawn: list[Drawn] = field(default_factory=list)

    def keep_last(self, count: int) -> None:
        """Drop the leading tokens, whose program ends here."""
        kept = slice(len(self.token_ids) - count, None)
        self.places = self.places[kept]
        self.ancestors = self.ancestors[kept]
        self.token_ids = self.token_ids[kept]
        self.vectors_nw = self.vectors_nw[kept]
        self.act = self.act and self.act.at(kept)
        self.query = self.query and self.query.at(kept)
        if self.rope_nj2 is not None:
            self.rope_nj2 = self.rope_nj2[kept]


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
        self._logit_frac = next(
            op.logit_frac for op in artefact.program if isinstance(op, isa.Draw)
        )

    def run(
        self,
        lanes: Sequence[LaneWork],
        observe: Observer | None = None,
        *,
        window: int = 0,
    ) -> list[LaneResult]:
        """One start of the card. CardError for work that a card could not take.

        ``window``: how many positions a token sees, its own included; 0: all.
        """
        check_start(lanes, self.kv.layout, self.artefact.shape.vocab_size)
        self._observe = observe
        tree = self._read_tree(lanes, window) if is_tree(lanes) else None
        results = []
        for index, work in enumerate(lanes):
            drawn = self._read_chain(work, window) if tree is None else tree[index]
            drawn = drawn + self._feed_back(work, drawn, window)
            results.append(_result(work, drawn, self._logit_frac))
        return results

    def logits(self, slot: int, token_ids: Sequence[int], *, num_last: int | None = None) -> I64:
        """Integer logits [token, head row] after each token of a sequence read from position 0.

        ``num_last``: only those of the last tokens; the others are merely read.
        """
        first = len(token_ids) - (len(token_ids) if num_last is None else num_last)
        parts = []
        for start in range(0, len(token_ids), CHUNK_TOKENS):
            tokens = tuple(token_ids[start : start + CHUNK_TOKENS])
            end = start + len(tokens)
            rows = self._rows([Place(i, slot, slot, 0) for i in range(start, end)], tokens)
            self._execute(rows, num_sampled=min(max(end - first, 0), len(rows.token_ids)))
            if rows.logits_nv is not None:
                parts.append(rows.logits_nv)
        return np.concatenate(parts)

    def _rows(self, places: Sequence[Place], token_ids: Sequence[int], window: int = 0) -> _Rows:
        vectors_nw = np.zeros((len(places), self.artefact.manifest.vector_words), dtype=np.int64)
        return _Rows(tuple(places), tuple(token_ids), vectors_nw, window)

    def _read_chain(self, work: LaneWork, window: int) -> list[Drawn]:
        """Read an ordinary lane's tokens; the draw behind the last one."""
        for i in range(0, len(work.token_ids), CHUNK_TOKENS):
            tokens = work.token_ids[i : i + CHUNK_TOKENS]
            last = i + len(tokens) == len(work.token_ids)
            begin = work.start + i
            places = [place(work, j) for j in range(begin, begin + len(tokens))]
            rows = self._rows(places, tokens, window)
            rows.keys = (_key(work, 0),)
            self._execute(rows, num_sampled=int(last and work.num_draft_tokens > 0))
        return rows.drawn

    def _read_tree(self, lanes: Sequence[LaneWork], window: int) -> list[list[Drawn]]:
        """Read all nodes of a tree at once; for each lane its draw."""
        order = sorted(range(len(lanes)), key=lambda i: lanes[i].num_draft_tokens > 0)
        ordered = [lanes[i] for i in order]
        places = [place(work, work.start) for work in ordered]
        rows = self._rows(places, [work.token_ids[0] for work in ordered], window)
        rows.ancestors = tuple(ancestors(lanes, i) for i in order)
        sampled = [i for i in order if lanes[i].num_draft_tokens > 0]
        rows.keys = tuple(_key(lanes[i], 0) for i in sampled)
        self._execute(rows, num_sampled=len(sampled))
        drawn = dict(zip(sampled, rows.drawn, strict=True))
        return [[drawn[i]] if i in drawn else [] for i in range(len(lanes))]

    def _feed_back(self, work: LaneWork, drawn: Sequence[Drawn], window: int) -> list[Drawn]:
        """Draft on from a lane's first draw."""
        position = work.start + len(work.token_ids)
        more: list[Drawn] = []
        for step in range(1, work.num_draft_tokens):
            token = int([*drawn, *more][-1].target_id[0])
            rows = self._rows([place(work, position + step - 1)], [token], window)
            rows.keys = (_key(work, step),)
            self._execute(rows, num_sampled=1)
            more += rows.drawn
        return more

    def _execute(self, rows: _Rows, *, num_sampled: int) -> None:
        """Take rows through the program; the last ``num_sampled`` of them to its end."""
        for index, instruction in enumerate(self.artefact.program):
            if instruction.sampled_only and num_sampled < len(rows.token_ids):
                if num_sampled == 0:
                    return
                rows.keep_last(num_sampled)
            values = self._step(instruction, rows)
            if self._observe is not None:
                self._report(self._observe, self.artefact.manifest.labels[index], rows, values)

    def _report(self, observe: Observer, label: str, rows: _Rows, values: Values) -> None:
        """One checkpoint; for a tree, whose rows are not consecutive, one a row."""
        count = len(rows.places)
        step = 1 if rows.ancestors else count
        for i in range(0, count, step):
            part = {name: array[i : i + step] for name, array in values.items()}
            observe(Checkpoint(rows.places[i].write_slot, rows.places[i].position, label, part))

    def _step(self, instruction: isa.Instruction, rows: _Rows) -> Values:
        """Execute one instruction; returns what it left behind."""
        match instruction:
            case isa.Embed():
                return self._embed(instruction, rows)
            case isa.RopeRow():
                return self._rope_row(instruction, rows)
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
        assert rows.rope_nj2 is not None, "no RoPE row"
        rotated = rotate(values[:, :turned], rows.rope_nj2)
        quantised = quantise(
            np.concatenate([rotated, values[:, turned:]], axis=1),
            op.in_frac,
        )
        every = slice(None)
        rows.query = quantised.at(every, slice(op.num_heads))
        keys = quantised.at(every, slice(op.num_heads, turned))
        new_values = quantised.at(every, slice(turned, None))
        self._append(rows, op.layer, (keys, new_values))
        return quantised._asdict()

    def _append(self, rows: _Rows, layer: int, kv: tuple[Quantised, Quantised]) -> None:
        """Consecutive rows at once, a tree's one by one."""
        count = len(rows.places)
        step = 1 if rows.ancestors else count
        for i in range(0, count, step):
            keys, values = (x.at(slice(i, i + step)) for x in kv)
            at = rows.places[i]
            self.kv.append(at.write_slot, layer, at.position, (keys, values))

    def _rope_row(self, op: isa.RopeRow, rows: _Rows) -> Values:
        positions = [at.position for at in rows.places]
        raw = self.artefact.region_from(op.rope_beat)[: 2 * op.head_dim * (max(positions) + 1)]
        rows.rope_nj2 = raw.view("<i2").reshape(-1, op.head_dim // 2, 2)[positions]
        return {}

    def _attention(self, op: isa.Attention, rows: _Rows) -> Values:
        assert rows.query is not None, "no query to attend with"
        if rows.ancestors:
            parts = [self._attend_node(op, rows, i) for i in range(len(rows.places))]
            out = np.concatenate(parts)
        else:
            first, last = rows.places[0], rows.places[-1]
            slots = (first.slot, first.write_slot)
            kv = self.kv.read_split(slots, op.layer, first.prefix_len, last.position + 1)
            start, window = first.position, rows.window
            out = attend(rows.query, kv, start=start, out_frac=op.out_frac, window=window)
        return _store(rows, op.out_vec, out.reshape(len(rows.places), -1))

    def _attend_node(self, op: isa.Attention, rows: _Rows, index: int) -> I64:
        """A tree's row: memory below the prefix, then what it sees of this start."""
        assert rows.query is not None, "no query to attend with"
        at = rows.places[index]
        first = first_seen(at.position, rows.window)
        prefix = self.kv.read(at.slot, op.layer, min(at.prefix_len, at.position))
        seen = [tuple(x.at(slice(None), slice(first, None)) for x in prefix)]
        for node in rows.ancestors[index]:
            if node.position >= first:
                kv = self.kv.read(node.write_slot, op.layer, node.position + 1)
                seen.append(tuple(x.at(slice(None), slice(node.position, None)) for x in kv))
        keys, values = (joined(parts) for parts in zip(*seen, strict=True))
        query = rows.query.at(slice(index, index + 1))
        return attend(query, (keys, values), start=keys.quant.shape[1] - 1, out_frac=op.out_frac)

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
        rows.drawn = [draw_top(candidates, key, op.logit_frac) for candidates, key in pairs]
        tokens = [(best.target_id[0], best.confidence[0]) for best in rows.drawn]
        return {"drawn": np.array(tokens, dtype=np.int64).reshape(-1, 2)}

    def _matrix(self, beat: int, size: tuple[int, int], weight_bits: int) -> _Matrix:
        if beat not in self._matrices:
            region = self.artefact.region_from(beat)
            packed = (unpack_int4 if weight_bits == 4 else unpack_int8)(region, *size)
            self._matrices[beat] = _Matrix(folded(packed), packed.mantissa_o)
        return self._matrices[beat]


def _result(work: LaneWork, drawn: Sequence[Drawn], logit_frac: int) -> LaneResult:
    top = tuple(_candidates(best, logit_frac) for best in drawn)
    return LaneResult(
        slot=work.slot,
        token_ids=tuple(best[0].token_id for best in top),
        confidence=tuple(best[0].confidence for best in top),
        top=top,
    )


def _candidates(best: Drawn, logit_frac: int) -> tuple[DraftCandidate, ...]:
    columns = (column.tolist() for column in best)
    return tuple(
        DraftCandidate(token, confidence / CONFIDENCE_ONE, logit / (1 << logit_frac))
        for token, confidence, logit in zip(*columns, strict=True)
    )


def _key(work: LaneWork, step: int) -> DrawKey:
    inv_t = inverse_temperature(work.temperature)
    return DrawKey(work.seed, work.output_index + step, work.choice_index, inv_t)


def _store(rows: _Rows, vec: int, out: I64) -> Values:
    rows.vectors_nw[:, vec : vec + out.shape[1]] = out
    return {"vector": out}
