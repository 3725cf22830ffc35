"""Whether a draft fits an RTL build. What does not is refused by name, before anything is built."""

from collections.abc import Iterator
from typing import Final

from fpga.program import isa
from fpga.program.artefact import Artefact
from hetero.core.errors import ConfigError
from sim.rtl.parameters import RtlBuild

HEAD_DIMS: Final = (32, 64, 128)
"""What rope_kv and attention_unit are made for."""
MAX_SCALES: Final = (1 << 20) - 1
"""Scales that a port reads for one lane: fpga/rtl/stream_dispatch.sv counts them in 20 bits."""


def check_fits(artefact: Artefact, build: RtlBuild, *, context_tokens: int) -> None:
    """ConfigError for the first limit of the build that the draft exceeds."""
    for name, what, value in _needs(artefact, context_tokens):
        limit = getattr(build, name)
        if value > limit:
            raise ConfigError(
                f"draft {artefact.path}: {what} is {value}, this RTL build takes {limit} "
                f"(its parameter {name.upper()}). Use a smaller draft or a larger build."
            )
    for op in artefact.program:
        if isinstance(op, isa.Attention):
            _check_attention(artefact, op, build, context_tokens)


def _check_attention(
    artefact: Artefact, op: isa.Attention, build: RtlBuild, context_tokens: int
) -> None:
    if op.head_dim not in HEAD_DIMS:
        raise ConfigError(
            f"draft {artefact.path}: its head dimension is {op.head_dim}, the RTL takes "
            f"{', '.join(map(str, HEAD_DIMS))}. Use another draft."
        )
    scales = -(-context_tokens // build.ports) * op.num_kv_heads
    if scales > MAX_SCALES:
        raise ConfigError(
            f"draft {artefact.path}: a context of {context_tokens} tokens with {op.num_kv_heads} "
            f"KV heads on {build.ports} ports makes {scales} scales a port, the RTL counts to "
            f"{MAX_SCALES}. Use a shorter context or more ports."
        )


def _needs(artefact: Artefact, context_tokens: int) -> Iterator[tuple[str, str, int]]:
    """Parameter, what it limits in words, and how much the draft needs."""
    yield "program_instructions", "its number of instructions", len(artefact.program)
    yield "vector_words", "its vector memory in words", artefact.manifest.vector_words
    yield "max_positions", "its context in tokens", context_tokens
    for op in artefact.program:
        if isinstance(op, isa.NormQuant | isa.Quant | isa.MatMul | isa.Head):
            yield "act_cols", "the width of a matrix", op.width
        if isinstance(op, isa.Attention):
            yield "max_heads", "its number of heads", op.num_heads
            yield "max_kv_heads", "its number of KV heads", op.num_kv_heads
            yield "max_head_dim", "its head dimension", op.head_dim
