"""Reads builds.toml and the defaults of the top module's parameters."""

import hashlib
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hetero.core.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER: Final = Path(__file__).parent
RTL: Final = FOLDER.parent / "rtl"
INCLUDES: Final = (RTL / "include", RTL / "generated", FOLDER.parent / "regmap")
TOP: Final = "draft_card"

_PARAMETER: Final = re.compile(r"parameter\s+int\s+(\w+)\s*=\s*([^,/\n]+?)\s*(?:,|//|\n)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardBuild:
    """One entry of builds.toml. ``parameters``: integer parameters of the top module; one that is
    not named has its default there, which follows from others.
    """

    card: str
    part: str
    flow: str
    memory: str
    bank_bytes: int
    clock_hz: int
    port_banks: tuple[int, ...]
    parameters: dict[str, int]
    platform: str = ""
    board: str = ""

    @property
    def build_hash(self) -> str:
        """32 hex digits over the RTL and the parameters: the same sources give the same hash."""
        digest = hashlib.sha256()
        for path in sources():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        digest.update(json.dumps(self.parameters, sort_keys=True).encode())
        return digest.hexdigest()[:32]


def sources() -> list[Path]:
    """All RTL and included files, sorted."""
    included = [path for folder in INCLUDES for path in folder.glob("*.svh")]
    return sorted([*RTL.glob("*.sv"), *included])


def parameter_defaults() -> dict[str, str]:
    """The integer parameters of the top module with their defaults as they stand there."""
    text = (RTL / f"{TOP}.sv").read_text(encoding="utf-8")
    return dict(_PARAMETER.findall(text[: text.index(") (")]))


def default_parameters() -> dict[str, int]:
    """Those defaults that are numbers; the others follow from other parameters."""
    return {name: int(text) for name, text in parameter_defaults().items() if text.isdigit()}


def card_builds() -> dict[str, dict[str, Any]]:
    """builds.toml as it is."""
    document: dict[str, dict[str, Any]] = tomllib.loads(
        (FOLDER / "builds.toml").read_text(encoding="utf-8")
    )
    return document


def load_build(card: str) -> CardBuild:
    """A card's build. ConfigError for an unknown card or parameter."""
    known = card_builds()
    if card not in known:
        raise ConfigError(f"card = {card}: use one of {', '.join(sorted(known))}.")
    entry = dict(known[card])
    defaults = default_parameters()
    given = {**entry.pop("parameters"), "CLOCK_HZ": entry["clock_hz"]}
    unknown = sorted(set(given) - set(parameter_defaults()))
    if unknown:
        raise ConfigError(
            f"builds.toml: {card}: {', '.join(unknown)}: {TOP}.sv has no such parameter."
        )
    banks = tuple(entry.pop("port_banks"))
    if len(banks) != given.get("PORTS", defaults["PORTS"]):
        raise ConfigError(f"builds.toml: {card}: port_banks names {len(banks)} of PORTS ports.")
    return CardBuild(card=card, port_banks=banks, parameters={**defaults, **given}, **entry)
