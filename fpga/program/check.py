"""Whether a program stays within its manifest's memory: checked once, where a draft is loaded.

Executors and cards take addresses as they come. A manifest that no longer fits its program (a
flipped bit, an edited file) would make them read and write outside of weights, KV cache or vector
memory, so it is refused before anything runs.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpga.program import isa
from fpga.program.layout import BEAT_BYTES, GROUP_COLUMNS, VECTOR_ALIGN_WORDS, matrix_bytes
from fpga.program.manifest import DraftShape, Manifest

MAX_CANDIDATES: Final = 64
EMBED_BITS: Final = 8


class Extent(NamedTuple):
    """``size`` units (words of vector memory, or bytes of the image) from ``begin`` on."""

    begin: int
    size: int


def check_program(
    manifest: Manifest, program: Sequence[isa.Instruction], image: NDArray[np.uint8]
) -> None:
    """ValueError, with the instruction's label, for the first thing that does not fit."""
    if len(program) != len(manifest.labels):
        raise ValueError("labels and instructions differ in number")
    if manifest.vector_words % VECTOR_ALIGN_WORDS:
        words = manifest.vector_words
        raise ValueError(f"{words} words of vector memory are no multiple of {VECTOR_ALIGN_WORDS}")
    _check_order(program)
    layers = [op.layer for op in program if isinstance(op, isa.RopeKv)]
    if layers != list(range(manifest.shape.num_layers)):
        raise ValueError(f"{len(layers)} layers, the shape says {manifest.shape.num_layers}")
    for label, op in zip(manifest.labels, program, strict=True):
        for problem in (*_misfits(op, manifest.shape), *_outside(op, manifest, image.size)):
            raise ValueError(f"{label}: {problem}")
    _check_activations(manifest.labels, program)
    _check_target_ids(manifest, program, image)


def _check_order(program: Sequence[isa.Instruction]) -> None:
    """EMBED and ROPE_ROW first, HEAD, DRAW, END last, each once; what is sampled only is a tail."""
    once = (isa.Embed, isa.RopeRow, isa.Head, isa.Draw, isa.End)
    found = [(i, type(op)) for i, op in enumerate(program) if isinstance(op, once)]
    if [kind for _, kind in found] != list(once):
        names = "EMBED, ROPE_ROW, HEAD, DRAW and END"
        raise ValueError(f"{names} must be there once each, in this order")
    if found[1][0] != 1 or found[-1][0] != len(program) - 1:
        raise ValueError("EMBED and ROPE_ROW must be the first instructions, END the last")
    sampled = [op.sampled_only for op in program[:-1]]
    if sampled != sorted(sampled) or not sampled[found[3][0]]:
        raise ValueError("the instructions for sampled tokens only are no tail of the program")


def _misfits(op: isa.Instruction, shape: DraftShape) -> Iterator[str]:
    """Operands that contradict the shape or no executor can take."""
    sizes = {
        "num_heads": shape.num_heads,
        "num_kv_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
    }
    if isinstance(op, isa.Embed):
        sizes = {"num_rows": shape.vocab_size, "width": shape.hidden_size}
    elif isinstance(op, isa.SiluGate):
        sizes = {"width": shape.intermediate_size}
    elif isinstance(op, isa.Head):
        sizes = {"num_rows": shape.draft_vocab_size, "width": shape.hidden_size}
        if not 1 <= op.num_candidates <= min(op.valid_rows, MAX_CANDIDATES):
            yield f"{op.num_candidates} candidates of {op.valid_rows} rows"
        if op.valid_rows > op.num_rows:
            yield f"{op.valid_rows} valid rows of {op.num_rows}"
    for name, size in sizes.items():
        if getattr(op, name, size) != size:
            yield f"{name} is {getattr(op, name)}, the shape says {size}"
    if getattr(op, "layer", 0) >= shape.num_layers:
        yield f"layer {getattr(op, 'layer')} of {shape.num_layers}"  # noqa: B009 - no common base
    if getattr(op, "weight_bits", EMBED_BITS) not in (4, 8):
        yield "weights are int4 or int8"
    if getattr(op, "width", GROUP_COLUMNS) % GROUP_COLUMNS or not getattr(op, "width", 1):
        yield f"a width is a multiple of {GROUP_COLUMNS}"


def _outside(op: isa.Instruction, manifest: Manifest, image_bytes: int) -> Iterator[str]:
    for words in _vectors(op):
        if words.begin + words.size > manifest.vector_words:
            yield f"word {words.begin + words.size} of {manifest.vector_words} in vector memory"
    regions = {region.offset_bytes: region.size_bytes for region in manifest.regions}
    for part in _image_parts(op, manifest.shape):
        if regions.get(part.begin) != part.size or part.begin + part.size > image_bytes:
            yield f"no region of {part.size} bytes at {part.begin} in the weight image"


def _vectors(op: isa.Instruction) -> list[Extent]:
    """What it touches in vector memory."""
    if isinstance(op, isa.Embed):
        return [Extent(op.out_vec, op.width)]
    if isinstance(op, isa.NormQuant | isa.Quant):
        return [Extent(op.in_vec, op.width)]
    if isinstance(op, isa.MatMul):
        return [Extent(op.out_vec, op.num_rows)]
    if isinstance(op, isa.RopeKv):
        return [Extent(op.in_vec, (op.num_heads + 2 * op.num_kv_heads) * op.head_dim)]
    if isinstance(op, isa.Attention):
        return [Extent(op.out_vec, op.num_heads * op.head_dim)]
    if isinstance(op, isa.SiluGate):
        return [Extent(at, op.width) for at in (op.gate_vec, op.up_vec, op.out_vec)]
    return []


def _image_parts(op: isa.Instruction, shape: DraftShape) -> list[Extent]:
    """What it reads of the weight image."""
    if isinstance(op, isa.NormQuant):
        return [_part(op.gamma_beat, 2 * op.width)]
    if isinstance(op, isa.RopeRow):
        return [_part(op.rope_beat, 2 * shape.max_context_tokens * op.head_dim)]
    if not isinstance(op, isa.Embed | isa.MatMul | isa.Head):
        return []
    bits = EMBED_BITS if isinstance(op, isa.Embed) else op.weight_bits
    parts = [_part(op.weight_beat, matrix_bytes(op.num_rows, op.width, bits))]
    if isinstance(op, isa.Head) and op.d2t_beat != isa.NO_BEAT:
        parts.append(_part(op.d2t_beat, 4 * op.num_rows))
    return parts


def _part(beat: int, size_bytes: int) -> Extent:
    return Extent(beat * BEAT_BYTES, size_bytes)


def _check_activations(labels: Sequence[str], program: Sequence[isa.Instruction]) -> None:
    """A product takes as many columns as the quantiser before it wrote."""
    written = 0
    for label, op in zip(labels, program, strict=True):
        if isinstance(op, isa.NormQuant | isa.Quant):
            written = op.width
        elif isinstance(op, isa.MatMul | isa.Head) and op.width != written:
            raise ValueError(f"{label}: takes {op.width} activations, {written} are there")


def _check_target_ids(
    manifest: Manifest, program: Sequence[isa.Instruction], image: NDArray[np.uint8]
) -> None:
    """Whatever can be drafted is a token of the target, and can be embedded."""
    head = next(op for op in program if isinstance(op, isa.Head))
    size = min(manifest.target.vocab_size, manifest.shape.vocab_size)
    largest = head.valid_rows - 1
    if head.d2t_beat != isa.NO_BEAT:
        begin = head.d2t_beat * BEAT_BYTES
        ids = image[begin : begin + 4 * head.valid_rows].view("<i4")
        largest = int(ids.max()) if ids.min() >= 0 else size
    if largest >= size or manifest.target.vocab_size > manifest.shape.vocab_size:
        raise ValueError(
            f"may draft token {largest}, the target has {manifest.target.vocab_size} and "
            f"{manifest.shape.vocab_size} can be embedded"
        )
