"""``draft.json``'s records, and how a parsed document becomes them: every type checked.

The manifest is what the other files are checked against, so nothing vouches for it but this.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, Final, TypeVar, get_type_hints

_T = TypeVar("_T")

LARGEST: Final = (1 << 63) - 1


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


def parse_manifest(document: Any) -> Manifest:
    """A JSON object as a Manifest. ValueError says which entry is absent or of another kind."""
    parsers: Mapping[str, Callable[[str, Any], Any]] = {
        "shape": lambda name, value: _record(DraftShape, name, value),
        "target": lambda name, value: _record(TargetIdentity, name, value),
        "labels": lambda name, value: tuple(_scalar(name, str, v) for v in _list(name, value)),
        "regions": lambda name, value: tuple(_record(Region, name, v) for v in _list(name, value)),
        "bounds": lambda name, value: {
            key: _record(Bound, f"{name}.{key}", v) for key, v in _object(name, value).items()
        },
    }
    kinds = get_type_hints(Manifest)
    values = {}
    for field in fields(Manifest):
        name = field.name
        value = _entry(document, name, name)
        parse = parsers.get(name)
        values[name] = parse(name, value) if parse else _scalar(name, kinds[name], value)
    return Manifest(**values)


def _record(kind: type[_T], path: str, value: Any) -> _T:
    """A flat record of scalars."""
    kinds = get_type_hints(kind)
    return kind(
        **{
            name: _scalar(f"{path}.{name}", kinds[name], _entry(value, path, name))
            for name in kinds
        }
    )


def _entry(value: Any, path: str, name: str) -> Any:
    if name not in _object(path, value):
        raise ValueError(f"{path} has no {name}")
    return value[name]


def _object(path: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{path} is no object")
    return value


def _list(path: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{path} is no list")
    return value


def _scalar(path: str, kind: type, value: Any) -> Any:
    """Counts and sizes are never negative, and JSON's true is no number."""
    good = {
        bool: isinstance(value, bool),
        int: type(value) is int and 0 <= value <= LARGEST,
        float: type(value) in (int, float) and abs(value) < LARGEST and isfinite(value),
        str: isinstance(value, str),
    }[kind]
    if not good:
        raise ValueError(f"{path} is {value!r:.40}")
    return value
