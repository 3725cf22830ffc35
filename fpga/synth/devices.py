"""What the device of each card holds, from devices.toml."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fpga.synth.cells import Resources
from hetero.core.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE: Final = Path(__file__).with_name("devices.toml")
KINDS: Final = ("lut", "ff", "dsp", "bram36", "uram")
"""What is compared with a device, in the order of all tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Totals of a device, before the vendor's platform takes its part, and where they stand."""

    device: str
    lut: int
    ff: int
    dsp: int
    bram36: int
    uram: int
    source: str

    def fraction(self, used: Resources) -> dict[str, float]:
        """Share of the device that ``used`` takes, by kind."""
        return {kind: getattr(used, kind) / getattr(self, kind) for kind in KINDS}


def device_names() -> list[str]:
    """Cards whose device is known."""
    return sorted(_document())


def load_device(card: str) -> Device:
    """The device of a card. ConfigError for an unknown card."""
    known = _document()
    if card not in known:
        raise ConfigError(f"card = {card}: use one of {', '.join(sorted(known))}.")
    return Device(**known[card])


def _document() -> dict[str, dict[str, Any]]:
    document: dict[str, dict[str, Any]] = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return document
