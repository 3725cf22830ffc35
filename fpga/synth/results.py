"""Committed results of synthesis: one JSON file a card, and budget.json for other sizes.

load("kv260").resources     # what the card's build takes
load("kv260").summary()     # the same as `hetero card report` prints it
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fpga.synth.cells import Resources
from fpga.synth.devices import load_device
from fpga.vivado.builds import sources
from hetero.core.errors import ConfigError

FOLDER: Final = Path(__file__).with_name("results")
BUDGET: Final = "budget"
LARGEST_SHARE: Final = 0.8
"""Of any kind: what is fuller than this rarely routes at the clock that was asked for."""
OTHER_YOSYS: Final = 0.15
"""How far the sums of two versions of yosys may be apart."""

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ModuleResult:
    """A module without its submodules, and how often it stands in the card."""

    name: str
    parameters: dict[str, int]
    instances: int
    each: Resources

    @property
    def all_instances(self) -> Resources:
        """Resources of all its instances together."""
        return self.each * self.instances


def total(modules: Iterable[ModuleResult]) -> Resources:
    """Sum over all instances."""
    return sum((module.all_instances for module in modules), Resources())


@dataclass(frozen=True, slots=True, kw_only=True)
class CardResult:
    """What yosys counted for one card. ``sources``: hash of the RTL without its comments.

    ``uncounted``: modules that are missing, so that every sum is a lower bound.
    """

    card: str
    yosys: str
    script: str
    sources: str
    clock_hz: int
    parameters: dict[str, int]
    modules: tuple[ModuleResult, ...]
    uncounted: tuple[str, ...] = ()

    @property
    def resources(self) -> Resources:
        """Sum over all instances."""
        return total(self.modules)

    @property
    def device_fraction(self) -> dict[str, float]:
        """Share of the whole device, by kind."""
        return load_device(self.card).fraction(self.resources)

    def fits(self) -> bool:
        """Whether the device has as much of everything, by this count, as far as it goes."""
        return max(self.device_fraction.values()) <= 1

    def is_current(self) -> bool:
        """Whether the RTL is still what was synthesised."""
        return self.sources == source_hash()

    def summary(self) -> dict[str, Any]:
        """For JSON reports."""
        used = self.resources
        parts = f"; at least: {len(self.uncounted)} modules not counted" if self.uncounted else ""
        return {
            "source": f"counted by {self.yosys}; not placed, not routed{parts}",
            "device": load_device(self.card).device,
            "lut": used.lut,
            "ff": used.ff,
            "dsp": used.dsp,
            "bram": used.bram36,
            "uram": used.uram,
            "device_fraction": {
                "bram" if kind == "bram36" else kind: round(share, 4)
                for kind, share in self.device_fraction.items()
            },
            "fits": self.fits(),
            "is_current": self.is_current(),
        }

    def to_json(self) -> str:
        """The file's text."""
        document = dataclasses.asdict(self)
        document["total"] = dataclasses.asdict(self.resources)
        document["modules"] = "MODULES"
        lines = ",\n    ".join(json.dumps(dataclasses.asdict(module)) for module in self.modules)
        text = json.dumps(document, indent=2)
        return text.replace('"MODULES"', f"[\n    {lines}\n  ]") + "\n"


def parse(text: str) -> CardResult:
    """The inverse of ``CardResult.to_json``."""
    document = json.loads(text)
    del document["total"]
    modules = tuple(
        ModuleResult(**{**module, "each": Resources(**module["each"])})
        for module in document.pop("modules")
    )
    uncounted = tuple(document.pop("uncounted"))
    return CardResult(modules=modules, uncounted=uncounted, **document)


def load(card: str) -> CardResult:
    """Committed result of a card. ConfigError where there is none."""
    if card not in result_names():
        raise ConfigError(
            f"resources of {card}: never counted. There are {', '.join(result_names())}; "
            f"`python -m fpga.synth.report {card}` counts."
        )
    return parse((FOLDER / f"{card}.json").read_text(encoding="utf-8"))


def result_names() -> list[str]:
    """Cards that have a committed result."""
    return sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != BUDGET)


def store(result: CardResult) -> Path:
    """Writes a card's result; returns its place."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{result.card}.json"
    path.write_text(result.to_json(), encoding="utf-8")
    return path


def without_comments(text: str) -> str:
    """RTL as synthesis sees it."""
    return _COMMENT.sub("", text)


def source_hash() -> str:
    """16 hex digits over all RTL and what it includes, without comments."""
    digest = hashlib.sha256()
    for path in sources():
        text = without_comments(path.read_text(encoding="utf-8"))
        digest.update(f"{path.name}\0{text}\0".encode())
    return digest.hexdigest()[:16]


def compare(committed: CardResult, found: CardResult) -> list[str]:
    """What changed, a line each. Another yosys than the committed one's maps otherwise: then only
    the sums are compared, and may be ``OTHER_YOSYS`` apart."""
    if found.yosys == committed.yosys:
        return [
            *_changes("sum", committed.resources, found.resources),
            *_by_module(committed, found),
        ]
    lines = _changes("sum", committed.resources, found.resources, tolerance=OTHER_YOSYS)
    return [f"{line} ({found.yosys}, committed with {committed.yosys})" for line in lines]


def _by_module(committed: CardResult, found: CardResult) -> list[str]:
    before = {_title(module): module for module in committed.modules}
    after = {_title(module): module for module in found.modules}
    lines = [f"{title}: gone" for title in sorted(before.keys() - after.keys())]
    lines += [f"{title}: new" for title in sorted(after.keys() - before.keys())]
    for title in sorted(before.keys() & after.keys()):
        was, now = before[title], after[title]
        if was.instances != now.instances:
            lines.append(f"{title}: {was.instances} -> {now.instances} instances")
        lines += _changes(title, was.each, now.each)
    return lines


def _title(module: ModuleResult) -> str:
    return f"{module.name}{json.dumps(module.parameters, sort_keys=True)}"


def _changes(what: str, old: Resources, new: Resources, tolerance: float = 0.0) -> list[str]:
    was, now = dataclasses.asdict(old), dataclasses.asdict(new)
    return [
        f"{what}: {kind} {was[kind]} -> {now[kind]}"
        for kind in was
        if abs(now[kind] - was[kind]) > tolerance * was[kind]
    ]
