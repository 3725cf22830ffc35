"""The elaborated design of a card: its unique modules with parameters, as yosys's RTLIL text."""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fpga.vivado.builds import INCLUDES, RTL, TOP
from hetero.core.errors import ConfigError

WRAPPER: Final = "card_top"
_MODULE: Final = re.compile(r"^module (\S+)\n(.*?)^end\n", re.MULTILINE | re.DOTALL)
_PARAMETER: Final = re.compile(r"^  parameter (?:signed )?\\(\w+) (\S+)$", re.MULTILINE)
_CELL: Final = re.compile(r"^  cell (\S+) \S+$", re.MULTILINE)
_PORT: Final = re.compile(
    r"^  wire (?:[a-z]+(?: -?\d+)? )*?(?:input|output|inout) \d+ .*$", re.MULTILINE
)


_SOURCE_ATTRIBUTE: Final = re.compile(r"^ *attribute \\src .*\n", re.MULTILINE)
_PLACE_IN_NAME: Final = re.compile(r"/[^\s$:]*\.svh?:\d+")
_NUMBER_IN_NAME: Final = re.compile(r"\$(\d+)(?=[\s_.\[]|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Module:
    """A module with its parameters fixed. ``body``: RTLIL between its first and last line."""

    key: str  # yosys's name of it
    name: str
    parameters: dict[str, int]
    body: str
    children: Counter[str]  # key of a module -> instances in this one

    @property
    def title(self) -> str:
        """Name and parameters, for people."""
        inside = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.name}({inside})" if inside else self.name

    def stub(self) -> str:
        """The module as a black box: its ports only."""
        ports = "\n".join(_PORT.findall(self.body))
        return f"attribute \\blackbox 1\nmodule {self.key}\n{ports}\nend\n"


def run_yosys(script: str) -> str:
    """Runs a script and returns its log. ConfigError without yosys, or with its last lines."""
    if shutil.which("yosys") is None:
        raise ConfigError("yosys is not on PATH: run scripts/install_debian.sh.")
    done = subprocess.run(
        ["yosys", "-s", "/dev/stdin"], input=script, capture_output=True, text=True
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise ConfigError(f"yosys ended with {done.returncode}: {last}")
    return done.stdout


def yosys_version() -> str:
    """Such as ``Yosys 0.23 (git sha1 7ce5011c24b)``."""
    return "Yosys " + run_yosys("").split("\n Yosys ", 1)[-1].splitlines()[0].strip()


def elaborate(parameters: Mapping[str, int], folder: Path) -> dict[str, Module]:
    """All modules under the top, by key; the wrapper around it is ``\\card_top``.

    The top is instantiated by a wrapper: yosys 0.23 fails on ``hierarchy -chparam`` of a top whose
    submodules it derives while it derives the top.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = ", ".join(f".{name}({value})" for name, value in parameters.items())
    wrapper = folder / f"{WRAPPER}.sv"
    wrapper.write_text(f"module {WRAPPER}; {TOP} #({settings}) u_card (); endmodule\n")
    output = folder / "card.il"
    includes = " ".join(f"-I{path}" for path in INCLUDES)
    files = " ".join(str(path) for path in sorted(RTL.glob("*.sv")))
    run_yosys(
        f"read_verilog -sv -defer -DSYNTHESIS {includes} {files} {wrapper}\n"
        f"hierarchy -check -top {WRAPPER}\nsetattr -unset src */*\nwrite_rtlil {output}\n"
    )
    return parse_modules(output.read_text(encoding="utf-8"))


def parse_modules(text: str) -> dict[str, Module]:
    """Modules of an RTLIL file."""
    bodies = {
        key: _without_places(body) for key, body in _MODULE.findall(_SOURCE_ATTRIBUTE.sub("", text))
    }
    modules = {}
    # key: \name, $paramod\name\X=.. or $paramod$<hash>\name
    for key, body in bodies.items():
        children = Counter(kind for kind in _CELL.findall(body) if kind in bodies)
        values = {name: _integer(value) for name, value in _PARAMETER.findall(body)}
        modules[key] = Module(key, key.split("\\")[1], values, body, children)
    return modules


def _without_places(body: str) -> str:
    """Generated names without file and line, numbered within the module.

    What synthesis makes of a module depends a little on the order of its names: so it stays the
    same when lines move, in another folder, and when another module changes.
    """
    numbers: dict[str, int] = {}

    def renumber(match: re.Match[str]) -> str:
        return f"${numbers.setdefault(match[1], len(numbers)):06d}"

    return _NUMBER_IN_NAME.sub(renumber, _PLACE_IN_NAME.sub("", body))


def _integer(value: str) -> int:
    """``16`` or ``128'0110``, whose x are taken as 0."""
    if "'" not in value:
        return int(value)
    return int(value.partition("'")[2].replace("x", "0") or "0", 2)


def instances(modules: Mapping[str, Module], top: str = f"\\{WRAPPER}") -> Counter[str]:
    """How often each module stands in the whole tree."""
    total: Counter[str] = Counter()

    def walk(key: str, times: int) -> None:
        total[key] += times
        for child, count in modules[key].children.items():
            walk(child, times * count)

    walk(top, 1)
    return total
