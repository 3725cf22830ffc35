"""What a build takes of a device, as far as yosys can count it.

python -m fpga.vivado.resources CARD          synthesise, print
python -m fpga.vivado.resources CARD --write  and keep it in resources.json

Hierarchical: each module with its parameters is synthesised once and counted as often as it stands
in the design, so that 16 ports cost no more than one. yosys maps to the primitives of UltraScale+
(synth_xilinx -family xcup); it neither places nor routes, so it can't tell the clock, and its
numbers are not Vivado's.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fpga.vivado.builds import FOLDER, INCLUDES, RTL, TOP, CardBuild, load_build
from hetero.core.errors import ConfigError

FIGURES: Final = FOLDER / "resources.json"
KINDS: Final = ("lut", "ff", "dsp", "bram", "uram")

CELLS: Final[Mapping[str, tuple[str, float]]] = {
    **{f"LUT{n}": ("lut", 1.0) for n in range(1, 7)},
    **{f"{name}": ("ff", 1.0) for name in ("FDRE", "FDSE", "FDCE", "FDPE", "FDRE_1")},
    "DSP48E2": ("dsp", 1.0),
    "RAMB18E2": ("bram", 0.5),
    "RAMB36E2": ("bram", 1.0),
    "URAM288": ("uram", 1.0),
    # LUTs that hold data: how many a primitive takes (UG974, its description).
    "RAM32X1D": ("lut", 2.0),
    "RAM64X1D": ("lut", 2.0),
    "RAM128X1D": ("lut", 4.0),
    "RAM256X1D": ("lut", 8.0),
    "RAM32M": ("lut", 4.0),
    "RAM64M": ("lut", 4.0),
    "RAM32M16": ("lut", 8.0),
    "RAM64M8": ("lut", 8.0),
    "SRL16E": ("lut", 1.0),
    "SRLC32E": ("lut", 1.0),
}
"""Primitive -> what it takes, and how much. MUXF7..9 and CARRY come with their LUTs."""

WITH_LUTS: Final = frozenset({"CARRY4", "CARRY8", "MUXF7", "MUXF8", "MUXF9", "INV", "BUFG"})

DEVICES: Final[Mapping[str, Mapping[str, int]]] = {
    "kv260": {"lut": 117_120, "ff": 234_240, "dsp": 1_248, "bram": 144, "uram": 64},
    "zcu104": {"lut": 230_400, "ff": 460_800, "dsp": 1_728, "bram": 312, "uram": 96},
    "u50": {"lut": 871_680, "ff": 1_743_360, "dsp": 5_952, "bram": 1_344, "uram": 640},
    "u55c": {"lut": 1_303_680, "ff": 2_607_360, "dsp": 9_024, "bram": 2_016, "uram": 960},
    "u280": {"lut": 1_303_680, "ff": 2_607_360, "dsp": 9_024, "bram": 2_016, "uram": 960},
    "u250": {"lut": 1_728_000, "ff": 3_456_000, "dsp": 12_288, "bram": 2_688, "uram": 1_280},
}
"""Whole devices, shell included: DS987 (K26), DS891 (ZU7EV), DS965, DS978, DS963, DS962."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Of one build. ``modules``: what one instance takes by itself, without those below it."""

    card: str
    sources_sha256: str
    total: Mapping[str, float]
    modules: Mapping[str, Mapping[str, float]]
    instances: Mapping[str, int]

    def fraction(self) -> dict[str, float]:
        """Of the whole device."""
        return {kind: self.total[kind] / size for kind, size in DEVICES[self.card].items()}


def synthesise(card: str) -> Resources:
    """Run yosys; minutes. ConfigError for an unknown card, without yosys, or when it fails."""
    build = load_build(card)
    with tempfile.TemporaryDirectory(prefix="hetero-yosys-") as folder:
        report = Path(folder) / "stat.json"
        command = ["yosys", "-q", "-Q", "-T", "-p", yosys_script(build, report)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise ConfigError("yosys: not installed. Run scripts/install_debian.sh.") from error
        if done.returncode:
            tail = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise ConfigError(f"yosys on {card}: {' '.join(tail)}")
        return count(card, json.loads(report.read_text(encoding="utf-8"))["modules"])


def yosys_script(build: CardBuild, report: Path) -> str:
    """Read all modules, set the top's parameters, map, count."""
    includes = " ".join(f"-I{folder}" for folder in INCLUDES)
    files = " ".join(str(path) for path in sorted(RTL.glob("*.sv")))
    values = {k: v for k, v in build.parameters.items() if k != "CLOCK_HZ"}
    parameters = " ".join(f"-set {name} {value}" for name, value in values.items())
    return "; ".join(
        [
            f"read_verilog -sv -DSYNTHESIS {includes} {files}",
            f"chparam {parameters} {TOP}",
            f"synth_xilinx -family xcup -noiopad -noclkbuf -top {TOP}",
            f"tee -q -o {report} stat -json",
        ]
    )


def count(card: str, modules: Mapping[str, Mapping[str, Any]]) -> Resources:
    """Sum over the hierarchy. ConfigError for a primitive that nobody has priced."""
    cells = {
        _plain(name): {_plain(cell): n for cell, n in stat["num_cells_by_type"].items()}
        for name, stat in modules.items()
    }
    instances = _instances(
        {name: {_plain(k): v for k, v in c.items()} for name, c in cells.items()}
    )
    own = {name: _own(c, cells) for name, c in cells.items()}
    total = {kind: sum(own[n][kind] * times for n, times in instances.items()) for kind in KINDS}
    return Resources(
        card=card,
        sources_sha256=sources_sha256(),
        total=total,
        modules=own,
        instances=instances,
    )


def sources_sha256() -> str:
    """Of what was synthesised, so that stale figures show."""
    digest = hashlib.sha256()
    for path in sorted(RTL.glob("*.sv")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _plain(name: str) -> str:
    return name.removeprefix("\\")


def _instances(cells: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Module -> how often it stands in the design."""
    (top,) = (name for name in cells if name == TOP or name.split("\\")[-1] == TOP)
    found: Counter[str] = Counter()
    waiting = [(top, 1)]
    while waiting:
        name, times = waiting.pop()
        found[name] += times
        waiting += [(k, times * n) for k, n in cells[name].items() if k in cells]
    return dict(found)


def _own(cells: Mapping[str, int], modules: Mapping[str, Any]) -> dict[str, float]:
    taken = dict.fromkeys(KINDS, 0.0)
    for name, number in cells.items():
        if name in modules or name in WITH_LUTS:
            continue
        if name not in CELLS:
            raise ConfigError(f"yosys used {name}: fpga/vivado/resources.py does not know it.")
        kind, size = CELLS[name]
        taken[kind] += size * number
    return taken


def load_figures() -> dict[str, Any]:
    """The committed figures by card; empty where there are none."""
    if not FIGURES.exists():
        return {}
    document: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return document


def main(arguments: list[str] | None = None) -> int:
    """Synthesise one card's build and print what it takes."""
    parser = argparse.ArgumentParser(prog="python -m fpga.vivado.resources")
    parser.add_argument("card", choices=sorted(DEVICES))
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {FIGURES.name}")
    options = parser.parse_args(arguments)
    found = synthesise(options.card)
    for kind, share in found.fraction().items():
        sys.stdout.write(f"{kind:6}{found.total[kind]:12,.0f}  {share:7.1%}\n")
    if options.write:
        build = load_build(options.card)
        entry = {
            "tool": "yosys synth_xilinx -family xcup, hierarchical; not placed, not routed",
            "parameters": build.parameters,
            "sources_sha256": found.sources_sha256,
            "total": found.total,
            "device_fraction": found.fraction(),
        }
        figures = {**load_figures(), options.card: entry}
        text = json.dumps(figures, indent=1, sort_keys=True) + "\n"
        FIGURES.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
