"""Reading a Hugging Face checkpoint with NumPy alone: no torch on a card's host.

The safetensors format (huggingface/safetensors, README): eight bytes little-endian header
length, a JSON header {name: {dtype, shape, data_offsets}}, then the data.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hetero.core.errors import ModelError

CONFIG_FILE: Final = "config.json"
SINGLE_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"
_MAX_HEADER_BYTES: Final = 100_000_000
_HASH_BLOCK_BYTES: Final = 1 << 22
_ITEM_BYTES: Final = {"BF16": 2, "F16": 2, "F32": 4, "I64": 8, "I32": 4}


@dataclass(frozen=True, slots=True)
class TensorRef:
    """Where a tensor lies. ``start``: absolute byte offset in the file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint directory, opened but not loaded."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorRef]

    @property
    def num_params(self) -> int:
        """Stored floating-point parameters."""
        floats = (ref for ref in self.tensors.values() if not ref.dtype.startswith("I"))
        return sum(int(np.prod(ref.shape)) for ref in floats)

    def tensor(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """One tensor as float32; ModelError if it is absent or has another shape."""
        ref = self._ref(name, shape)
        raw = self._raw(ref)
        if ref.dtype == "BF16":
            values = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = raw.view({"F16": "<f2", "F32": "<f4"}[ref.dtype]).astype(np.float32)
        if not np.isfinite(values).all():
            raise ModelError(f"{self.path}: tensor {name} holds NaN or infinity. Fetch it again.")
        return values.reshape(shape)

    def integers(self, name: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """One integer tensor."""
        ref = self._ref(name, shape)
        dtype = {"I64": "<i8", "I32": "<i4"}.get(ref.dtype)
        if dtype is None:
            raise ModelError(f"{self.path}: tensor {name} is {ref.dtype}, not integers.")
        return self._raw(ref).view(dtype).astype(np.int64).reshape(shape)

    def sha256(self) -> str:
        """Identity: config and every weight file, in order of name."""
        digest = hashlib.sha256()
        files = sorted({ref.file for ref in self.tensors.values()})
        for file in [self.path / CONFIG_FILE, *files]:
            digest.update(_file_sha256(file).encode())
        return digest.hexdigest()

    def _ref(self, name: str, shape: tuple[int, ...]) -> TensorRef:
        ref = self.tensors.get(name)
        if ref is None:
            raise ModelError(f"{self.path}: tensor {name} is missing. Fetch the model again.")
        if ref.shape != shape:
            raise ModelError(
                f"{self.path}: tensor {name} has shape {ref.shape}, config.json says {shape}."
            )
        return ref

    @staticmethod
    def _raw(ref: TensorRef) -> NDArray[np.uint8]:
        if not ref.size_bytes:
            return np.zeros(0, dtype=np.uint8)
        mapped = np.memmap(ref.file, np.uint8, mode="r", offset=ref.start, shape=(ref.size_bytes,))
        return np.array(mapped)


def open_checkpoint(path: Path) -> Checkpoint:
    """Read configuration and tensor headers; ModelError for what is absent or damaged."""
    config = _read_json(path / CONFIG_FILE)
    tensors: dict[str, TensorRef] = {}
    for file in _weight_files(path):
        tensors.update(_read_header(file))
    return Checkpoint(path, config, tensors)


def _weight_files(path: Path) -> list[Path]:
    if (path / SINGLE_FILE).is_file():
        return [path / SINGLE_FILE]
    if not (path / INDEX_FILE).is_file():
        raise ModelError(
            f"{path}: neither {SINGLE_FILE} nor {INDEX_FILE}. Convert the weights to safetensors."
        )
    weight_map = _read_json(path / INDEX_FILE).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{path / INDEX_FILE}: no weight_map. Fetch the model again.")
    names = list(weight_map.values())
    if any(not isinstance(name, str) or Path(name).name != name for name in names):
        raise ModelError(f"{path / INDEX_FILE}: names a file outside the directory.")
    return [path / name for name in sorted(set(names))]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(
            f"{path}: {error.strerror}. Name a Hugging Face model directory."
        ) from error
    except ValueError as error:
        raise ModelError(f"{path}: not JSON. Fetch the model again.") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: not a JSON object. Fetch the model again.")
    return value


def _read_header(file: Path) -> dict[str, TensorRef]:
    try:
        with file.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            if not 2 <= length <= _MAX_HEADER_BYTES:
                raise ValueError(f"header of {length} bytes")
            header = json.loads(handle.read(length))
        header.pop("__metadata__", None)
        data_bytes = file.stat().st_size - 8 - length
        return {name: _tensor_ref(file, 8 + length, data_bytes, e) for name, e in header.items()}
    except OSError as error:
        raise ModelError(f"{file}: {error.strerror}. Fetch the model again.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{file}: damaged safetensors ({error}). Fetch the model again."
        ) from error


def _tensor_ref(file: Path, base: int, data_bytes: int, entry: dict[str, Any]) -> TensorRef:
    begin, end = entry["data_offsets"]
    shape = tuple(int(n) for n in entry["shape"])
    item_bytes = _ITEM_BYTES.get(entry["dtype"])
    if item_bytes is None:
        raise ValueError(f"dtype {entry['dtype']} is not supported")
    if not 0 <= begin <= end <= data_bytes:
        raise ValueError("data ends early: half a download?")
    if end - begin != item_bytes * int(np.prod(shape)):
        raise ValueError(f"{end - begin} bytes for shape {shape}")
    return TensorRef(file, entry["dtype"], shape, base + begin, end - begin)


def _file_sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as handle:
        while block := handle.read(_HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
