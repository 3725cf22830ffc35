"""Whether a draft fits an RTL build. What does not is refused by name, before anything is built."""

from collections.abc import Iterator

from fpga.program import isa
from fpga.program.artefact import Artefact
from hetero.core.errors import ConfigError
from sim.rtl.parameters import RtlBuild


def check_fits(artefact: Artefact, build: RtlBuild, *, context_tokens: int) -> None:
    """ConfigError for the first limit of the build that the draft exceeds."""
    for name, what, value in _needs(artefact, context_tokens):
        limit = getattr(build, name)
        if value > limit:
            raise ConfigError(
                f"draft {artefact.path}: {what} is {value}, this RTL build takes {limit} "
                f"(its parameter {name.upper()}). Use a smaller draft or a larger build."
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
