"""What a fetched model directory must hold: its origin, and size and sha256 of every file."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hetero.core.errors import ModelError

MANIFEST_FILE = "hetero_manifest.json"
_FORMAT = 1
_BLOCK_BYTES = 1 << 22

BytesRead = Callable[[int], None]
"""Called with the number of bytes just read, for a progress bar."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of the directory."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The last file written: a directory without it is not a fetched model."""

    name: str
    params: int
    license: str
    source: Mapping[str, str]  # what it was made from, for people
    files: Mapping[str, FileEntry]


def file_sha256(path: Path, on_bytes: BytesRead | None = None) -> str:
    """Hex digest of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            if on_bytes is not None:
                on_bytes(len(block))
    return digest.hexdigest()


def describe_files(directory: Path, on_bytes: BytesRead | None = None) -> dict[str, FileEntry]:
    """Entries for every file now in the directory, the manifest itself excepted."""
    paths = sorted(path for path in directory.iterdir() if path.name != MANIFEST_FILE)
    return {
        path.name: FileEntry(file_sha256(path, on_bytes), path.stat().st_size) for path in paths
    }


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest beside the files that it describes."""
    text = json.dumps({"format": _FORMAT, **asdict(manifest)}, indent=2)
    (directory / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")


def read_manifest(directory: Path) -> Manifest:
    """Read it back; ModelError with the fix when it is absent or not ours."""
    path = directory / MANIFEST_FILE
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value.pop("format") != _FORMAT:
            raise ValueError("unknown format")
        return _from_json(value)
    except FileNotFoundError as error:
        raise ModelError(f"{directory}: half fetched, no manifest. {_fix(directory)}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: damaged ({error}). {_fix(directory)}") from error


def check_sizes(directory: Path) -> Manifest:
    """Quick check, a stat per file: ModelError when one is absent or of another size."""
    manifest = read_manifest(directory)
    for name, entry in manifest.files.items():
        path = directory / name
        size = path.stat().st_size if path.is_file() else None
        if size != entry.size_bytes:
            found = "is missing" if size is None else f"has {size} bytes of {entry.size_bytes}"
            raise ModelError(f"{path}: {found}. {_fix(directory)}")
    return manifest


def check_contents(directory: Path, on_bytes: BytesRead | None = None) -> Manifest:
    """Full check: every byte of every file. Raises ModelError naming the damaged file."""
    manifest = check_sizes(directory)
    for name, entry in manifest.files.items():
        if file_sha256(directory / name, on_bytes) != entry.sha256:
            raise ModelError(
                f"{directory / name}: damaged, its sha256 is not the manifest's. {_fix(directory)}"
            )
    return manifest


def _from_json(value: dict[str, Any]) -> Manifest:
    files = {name: FileEntry(**entry) for name, entry in value.pop("files").items()}
    if any(Path(name).name != name for name in files):
        raise ValueError("names a file outside the directory")
    return Manifest(files=files, **value)


def _fix(directory: Path) -> str:
    return f"Run `hetero models pull {directory.name}` to repair it."
