"""Turns fpga/rtl and the C++ around it into a shared library, once, and keeps it."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from uuid import uuid4

from hetero.core.errors import CardError, ConfigError
from sim.rtl.parameters import RtlBuild

RTL: Final = Path(__file__).parents[2] / "fpga" / "rtl"
INCLUDES: Final = (RTL / "include", RTL / "generated", RTL.parent / "regmap")
HARNESS: Final = Path(__file__).parent
TOP: Final = "draft_card"
LIBRARY: Final = "card.so"
CHECKS: Final = ("HETERO_ASSERT", "HETERO_COVER")
COVERAGE: Final = HARNESS / "coverage.vlt"
OBJECTS: Final = ("card.o", "verilated.o", "verilated_threads.o")
DEBUG_OBJECTS: Final = ("verilated_vpi.o", "verilated_vcd_c.o")
LOG_LINES: Final = 30
FIX: Final = "Run `make setup`, or: sudo apt-get install verilator g++ make perl."

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What to build: ``files`` that hold ``top``, its ``parameters`` and macros.

    ``debug``: signals can be looked at by name, and waveforms written; far slower.
    """

    files: tuple[Path, ...]
    top: str
    parameters: Mapping[str, int | str]
    defines: tuple[str, ...] = ()
    debug: bool = False

    @property
    def has_checks(self) -> bool:
        """Whether assertions and coverage counters are in it."""
        return set(CHECKS) <= set(self.defines)

    def with_parameters(self, **values: int | str) -> "Source":
        """The same with more parameters."""
        return replace(self, parameters={**self.parameters, **values})

    def sha256(self) -> str:
        """Of all that decides what it computes."""
        digest = hashlib.sha256()
        texts = [
            self.top,
            str(self.debug),
            *self.defines,
            *(f"{k}={v}" for k, v in self.parameters.items()),
        ]
        contents = [path.read_bytes() for path in [*self.files, *include_files()]]
        for content in [*(text.encode() for text in texts), *contents]:
            digest.update(len(content).to_bytes(8, "little") + content)
        return digest.hexdigest()


def card_source(build: RtlBuild) -> Source:
    """The whole accelerator with these parameters."""
    return Source(
        files=tuple(module_files(TOP)),
        top=TOP,
        parameters=build.verilog(),
        defines=CHECKS if build.checks else (),
        debug=build.debug,
    )


def include_files() -> list[Path]:
    """Everything that a source can include."""
    return [path for folder in INCLUDES for path in sorted(folder.glob("*.svh"))]


def module_files(top: str) -> list[Path]:
    """``top`` and every module of fpga/rtl below it."""
    known = {path.stem: path for path in RTL.glob("*.sv")}
    found: set[str] = set()
    open_names = [top]
    while open_names:
        name = open_names.pop()
        found.add(name)
        text = re.sub(r"//[^\n]*", "", known[name].read_text(encoding="utf-8"))
        words = set(re.findall(r"\w+", text))
        open_names += [word for word in words if word in known and word not in found]
    return sorted(known[name] for name in found)


def build_library(source: Source, cache_dir: Path, progress: Progress) -> Path:
    """Path of the library, built now if it is not in the cache. Takes its time: blocks.

    Kept under the hash of sources, parameters, harness and tools. Two processes that want the
    same one build it once. ConfigError when tools are missing or the cache can't be written,
    CardError when the RTL does not build.
    """
    folder = cache_dir / "rtl"
    path = folder / _key(source) / LIBRARY
    if path.exists():
        return path
    with _locked(folder, path.parent.name):
        if not path.exists():
            progress(f"building the RTL card with Verilator (once; kept in {folder})")
            _build(source, path)
    return path


def _build(source: Source, path: Path) -> None:
    fresh = path.parent.with_name(f"{path.parent.name}.{uuid4()}")
    fresh.mkdir()
    try:
        for command in _commands(source, fresh):
            done = subprocess.run(command, cwd=fresh, capture_output=True, text=True)
            if done.returncode:
                tail = "\n".join((done.stdout + done.stderr).splitlines()[-LOG_LINES:])
                raise CardError(f"rtl card: {command[0]} failed:\n{tail}")
        for name in os.listdir(fresh):
            if name != LIBRARY:
                _remove(fresh / name)
        fresh.rename(path.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _commands(source: Source, folder: Path) -> Iterator[list[str]]:
    """Verilog to C++, C++ to objects, objects to a library; paths relative to ``folder``."""
    yield [
        "verilator",
        *("--cc", "--prefix", "Vcard", "--top-module", source.top, "--Mdir", "."),
        *("-O3", "--x-assign", "fast", "--x-initial", "fast", "-Wno-fatal"),
        "--assert" if source.has_checks else "--noassert",
        *(("--vpi", "--public-flat-rw", "--trace") if source.debug else ()),
        *("--output-split", "20000", "--output-split-cfuncs", "5000"),
        *(f"-G{name}={value}" for name, value in source.parameters.items()),
        *(f"-D{define}=1" for define in source.defines),
        *(f"-I{include}" for include in INCLUDES),
        *((str(COVERAGE),) if source.has_checks else ()),
        *map(str, source.files),
    ]
    flags = " ".join(_compiler_flags(source))
    fast = "-O1" if source.debug else "-O3"
    objects = [*OBJECTS, *(DEBUG_OBJECTS if source.debug else ())]
    shutil.copy(HARNESS / "card.cpp", folder)
    yield [
        *("make", f"-j{os.cpu_count() or 1}", "-f", "Vcard.mk"),
        # OPT_SLOW: what runs once, half of the code; optimising it takes as long as all the rest.
        *(f"OPT_FAST={fast} {flags}", f"OPT_SLOW=-O0 {flags}", f"OPT_GLOBAL=-O2 {flags}"),
        *("Vcard__ALL.a", *objects),
    ]
    yield ["g++", "-shared", "-o", LIBRARY, *objects, "Vcard__ALL.a", "-pthread", "-latomic"]


def _compiler_flags(source: Source) -> Iterator[str]:
    yield from ("-std=c++17", "-fPIC", f"-I{HARNESS}")
    yield from ("-DVL_USER_STOP", "-DVL_USER_FATAL")
    for name in ("PORTS", "PORT_BYTES"):
        yield f"-D{name}={source.parameters[name]}"
    if source.has_checks:
        yield "-DCARD_CHECKS"
    if source.debug:
        yield "-DCARD_DEBUG"


def _key(source: Source) -> str:
    """Of the source, and of what it is built with."""
    harness = sorted([*HARNESS.glob("*.[hc]pp"), COVERAGE, Path(__file__)])
    digest = hashlib.sha256(source.sha256().encode())
    digest.update((_version("verilator") + _version("g++")).encode())
    for path in harness:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


def _version(tool: str) -> str:
    for needed in (tool, "make", "perl"):
        if shutil.which(needed) is None:
            raise ConfigError(f"card = 'rtl': {needed} is not installed. {FIX}")
    done = subprocess.run([tool, "--version"], capture_output=True, text=True)
    return done.stdout.partition("\n")[0]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def _locked(folder: Path, name: str) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / f".{name}.lock").open("w")
    except OSError as error:
        raise ConfigError(
            f"cache {folder}: {error.strerror}. Set HETERO_CACHE to a directory that can be "
            "written."
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
