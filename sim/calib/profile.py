"""Loads a card's numbers and refuses any that does not say where it comes from."""

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from hetero.core.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER: Final = Path(__file__).parent
ENGINE_FILE: Final = "engine.toml"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """A card's memory. ``ceiling``: share of the peak that the best access pattern reaches."""

    kind: str
    banks: int
    bank_bytes: int
    peak_bytes_per_s: int
    ceiling: float
    latency_cycles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModel:
    """Build parameters that depend on the card."""

    clock_hz: int
    ports: int
    port_beat_bytes: int
    max_lanes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostModel:
    """What the host adds to each start."""

    start_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineModel:
    """The accelerator's inner structure, in cycles of its clock."""

    fifo_beats: int
    tile_pipeline_cycles: int
    vector_elements_per_cycle: int
    vector_pipeline_cycles: int
    attention_products_per_cycle: int
    softmax_scores_per_cycle: int
    sample_cycles: int
    instruction_cycles: int
    start_cycles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CardProfile:
    """Everything that the models of one card need."""

    name: str
    title: str
    memory: MemoryModel
    kernel: KernelModel
    host: HostModel
    engine: EngineModel

    @property
    def bytes_per_cycle(self) -> float:
        """What all ports deliver together, at most: ports or memory, whichever is slower."""
        reachable = self.memory.peak_bytes_per_s * self.memory.ceiling / self.kernel.clock_hz
        return min(reachable, float(self.kernel.ports * self.kernel.port_beat_bytes))


def card_names() -> list[str]:
    """Cards that can be simulated."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if path.name != ENGINE_FILE)


def load_profile(name: str) -> CardProfile:
    """A card by name; ConfigError for an unknown one or a constant without source."""
    if name not in card_names():
        raise ConfigError(f"card_device = {name!r}: use one of {', '.join(card_names())}.")
    document = _read(f"{name}.toml")
    return CardProfile(
        name=name,
        title=document["title"],
        memory=_section(MemoryModel, document["memory"], f"{name}.toml"),
        kernel=_section(KernelModel, document["kernel"], f"{name}.toml"),
        host=_section(HostModel, document["host"], f"{name}.toml"),
        engine=_section(EngineModel, _read(ENGINE_FILE), ENGINE_FILE),
    )


def _read(file: str) -> dict[str, Any]:
    document: dict[str, Any] = tomllib.loads((FOLDER / file).read_text(encoding="utf-8"))
    return document


def _section(kind: type[T], entries: dict[str, Any], file: str) -> T:
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: _sourced(entries[name], f"{file}: {name}") for name in names})


def _sourced(entry: Any, where: str) -> Any:
    if isinstance(entry, str):
        return entry
    if not entry.get("source"):
        raise ConfigError(f"{where}: has no source. Say where the number comes from.")
    return entry["value"]
