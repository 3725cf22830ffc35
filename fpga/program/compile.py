"""A Llama-shaped checkpoint to instructions and weight image."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.program import isa
from fpga.program.bounds import matmul_bound
from fpga.program.layout import (
    BEAT_BYTES,
    VECTOR_ALIGN_WORDS,
    Int4Matrix,
    Int8Matrix,
    align,
    pack_int4,
    pack_int8,
)
from fpga.program.manifest import Bound, DraftShape, Region
from fpga.quant.checkpoint import Checkpoint
from fpga.quant.groups import quantise_int4
from fpga.quant.llama import (
    EMBEDDING,
    FINAL_NORM,
    LayerWeights,
    has_tied_head,
    read_d2t,
    read_head,
    read_layer,
)
from fpga.quant.rows import quantise_gamma, quantise_int8
from hetero.core.errors import ModelError

VECTOR_FRAC: Final = 16
LOGIT_FRAC: Final = 16
ROPE_FRAC: Final = 14
NUM_CANDIDATES: Final = 64
WEIGHT_BITS: Final = 4
HEAD_BITS: Final = 8

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""


@dataclass(frozen=True, slots=True)
class MatrixRef:
    """A packed matrix, as the instructions name it."""

    beat: int
    row_shift: int
    num_rows: int
    width: int


@dataclass(slots=True)
class Image:
    """The weight image while it grows."""

    parts: list[bytes] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    bounds: dict[str, Bound] = field(default_factory=dict)
    size_bytes: int = 0
    weight_bytes: int = 0

    def add(self, name: str, kind: str, data: bytes) -> int:
        """Append a region; returns its beat."""
        offset = self.size_bytes
        self.regions.append(Region(name=name, kind=kind, offset_bytes=offset, size_bytes=len(data)))
        self.size_bytes = align(offset + len(data))
        self.parts.append(data.ljust(self.size_bytes - offset, b"\0"))
        return offset // BEAT_BYTES

    def add_int4(self, name: str, weight_oi: NDArray[np.float32]) -> MatrixRef:
        """Quantise, prove and pack a matrix of the layers."""
        matrix, shift = quantise_int4(weight_oi)
        self.weight_bytes += _int4_information_bytes(matrix)
        return self._add_matrix(name, matrix, shift)

    def add_int8(self, name: str, weight_oi: NDArray[np.float32]) -> MatrixRef:
        """Quantise, prove and pack the embedding or the head."""
        matrix, shift = quantise_int8(weight_oi)
        self.weight_bytes += matrix.quant_oi.nbytes + matrix.mantissa_o.nbytes
        return self._add_matrix(name, matrix, shift)

    def add_gamma(self, name: str, gamma_d: NDArray[np.float32]) -> tuple[int, int]:
        """Quantise and append a norm's gamma; returns its beat and shift."""
        mantissa_d, shift = quantise_gamma(gamma_d)
        _check_shift(name, shift)
        self.weight_bytes += mantissa_d.nbytes
        return self.add(name, "gamma", mantissa_d.astype("<i2").tobytes()), shift

    def _add_matrix(self, name: str, matrix: Int4Matrix | Int8Matrix, shift: int) -> MatrixRef:
        self.bounds[name] = matmul_bound(name, matrix)
        _check_shift(name, shift - VECTOR_FRAC)
        if isinstance(matrix, Int4Matrix):
            beat = self.add(name, "int4", pack_int4(matrix))
        else:
            beat = self.add(name, "int8", pack_int8(matrix))
        return MatrixRef(beat, shift, *matrix.quant_oi.shape)


def _int4_information_bytes(matrix: Int4Matrix) -> int:
    return matrix.quant_oi.size // 2 + matrix.scale_og.nbytes + matrix.mantissa_o.nbytes


def _check_shift(name: str, shift: int) -> None:
    if not 0 <= shift <= 62:
        raise ModelError(f"{name}: values out of the card's range (shift {shift} not in 0..62).")


@dataclass(frozen=True, slots=True)
class HeadRef:
    """The output matrix and what its rows mean."""

    matrix: MatrixRef
    d2t_beat: int
    valid_rows: int


@dataclass(frozen=True, slots=True)
class VectorMap:
    """Where the compiler puts vectors in a lane's vector memory, in words."""

    residual: int
    qkv: int
    attention: int
    gate: int
    up: int
    size: int


def vector_map(shape: DraftShape) -> VectorMap:
    """Residual first; attention's and the MLP's vectors share what follows, never alive at once."""
    q_words = shape.num_heads * shape.head_dim
    kv_words = shape.num_kv_heads * shape.head_dim
    base = align(shape.hidden_size, VECTOR_ALIGN_WORDS)
    attention = base + align(q_words + 2 * kv_words, VECTOR_ALIGN_WORDS)
    up = base + align(shape.intermediate_size, VECTOR_ALIGN_WORDS)
    end = max(attention + q_words, up + shape.intermediate_size)
    size = align(end, VECTOR_ALIGN_WORDS)
    return VectorMap(residual=0, qkv=base, attention=attention, gate=base, up=up, size=size)


@dataclass(slots=True)
class Compiled:
    """The compiler's result."""

    shape: DraftShape
    image: Image = field(default_factory=Image)
    program: list[isa.Instruction] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    def emit(self, label: str, instruction: isa.Instruction) -> None:
        """Append an instruction under its name."""
        self.labels.append(label)
        self.program.append(instruction)


def compile_llama(
    checkpoint: Checkpoint,
    shape: DraftShape,
    *,
    target_vocab_size: int,
    progress: Progress | None = None,
) -> Compiled:
    """Quantise layer after layer and emit the program.

    ``target_vocab_size``: ids from there on are never drafted. Raises ModelError for weights
    that don't fit the card.
    """
    out = Compiled(shape)
    steps = shape.num_layers + 2
    report = progress or _no_progress
    head = _emit_embedding(out, checkpoint, target_vocab_size)
    report(1, steps)
    rope_beat = out.image.add("rope", "rope", rope_table(shape).tobytes())
    out.emit("rope_row", isa.RopeRow(rope_beat=rope_beat, head_dim=shape.head_dim))
    for layer in range(shape.num_layers):
        _emit_layer(out, read_layer(checkpoint, shape, layer), layer=layer)
        report(2 + layer, steps)
    _emit_head(out, checkpoint, head)
    report(steps, steps)
    return out


def _no_progress(done: int, total: int) -> None:
    del done, total


def rope_table(shape: DraftShape) -> NDArray[np.int16]:
    """int16 [context, head_dim / 2, 2]: cosine and sine, 14 fraction bits."""
    pairs = np.arange(shape.head_dim // 2, dtype=np.float64)
    angle_j = shape.rope_base ** (-2 * pairs / shape.head_dim)
    angle_pj = np.arange(shape.max_context_tokens, dtype=np.float64)[:, None] * angle_j
    table = np.stack([np.cos(angle_pj), np.sin(angle_pj)], axis=-1)
    rounded: NDArray[np.int16] = np.round(table * (1 << ROPE_FRAC)).astype("<i2")
    return rounded


def _emit_embedding(out: Compiled, checkpoint: Checkpoint, target_vocab_size: int) -> HeadRef:
    """Pack head and embedding, the same matrix when tied, and emit EMBED."""
    shape = out.shape
    head = _add_head(out.image, checkpoint, shape, target_vocab_size)
    table = head.matrix
    if head.d2t_beat != isa.NO_BEAT or not has_tied_head(checkpoint, shape):
        size = (shape.vocab_size, shape.hidden_size)
        table = out.image.add_int8("embedding", checkpoint.tensor(EMBEDDING, size))
    out.emit(
        "embed",
        isa.Embed(
            weight_beat=table.beat,
            num_rows=table.num_rows,
            width=table.width,
            row_shift=table.row_shift,
            out_vec=vector_map(shape).residual,
            out_frac=VECTOR_FRAC,
        ),
    )
    return head


def _add_head(
    image: Image, checkpoint: Checkpoint, shape: DraftShape, target_vocab_size: int
) -> HeadRef:
    rows = read_head(checkpoint, shape)
    target_v = read_d2t(checkpoint, shape)
    if target_v is None:
        matrix = image.add_int8("head", rows)
        return HeadRef(matrix, isa.NO_BEAT, min(matrix.num_rows, target_vocab_size))
    order = np.argsort(target_v)
    target_v = target_v[order]
    valid_rows = int((target_v < target_vocab_size).sum())
    beat = image.add("d2t", "d2t", target_v.astype("<i4").tobytes())
    return HeadRef(image.add_int8("head", rows[order]), beat, valid_rows)


def _emit_norm(out: Compiled, name: str, gamma_d: NDArray[np.float32], *, sampled: bool) -> None:
    beat, shift = out.image.add_gamma(name, gamma_d)
    width = gamma_d.size
    eps_q = round(out.shape.rms_norm_eps * width * (1 << 2 * VECTOR_FRAC))
    if not 0 <= eps_q < 1 << 32:
        raise ModelError(f"{name}: rms_norm_eps = {out.shape.rms_norm_eps} is too large.")
    out.emit(
        name,
        isa.NormQuant(
            in_vec=vector_map(out.shape).residual,
            width=width,
            gamma_beat=beat,
            gamma_shift=shift,
            eps_q=eps_q,
            sampled_only=sampled,
        ),
    )


def _emit_matmul(
    out: Compiled, name: str, weight_oi: NDArray[np.float32], *, vec: int, add: bool, sampled: bool
) -> None:
    matrix = out.image.add_int4(name, weight_oi)
    out.emit(
        name,
        isa.MatMul(
            weight_beat=matrix.beat,
            num_rows=matrix.num_rows,
            width=matrix.width,
            weight_bits=WEIGHT_BITS,
            row_shift=matrix.row_shift,
            out_vec=vec,
            out_frac=VECTOR_FRAC,
            accumulate=int(add),
            sampled_only=sampled,
        ),
    )


def _emit_layer(out: Compiled, weights: LayerWeights, *, layer: int) -> None:
    shape, vectors = out.shape, vector_map(out.shape)
    name = f"L{layer:02d}"
    # A token that only fills the cache is done once the last layer has its keys and values.
    tail = layer == shape.num_layers - 1
    _emit_norm(out, f"{name}.input_norm", weights.input_norm, sampled=False)
    _emit_matmul(out, f"{name}.qkv", weights.qkv, vec=vectors.qkv, add=False, sampled=False)
    rope = isa.RopeKv(
        in_vec=vectors.qkv,
        in_frac=VECTOR_FRAC,
        layer=layer,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
    )
    out.emit(f"{name}.rope_kv", rope)
    attend = isa.Attention(
        layer=layer,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        out_vec=vectors.attention,
        out_frac=VECTOR_FRAC,
        sampled_only=tail,
    )
    out.emit(f"{name}.attention", attend)
    _emit_quant(
        out, f"{name}.attention_quant", vectors.attention, weights.attention_out, sampled=tail
    )
    _emit_matmul(
        out, f"{name}.o", weights.attention_out, vec=vectors.residual, add=True, sampled=tail
    )
    _emit_mlp(out, name, weights, sampled=tail)


def _emit_mlp(out: Compiled, name: str, weights: LayerWeights, *, sampled: bool) -> None:
    vectors = vector_map(out.shape)
    _emit_norm(out, f"{name}.mlp_norm", weights.mlp_norm, sampled=sampled)
    _emit_matmul(out, f"{name}.gate", weights.gate, vec=vectors.gate, add=False, sampled=sampled)
    _emit_matmul(out, f"{name}.up", weights.up, vec=vectors.up, add=False, sampled=sampled)
    gate = isa.SiluGate(
        gate_vec=vectors.gate,
        up_vec=vectors.up,
        width=out.shape.intermediate_size,
        in_frac=VECTOR_FRAC,
        out_vec=vectors.gate,
        out_frac=VECTOR_FRAC,
        sampled_only=sampled,
    )
    out.emit(f"{name}.silu_gate", gate)
    _emit_quant(out, f"{name}.silu_quant", vectors.gate, weights.mlp_out, sampled=sampled)
    _emit_matmul(
        out, f"{name}.down", weights.mlp_out, vec=vectors.residual, add=True, sampled=sampled
    )


def _emit_quant(
    out: Compiled, name: str, vec: int, consumer_oi: NDArray[np.float32], *, sampled: bool
) -> None:
    width = consumer_oi.shape[1]
    out.emit(name, isa.Quant(in_vec=vec, width=width, in_frac=VECTOR_FRAC, sampled_only=sampled))


def _emit_head(out: Compiled, checkpoint: Checkpoint, head: HeadRef) -> None:
    gamma_d = checkpoint.tensor(FINAL_NORM, (out.shape.hidden_size,))
    _emit_norm(out, "final_norm", gamma_d, sampled=True)
    out.emit(
        "head",
        isa.Head(
            weight_beat=head.matrix.beat,
            num_rows=head.matrix.num_rows,
            width=head.matrix.width,
            weight_bits=HEAD_BITS,
            row_shift=head.matrix.row_shift,
            out_frac=LOGIT_FRAC,
            num_candidates=min(NUM_CANDIDATES, head.valid_rows),
            d2t_beat=head.d2t_beat,
            valid_rows=head.valid_rows,
            sampled_only=True,
        ),
    )
    out.emit("draw", isa.Draw(logit_frac=LOGIT_FRAC, sampled_only=True))
    out.emit("end", isa.End())
