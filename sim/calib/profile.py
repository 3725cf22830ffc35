"""Loads a card's numbers and refuses any that does not say where it comes from."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from fpga.vivado.builds import card_builds, load_build
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
    """The build on a card, as far as cycles depend on it: parameters of fpga/rtl/draft_card.sv.

    ``arrays`` 0: as few array slices as there may be. ``clock_hz`` is assumed: no build has been
    placed and routed.
    """

    clock_hz: int
    ports: int
    port_beat_bytes: int
    max_lanes: int
    arrays: int
    array_bytes: int
    attention_heads: int
    attention_bytes: int
    fifo_beats: int
    slr_stages: int

    @classmethod
    def of_build(cls, parameters: Mapping[str, int], clock_hz: int) -> "KernelModel":
        """From the top module's parameters."""
        return cls(
            clock_hz=clock_hz,
            ports=parameters["PORTS"],
            port_beat_bytes=parameters["PORT_BYTES"],
            max_lanes=parameters["LANES"],
            arrays=parameters.get("ARRAYS", 0),
            array_bytes=parameters["ARRAY_BYTES"],
            attention_heads=parameters["ATTN_HEADS"],
            attention_bytes=parameters["ATTN_BYTES"],
            fifo_beats=parameters["FIFO_BEATS"],
            slr_stages=parameters["SLR_STAGES"],
        )

    @property
    def num_arrays(self) -> int:
        """Array slices of a port; more lanes need more."""
        return max(2, self.max_lanes, self.arrays)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostModel:
    """What the host adds to each start, in microseconds; the card is not at work meanwhile.

    ``start_us``: until the kernel runs, register writes included. ``sync_us``: one of the two
    buffer synchronisations, the command's and the result's. ``done_us``: until the host knows
    that the card is done, by ``wait``: an interrupt, or polling.
    """

    wait: str
    start_us: float
    sync_us: float
    done_us: float

    @property
    def seconds(self) -> float:
        """All of it, for one start."""
        return (self.start_us + 2 * self.sync_us + self.done_us) / 1e6


class Constants(NamedTuple):
    """Cycles of the accelerator's parts, fitted to the RTL; each is told in engine.toml."""

    start: int
    program: int
    end: int
    pass_gap: int
    command_to_read: int
    read_to_channel: int
    credit: int
    tag: int
    embed: int
    embed_lane: int
    norm: int
    norm_tree: int
    norm_measure: int
    norm_scale: int
    quant: int
    quant_tree: int
    quant_measure: int
    quant_scale: int
    silu: int
    array: int
    drain: int
    tile: int
    room: int
    head: int
    insert: int
    rope: int
    rope_ring: int
    write_begin: int
    write_row: int
    write_record: int
    write_end: int
    attention: int
    group: int
    half: int
    record: int
    keys: int
    walk: int
    tree: int
    values: int
    sums: int
    draw: int
    draw_lane: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CardProfile:
    """Everything that the models of one card need.

    ``cost_model_only``: why there is no build for it; empty for a card that has one.
    """

    name: str
    title: str
    memory: MemoryModel
    kernel: KernelModel
    host: HostModel
    constants: Constants
    cost_model_only: str = ""

    @property
    def bytes_per_cycle(self) -> float:
        """What all ports deliver together, at most: ports or memory, whichever is slower."""
        used = min(self.kernel.ports, self.memory.banks) / self.memory.banks
        reachable = used * self.memory.peak_bytes_per_s * self.memory.ceiling / self.kernel.clock_hz
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
        kernel=_kernel(name, document),
        host=_section(HostModel, document["host"], f"{name}.toml"),
        constants=_constants(),
        cost_model_only=document.get("cost_model_only", ""),
    )


def _kernel(name: str, document: Mapping[str, Any]) -> KernelModel:
    """The card's own build (fpga/vivado/builds.toml); where there is none, as the file assumes."""
    if name in card_builds():
        clock_hz = _sourced(document["kernel"]["clock_hz"], f"{name}.toml: clock_hz")
        return KernelModel.of_build(load_build(name).parameters, clock_hz)
    return _section(KernelModel, document["kernel"], f"{name}.toml")


def engine_entries(path: Path) -> dict[str, dict[str, Any]]:
    """The engine's constants as they stand in the file: value and source of each."""
    entries: dict[str, dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))
    return entries


def _constants() -> Constants:
    entries = engine_entries(FOLDER / ENGINE_FILE)
    values = {name: _sourced(entry, f"{ENGINE_FILE}: {name}") for name, entry in entries.items()}
    return Constants(**values)


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
