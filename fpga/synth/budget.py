"""What other numbers of ports and lanes would take, and on which devices they fit."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fpga.synth.cells import Resources
from fpga.synth.devices import load_device
from fpga.synth.results import BUDGET, FOLDER, LARGEST_SHARE, load, result_names, source_hash, total
from fpga.synth.synthesis import synthesise
from fpga.vivado.builds import CardBuild, load_build

PLACE: Final = FOLDER / f"{BUDGET}.json"
SIZES: Final = {
    "u55c": [(8, 2), (16, 1), (8, 1), (4, 4), (8, 4), (4, 2), (32, 1)],
    "kv260": [(2, 1), (4, 2), (2, 2)],
}
"""Ports and lanes that are counted, with the other parameters of these cards."""
DEVICES: Final = {"u55c": ("u55c", "u280", "u50", "u250"), "kv260": ("kv260", "zcu104")}
"""Whose devices each of them is compared with: the same bus width and arrays are built there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A number of ports and lanes, and what it takes."""

    like: str  # the card that has the other parameters
    ports: int
    lanes: int
    sources: str
    resources: Resources

    def share(self, card: str) -> tuple[float, str]:
        """Of what is scarcest on a card: how much of it, and its name."""
        fractions = load_device(card).fraction(self.resources)
        return max((share, kind) for kind, share in fractions.items())

    def fits(self, card: str) -> bool:
        """Whether enough of the device is left to route it, and for the vendor's platform."""
        return self.share(card)[0] <= LARGEST_SHARE


def count(card: str, cache: Path, *, progress: Callable[[str], None]) -> None:
    """Counts every size of ``SIZES[card]`` that was not counted with these sources yet."""
    hash_now = source_hash()
    for ports, lanes in SIZES[card]:
        known = load_sizes()
        if any(
            (s.like, s.ports, s.lanes, s.sources) == (card, ports, lanes, hash_now) for s in known
        ):
            continue
        build = resized(load_build(card), ports, lanes)
        used = total(synthesise(build.parameters, cache, progress=progress))
        size = Size(like=card, ports=ports, lanes=lanes, sources=hash_now, resources=used)
        others = [s for s in known if (s.like, s.ports, s.lanes) != (card, ports, lanes)]
        _store([*others, size])
        progress(f"{card}, {ports} ports x {lanes} lanes: {used}")


def resized(build: CardBuild, ports: int, lanes: int) -> CardBuild:
    """The same build with other ports and lanes, and as few array slices as those need."""
    parameters = {**build.parameters, "PORTS": ports, "LANES": lanes}
    parameters.pop("ARRAYS", None)
    return dataclasses.replace(build, parameters=parameters)


def load_sizes() -> list[Size]:
    """What is committed."""
    if not PLACE.exists():
        return []
    entries: list[dict[str, Any]] = json.loads(PLACE.read_text(encoding="utf-8"))
    return [Size(**{**entry, "resources": Resources(**entry["resources"])}) for entry in entries]


def sizes_like(card: str) -> list[Size]:
    """What is committed with a card's other parameters, the card's own build among them."""
    own = [
        Size(
            like=card,
            ports=build.parameters["PORTS"],
            lanes=build.parameters["LANES"],
            sources=build.sources,
            resources=build.resources,
        )
        for build in (load(name) for name in result_names() if name == card)
        if not build.uncounted
    ]
    others = [size for size in load_sizes() if size.like == card]
    return sorted([*own, *others], key=lambda size: (size.ports, size.lanes))


def _store(sizes: list[Size]) -> None:
    ordered = sorted(sizes, key=lambda size: (size.like, size.ports, size.lanes))
    lines = ",\n  ".join(json.dumps(dataclasses.asdict(size)) for size in ordered)
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(f"[\n  {lines}\n]\n", encoding="utf-8")
