"""Information bytes of decoded tokens: what has to come from memory, no filler counted.

Weights, group scales and row mantissas of every matrix that a sampled token goes through, gammas,
the embedding's and the RoPE table's row, and keys, values and scales of the positions before it.
One pass reads the weights once, however many rows it has, and KV once a row.
"""

from collections.abc import Sequence

from fpga.program import isa
from fpga.program.layout import GROUP_COLUMNS

MANTISSA_BYTES = 2
SCALE_BYTES = 4
"""Of one head's keys, or values, at one position."""


def shared_bytes(program: Sequence[isa.Instruction]) -> int:
    """What one pass reads for all of its rows together."""
    total = 0
    for op in program:
        match op:
            case isa.MatMul():
                total += _matrix_bytes(op.num_rows, op.width, op.weight_bits)
            case isa.Head():
                total += _matrix_bytes(op.valid_rows, op.width, op.weight_bits)
            case isa.NormQuant():
                total += 2 * op.width
    return total


def row_bytes(program: Sequence[isa.Instruction], position: int) -> int:
    """What a pass reads for one row at this position."""
    total = 0
    for op in program:
        match op:
            case isa.Embed():
                total += op.width + MANTISSA_BYTES
            case isa.RopeRow():
                total += 2 * op.head_dim
            case isa.Attention():
                total += 2 * position * op.num_kv_heads * (op.head_dim + SCALE_BYTES)
    return total


def pass_bytes(program: Sequence[isa.Instruction], positions: Sequence[int]) -> int:
    """One pass with a sampled row at each of these positions."""
    return shared_bytes(program) + sum(row_bytes(program, position) for position in positions)


def _matrix_bytes(num_rows: int, width: int, weight_bits: int) -> int:
    scales = num_rows * width // GROUP_COLUMNS if weight_bits == 4 else 0
    return num_rows * width * weight_bits // 8 + scales + MANTISSA_BYTES * num_rows
