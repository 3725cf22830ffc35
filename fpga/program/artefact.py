"""The packed draft on disk: a directory of ``draft.json``, ``program.bin`` and ``weights.bin``.

``draft.json`` (the manifest) names the versions, the shape, the target it was built for and the
hash of both other files; its own hash is the artefact's identity. ``program.bin`` is the
instruction stream (fpga.program.isa), ``weights.bin`` the image that is copied into card memory
as it is (fpga.program.layout). Nothing else is needed to run the draft.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpga.program import isa, tables
from fpga.program.check import check_program
from fpga.program.layout import BEAT_BYTES, KvLayout
from fpga.program.manifest import DraftShape, Manifest, parse_manifest
from hetero.core.errors import ArtefactError, ConfigError, PairError

FORMAT_NAME: Final = "hetero-draft"
FORMAT_VERSION: Final = 1
MANIFEST_FILE: Final = "draft.json"
PROGRAM_FILE: Final = "program.bin"
WEIGHTS_FILE: Final = "weights.bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Artefact:
    """A verified draft. ``image``: uint8, the whole weight image, read-only."""

    path: Path
    sha256: str
    manifest: Manifest
    program: tuple[isa.Instruction, ...]
    image: NDArray[np.uint8]

    @property
    def shape(self) -> DraftShape:
        """Sizes of the model."""
        return self.manifest.shape

    def region_from(self, beat: int) -> NDArray[np.uint8]:
        """The image from a ``_beat`` operand on."""
        return self.image[beat * BEAT_BYTES :]

    def kv_layout(self, num_slots: int, context_tokens: int) -> KvLayout:
        """Where a card with so many slots of so many tokens keeps this draft's KV."""
        if not 0 < context_tokens <= self.shape.max_context_tokens:
            raise ConfigError(
                f"context of {context_tokens} tokens: this draft was built for 1.."
                f"{self.shape.max_context_tokens}. Ask for no more."
            )
        return KvLayout(
            num_slots=num_slots,
            context_tokens=context_tokens,
            num_layers=self.shape.num_layers,
            num_kv_heads=self.shape.num_kv_heads,
            head_dim=self.shape.head_dim,
        )


def write_artefact(out_dir: Path, manifest: Manifest, *, program: bytes, weights: bytes) -> str:
    """Write all or nothing; returns the artefact's hash. Replaces an older artefact in place.

    Everything is written to a directory beside ``out_dir``, which is then renamed: a reader
    never sees half of it, an interrupted build leaves only a ``.partial`` directory behind.
    Raises ConfigError when ``out_dir`` can't be written or holds something else.
    """
    data = {PROGRAM_FILE: program, WEIGHTS_FILE: weights}
    data[MANIFEST_FILE] = _manifest_json(manifest, data)
    with _output_errors(out_dir):
        # A link stays a link: what it points to is replaced.
        target = Path(os.path.realpath(out_dir))
        target.parent.mkdir(parents=True, exist_ok=True)
        with _write_lock(target):
            _replace(target, data)
    return hashlib.sha256(data[MANIFEST_FILE]).hexdigest()


def check_output(out_dir: Path) -> None:
    """ConfigError unless an artefact may be written there; cheap, for before the work begins."""
    with _output_errors(out_dir):
        _check_replaceable(out_dir)


@contextmanager
def _output_errors(out_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"output {out_dir}: {error.strerror}. Name a directory that can be written, with "
            "room for the draft."
        ) from error


@contextmanager
def _write_lock(target: Path) -> Iterator[None]:
    """One writer at a time: between two renames another would find the place empty."""
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # not every network filesystem locks a directory
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace(target: Path, data: Mapping[str, bytes]) -> None:
    _check_replaceable(target)
    staging = target.with_name(f".{target.name}.{os.getpid()}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    try:
        for name, content in data.items():
            _write_durably(staging / name, content)
        _swap_in(staging, target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _check_replaceable(out_dir: Path) -> None:
    """Only an artefact, and nothing that somebody put beside it, may be replaced."""
    if not out_dir.exists():
        return
    names = {entry.name for entry in out_dir.iterdir()} if out_dir.is_dir() else None
    ours = {MANIFEST_FILE, PROGRAM_FILE, WEIGHTS_FILE}
    if names is None or (names and (MANIFEST_FILE not in names or not names <= ours)):
        raise ConfigError(
            f"output {out_dir}: exists and is no draft artefact. Name a new directory."
        )


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _swap_in(staging: Path, out_dir: Path) -> None:
    old = staging.with_suffix(".old")
    replaced = out_dir.exists()
    if replaced:
        out_dir.rename(old)
    try:
        staging.rename(out_dir)
    except OSError:
        if replaced:
            old.rename(out_dir)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _manifest_json(manifest: Manifest, data: Mapping[str, bytes]) -> bytes:
    files = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in data.items()
    }
    document = {
        "format": FORMAT_NAME,
        "format_version": FORMAT_VERSION,
        "files": files,
        **asdict(manifest),
    }
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def load_artefact(
    path: Path,
    *,
    target_tokenizer_sha256: str | None = None,
    target_vocab_size: int | None = None,
) -> Artefact:
    """Read and verify a draft, and that it fits the target where one is named.

    Raises ArtefactError when anything is damaged, missing or from another version, PairError
    when the draft was built for another tokenizer or vocabulary.
    """
    raw, document = _read_manifest(path)
    _check_versions(path, document)
    try:
        manifest = parse_manifest(document)
    except ValueError as error:
        raise ArtefactError(_damaged(path, f"{MANIFEST_FILE} is damaged: {error}")) from error
    program_bytes = _read_checked(path / PROGRAM_FILE, document)
    image = np.frombuffer(_read_checked(path / WEIGHTS_FILE, document), dtype=np.uint8)
    program = tuple(isa.decode_program(program_bytes))
    try:
        check_program(manifest, program, image)
    except ValueError as error:
        reason = f"{MANIFEST_FILE} does not fit the program: {error}"
        raise ArtefactError(_damaged(path, reason)) from error
    artefact = Artefact(
        path=path,
        sha256=hashlib.sha256(raw).hexdigest(),
        manifest=manifest,
        program=program,
        image=image,
    )
    check_pair(
        artefact,
        target_tokenizer_sha256=target_tokenizer_sha256,
        target_vocab_size=target_vocab_size,
    )
    return artefact


def check_pair(
    artefact: Artefact,
    *,
    target_tokenizer_sha256: str | None = None,
    target_vocab_size: int | None = None,
) -> None:
    """PairError unless the draft was built for this target; None leaves a check out."""
    built_for = artefact.manifest.target
    if target_tokenizer_sha256 not in (None, built_for.tokenizer_sha256):
        raise PairError(
            f"draft {artefact.path}: built for tokenizer {built_for.tokenizer_sha256[:12]}, the "
            f"target has {str(target_tokenizer_sha256)[:12]}. Build a draft for this target."
        )
    if target_vocab_size not in (None, built_for.vocab_size):
        raise PairError(
            f"draft {artefact.path}: built for a vocabulary of {built_for.vocab_size} tokens, the "
            f"target has {target_vocab_size}. Build a draft for this target."
        )


def _damaged(path: Path, what: str) -> str:
    return f"draft {path}: {what}. Build it again with `hetero draft build`."


def _read_manifest(path: Path) -> tuple[bytes, dict[str, Any]]:
    try:
        raw = (path / MANIFEST_FILE).read_bytes()
    except OSError as error:
        reason = f"no readable {MANIFEST_FILE} ({error.strerror})"
        raise ArtefactError(_damaged(path, reason)) from error
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(_damaged(path, f"{MANIFEST_FILE} is not JSON")) from error
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT_NAME:
        raise ArtefactError(_damaged(path, f"{MANIFEST_FILE} is not a draft's manifest"))
    version = document.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise ArtefactError(
            f"draft {path}: format version {version!r:.40}, this hetero reads {FORMAT_VERSION}. "
            "Use the matching version or build the draft again."
        )
    return raw, document


def _check_versions(path: Path, document: Mapping[str, Any]) -> None:
    """Before all else: what is from another version need not look like ours."""
    expected = {
        "isa_version": isa.ISA_VERSION,
        "arithmetic_version": tables.ARITHMETIC_VERSION,
        "tables_sha256": tables.TABLES_SHA256,
    }
    for name, ours in expected.items():
        theirs = document.get(name)
        if theirs != ours:
            raise ArtefactError(
                f"draft {path}: {name} is {theirs!r:.80}, this hetero executes {ours}. "
                "Use the matching version or build the draft again."
            )


def _read_checked(path: Path, document: Mapping[str, Any]) -> bytes:
    """A file as the manifest describes it."""
    try:
        expected = document["files"][path.name]
        num_bytes, sha256 = expected["bytes"], expected["sha256"]
        content = path.read_bytes()
    except (KeyError, TypeError) as error:
        what = f"{MANIFEST_FILE} does not describe {path.name}"
        raise ArtefactError(_damaged(path.parent, what)) from error
    except OSError as error:
        what = f"no readable {path.name} ({error.strerror})"
        raise ArtefactError(_damaged(path.parent, what)) from error
    if len(content) != num_bytes:
        what = f"{path.name} has {len(content)} bytes instead of {num_bytes!r:.40}"
        raise ArtefactError(_damaged(path.parent, what))
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ArtefactError(_damaged(path.parent, f"{path.name} does not match its hash"))
    return content
