"""Write a safetensors file of bfloat16 tensors block by block, so that memory stays small.

The format (huggingface/safetensors, README): eight bytes little-endian header length, a JSON
header {name: {dtype, shape, data_offsets}}, then the data, little-endian, without gaps.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Blocks = Callable[[str], Iterable[NDArray[np.float32]]]
"""Tensor name -> its values in row-major order, cut anywhere."""

_BF16_BYTES = 2
_ALIGNMENT_BYTES = 8


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Bits of the nearest bfloat16, ties to even, as torch rounds. Values must be finite."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounding = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    return ((bits + rounding) >> np.uint32(16)).astype("<u2")


def write_bf16_file(path: Path, shapes: Mapping[str, tuple[int, ...]], blocks: Blocks) -> None:
    """Write every tensor of ``shapes`` in that order; ``blocks`` is asked for one at a time.

    Raises ValueError when a tensor's blocks do not add up to its shape or are not finite: the
    file is then useless and the caller removes it.
    """
    with path.open("wb") as file:
        file.write(_header(shapes))
        for name, shape in shapes.items():
            written = sum(file.write(_encode(name, block)) for block in blocks(name))
            if written != math.prod(shape) * _BF16_BYTES:
                raise ValueError(f"tensor {name}: {written} bytes do not fill shape {shape}")


def _encode(name: str, block: NDArray[np.float32]) -> bytes:
    if not np.isfinite(block).all():
        raise ValueError(f"tensor {name} holds NaN or infinity")
    return to_bf16(block).tobytes()


def _header(shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + math.prod(shape) * _BF16_BYTES
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    return len(text).to_bytes(8, "little") + text
