"""``build_artefact``: checkpoint in, verified artefact out."""

from dataclasses import dataclass
from pathlib import Path

from fpga.program import isa, tables
from fpga.program.artefact import check_output, write_artefact
from fpga.program.compile import (
    HEAD_BITS,
    WEIGHT_BITS,
    Progress,
    compile_llama,
    vector_map,
)
from fpga.program.manifest import Manifest, TargetIdentity
from fpga.quant.checkpoint import open_checkpoint
from fpga.quant.llama import read_shape, tokenizer_vocab_size
from hetero.core.errors import PairError


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtefactInfo:
    """What ``hetero draft build`` reports."""

    path: Path
    sha256: str
    params: int
    weight_bytes: int
    instructions: int
    target_tokenizer_sha256: str


def build_artefact(
    checkpoint: Path,
    out_dir: Path,
    *,
    target_tokenizer_sha256: str,
    target_vocab_size: int | None = None,
    progress: Progress | None = None,
) -> ArtefactInfo:
    """Quantise and compile a Hugging Face directory. The same input gives the same bytes.

    ``target_vocab_size``: of the target's tokenizer, so that a vocabulary filled up beyond it is
    never drafted from; defaults to that of the tokenizer beside the checkpoint, or to all rows.
    Raises ModelError for a checkpoint that is damaged or not supported, PairError for one with
    fewer rows than the target has tokens, ConfigError for an output that can't be used; then
    nothing is written.
    """
    check_output(out_dir)
    source = open_checkpoint(checkpoint)
    shape = read_shape(source)
    vocab_size = target_vocab_size or tokenizer_vocab_size(checkpoint) or shape.vocab_size
    if vocab_size > shape.vocab_size:
        raise PairError(
            f"{checkpoint}: embeds {shape.vocab_size} tokens, the target's tokenizer has "
            f"{vocab_size}. Use a draft of the target's family."
        )
    compiled = compile_llama(source, shape, target_vocab_size=vocab_size, progress=progress)
    manifest = Manifest(
        isa_version=isa.ISA_VERSION,
        arithmetic_version=tables.ARITHMETIC_VERSION,
        tables_sha256=tables.TABLES_SHA256,
        shape=shape,
        target=TargetIdentity(
            tokenizer_sha256=target_tokenizer_sha256,
            vocab_size=vocab_size,
        ),
        checkpoint_sha256=source.sha256(),
        num_params=source.num_params,
        weight_bytes=compiled.image.weight_bytes,
        vector_words=vector_map(shape).size,
        weight_bits=WEIGHT_BITS,
        head_bits=HEAD_BITS,
        labels=tuple(compiled.labels),
        bounds=compiled.image.bounds,
        regions=tuple(compiled.image.regions),
    )
    digest = write_artefact(
        out_dir,
        manifest,
        program=isa.encode_program(compiled.program),
        weights=b"".join(compiled.image.parts),
    )
    return ArtefactInfo(
        path=out_dir,
        sha256=digest,
        params=source.num_params,
        weight_bytes=manifest.weight_bytes,
        instructions=len(compiled.program),
        target_tokenizer_sha256=target_tokenizer_sha256,
    )
