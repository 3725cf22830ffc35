"""Numerics identity: everything that may move a bit of a logit, hashed into one fingerprint.

Two processes with the same fingerprint give the same tokens for the same request. With different
ones they promise token agreement only, up to near-ties.
"""

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import BinaryIO

import torch

from gpu_verifier.attention.plan import SLAB_TILES, SPLIT_KEYS, TILE_ROWS
from gpu_verifier.model.target import HEAD_SLAB_ROWS, ROW_TILE

_SAMPLES = 1024
_SAMPLE_BYTES = 4096
_CPUINFO = Path("/proc/cpuinfo")


def weights_digest(model_dir: Path, files: Sequence[Path]) -> str:
    """sha256 over config.json, every weight file's size and header, and samples of its data.

    Sampling 1024 places of 4 KiB a file tells apart any two trained checkpoints without reading
    hundreds of gigabytes at start-up. Names and times do not enter.
    """
    digest = hashlib.sha256((model_dir / "config.json").read_bytes())
    for path in files:
        with path.open("rb") as handle:
            _sample(handle, path.stat().st_size, digest)
    return digest.hexdigest()


def _sample(handle: BinaryIO, size_bytes: int, digest: "hashlib._Hash") -> None:
    header_bytes = int.from_bytes(handle.read(8), "little")
    digest.update(f"{size_bytes},{header_bytes}".encode())
    digest.update(handle.read(header_bytes))
    data_start = 8 + header_bytes
    stride = max((size_bytes - data_start) // _SAMPLES, _SAMPLE_BYTES)
    for offset in range(data_start, size_bytes, stride):
        handle.seek(offset)
        digest.update(handle.read(_SAMPLE_BYTES))


def cpu_flags() -> frozenset[str]:
    """Instruction-set flags of the processor as Linux names them; empty where unknown."""
    for line in _cpuinfo_lines():
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _cpu_model() -> str:
    names = [line.partition(":")[2].strip() for line in _cpuinfo_lines() if "model" in line]
    return "/".join(names[:2]) or platform.machine()


def _cpuinfo_lines() -> list[str]:
    return _CPUINFO.read_text().splitlines() if _CPUINFO.is_file() else []


def numerics_identity(
    *, device: torch.device, dtype: torch.dtype, threads: int, executor: str, weights_sha256: str
) -> dict[str, str]:
    """Name and value of everything that may move a bit."""
    on_gpu = device.type == "cuda"
    return {
        "hetero": metadata.version("hetero"),
        "torch": torch.__version__,
        "transformers": metadata.version("transformers"),
        "numpy": metadata.version("numpy"),
        "executor": executor,
        "device": torch.cuda.get_device_name(device) if on_gpu else _cpu_model(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "dtype": str(dtype).removeprefix("torch."),
        "threads": str(threads),
        "tiles": f"{ROW_TILE},{TILE_ROWS},{SPLIT_KEYS},{SLAB_TILES},{HEAD_SLAB_ROWS}",
        "weights_sha256": weights_sha256,
    }


def fingerprint(identity: Mapping[str, str]) -> str:
    """Short name of an identity, reported as ``system_fingerprint``."""
    text = json.dumps(dict(sorted(identity.items())), separators=(",", ":"))
    return f"hetero-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
