"""The packed draft on disk: a directory of ``draft.json``, ``program.bin`` and ``weights.bin``.

``draft.json`` (the manifest) names the versions, the shape, the target it was built for and the
hash of both other files; its own hash is the artefact's identity. ``program.bin`` is the
instruction stream (fpga.program.isa), ``weights.bin`` the image that is copied into card memory
as it is (fpga.program.layout). Nothing else is needed to run the draft.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from fpga.program import isa, tables
from fpga.program.layout import BEAT_BYTES, KvLayout
from hetero.core.errors import ArtefactError, ConfigError, PairError

FORMAT_NAME: Final = "hetero-draft"
FORMAT_VERSION: Final = 1
MANIFEST_FILE: Final = "draft.json"
PROGRAM_FILE: Final = "program.bin"
WEIGHTS_FILE: Final = "weights.bin"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftShape:
    """Sizes of a Llama-shaped draft. ``draft_vocab_size`` is the number of head rows."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    max_context_tokens: int
    rope_base: float
    rms_norm_eps: float
    tied_embedding: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetIdentity:
    """The target that this draft speaks the language of."""

    tokenizer_sha256: str
    vocab_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Proven largest magnitudes of one matrix product, over all int8 activations.

    ``group_sum``: of 32 int4 x int8 products (int8 matrices: of 32 products).
    ``row_sum``: of a whole row's accumulator, group scales included; below 2^31.
    """

    group_sum: int
    row_sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A named part of the weight image, for people and tools; the program has its own addresses."""

    name: str
    kind: str
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """``draft.json``. ``labels`` name the instructions, ``bounds`` their matrix products.

    ``weight_bytes``: information bytes of the image: weights, scales, gammas, no padding, a tied
    matrix counted once. ``vector_words``: int32 words of vector memory that a lane needs.
    """

    isa_version: int
    arithmetic_version: int
    tables_sha256: str
    shape: DraftShape
    target: TargetIdentity
    checkpoint_sha256: str
    num_params: int
    weight_bytes: int
    vector_words: int
    weight_bits: int
    head_bits: int
    labels: tuple[str, ...]
    bounds: Mapping[str, Bound]
    regions: tuple[Region, ...]


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
    """
    _check_replaceable(out_dir)
    data = {PROGRAM_FILE: program, WEIGHTS_FILE: weights}
    data[MANIFEST_FILE] = _manifest_json(manifest, data)
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    staging = out_dir.with_name(f".{out_dir.name}.{os.getpid()}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    try:
        for name, content in data.items():
            _write_durably(staging / name, content)
        _swap_in(staging, out_dir)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return hashlib.sha256(data[MANIFEST_FILE]).hexdigest()


def _check_replaceable(out_dir: Path) -> None:
    occupied = out_dir.exists() and (not out_dir.is_dir() or any(out_dir.iterdir()))
    if occupied and not (out_dir / MANIFEST_FILE).is_file():
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
    if out_dir.exists():
        out_dir.rename(old)
    staging.rename(out_dir)
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
    manifest = _parse_manifest(path, document)
    _check_versions(path, manifest)
    files = document.get("files", {})
    program_bytes = _read_checked(path / PROGRAM_FILE, files)
    image = np.frombuffer(_read_checked(path / WEIGHTS_FILE, files), dtype=np.uint8)
    program = tuple(isa.decode_program(program_bytes))
    if len(program) != len(manifest.labels):
        raise ArtefactError(_damaged(path, "labels and instructions differ in number"))
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
    except ValueError as error:
        raise ArtefactError(_damaged(path, f"{MANIFEST_FILE} is not JSON")) from error
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT_NAME:
        raise ArtefactError(_damaged(path, f"{MANIFEST_FILE} is not a draft's manifest"))
    version = document.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise ArtefactError(
            f"draft {path}: format version {version}, this hetero reads {FORMAT_VERSION}. "
            "Use the matching version or build the draft again."
        )
    return raw, document


def _parse_manifest(path: Path, document: dict[str, Any]) -> Manifest:
    try:
        values = {f.name: document[f.name] for f in fields(Manifest)}
        values["shape"] = _record(DraftShape, values["shape"])
        values["target"] = _record(TargetIdentity, values["target"])
        values["labels"] = tuple(values["labels"])
        values["regions"] = tuple(_record(Region, r) for r in values["regions"])
        values["bounds"] = {k: _record(Bound, v) for k, v in values["bounds"].items()}
        return Manifest(**values)
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtefactError(_damaged(path, f"{MANIFEST_FILE} is incomplete: {error}")) from error


def _record(kind: type[_T], values: dict[str, Any]) -> _T:
    return kind(**values)


def _check_versions(path: Path, manifest: Manifest) -> None:
    expected = {
        "isa_version": isa.ISA_VERSION,
        "arithmetic_version": tables.ARITHMETIC_VERSION,
        "tables_sha256": tables.TABLES_SHA256,
    }
    for name, ours in expected.items():
        theirs = getattr(manifest, name)
        if theirs != ours:
            raise ArtefactError(
                f"draft {path}: {name} is {theirs}, this hetero executes {ours}. "
                "Use the matching version or build the draft again."
            )


def _read_checked(path: Path, files: Mapping[str, Any]) -> bytes:
    try:
        expected = files[path.name]
        content = path.read_bytes()
    except (KeyError, TypeError, OSError) as error:
        raise ArtefactError(_damaged(path.parent, f"no readable {path.name}")) from error
    if len(content) != expected["bytes"]:
        what = f"{path.name} has {len(content)} bytes instead of {expected['bytes']}"
        raise ArtefactError(_damaged(path.parent, what))
    if hashlib.sha256(content).hexdigest() != expected["sha256"]:
        raise ArtefactError(_damaged(path.parent, f"{path.name} does not match its hash"))
    return content
