"""Synthesises each unique module once and sums over the instance tree."""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from fpga.synth.cells import count_cells
from fpga.synth.hierarchy import WRAPPER, Module, elaborate, instances, run_yosys, yosys_version
from fpga.synth.results import CardResult, ModuleResult, source_hash, without_comments
from fpga.vivado.builds import INCLUDES, RTL, CardBuild

# -noclkbuf, -noiopad: a module is not a chip. -nowidelut: else abc makes functions of nine inputs
# that count as eight LUTs and the multiplexers between them, also where three would do.
SYNTHESIS: Final = "synth_xilinx -family xcup -uram -nowidelut -noiopad -noclkbuf"
BATCH_CHARACTERS: Final = 600_000  # of RTLIL in one run
_SECTION: Final = re.compile(r"^=== (\S.*) ===$", re.MULTILINE)
_CELLS: Final = re.compile(r"^     (\S+) +(\d+)$", re.MULTILINE)
_INCLUDE: Final = re.compile(r'^\s*`include\s+"([^"]+)"', re.MULTILINE)


def synthesise_card(
    build: CardBuild, *, progress: Callable[[str], None] = lambda _line: None
) -> CardResult:
    """What a card's build takes. Takes nothing from a cache: see ``synthesise``."""
    with tempfile.TemporaryDirectory(prefix="hetero-synth-") as folder:
        modules = synthesise(build.parameters, Path(folder), progress=progress)
    return CardResult(
        card=build.card,
        yosys=yosys_version(),
        script=SYNTHESIS,
        sources=source_hash(),
        clock_hz=build.clock_hz,
        parameters=build.parameters,
        modules=tuple(modules),
    )


def synthesise(
    parameters: Mapping[str, int],
    cache: Path,
    *,
    jobs: int = os.cpu_count() or 1,
    progress: Callable[[str], None] = lambda _line: None,
) -> list[ModuleResult]:
    """Resources of all modules of a card, the largest part of the sum first.

    ``cache``: folder of results by hash of a module's source, parameters and the script. A count
    can differ by a few LUTs with what else was in its run, so it is exact only from an empty cache.
    """
    version = yosys_version()
    with tempfile.TemporaryDirectory(prefix="hetero-synth-") as folder:
        modules = elaborate(parameters, Path(folder))
        counts = instances(modules)
        counts.pop(f"\\{WRAPPER}")
        places = {key: cache / f"{_digest(modules, key, version)}.json" for key in counts}
        missing = [key for key in counts if not places[key].exists()]
        progress(f"{len(counts)} modules, {len(missing)} to synthesise")

        def run(batch: list[str]) -> None:
            for key, cells in _synthesise_batch(modules, batch, Path(folder)).items():
                _store(places[key], cells)
                progress(f"{modules[key].title}: {count_cells(cells)}")

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(run, _batches(modules, missing)))
    results = [
        ModuleResult(
            modules[key].name, modules[key].parameters, times, count_cells(_load(places[key]))
        )
        for key, times in counts.items()
    ]
    return sorted(results, key=_largest_first)


def _largest_first(result: ModuleResult) -> tuple[int, str, str]:
    used = result.all_instances
    return -(used.lut + used.ff), result.name, json.dumps(result.parameters)


def _batches(modules: Mapping[str, Module], keys: list[str]) -> list[list[str]]:
    """Modules for one run each: reading the library of cells takes seconds. The longest first."""
    batches: list[list[str]] = []
    size = BATCH_CHARACTERS
    for key in sorted(keys, key=lambda key: -len(modules[key].body)):
        if size >= BATCH_CHARACTERS:
            batches.append([])
            size = 0
        batches[-1].append(key)
        size += len(modules[key].body)
    return batches


def _synthesise_batch(
    modules: Mapping[str, Module], batch: list[str], folder: Path
) -> dict[str, dict[str, int]]:
    """Cells of each module of a batch, whose other submodules are black boxes."""
    name = hashlib.sha256("".join(batch).encode()).hexdigest()[:16]
    source, statistics = folder / f"{name}.il", folder / f"{name}.txt"
    stubs = {child for key in batch for child in modules[key].children} - set(batch)
    parts = [modules[child].stub() for child in sorted(stubs)]
    parts += [f"module {key}\n{modules[key].body}end\n" for key in batch]
    # Nothing is wired to them: without \keep they would be removed.
    cells = "".join(
        f"  attribute \\keep 1\n  cell {key} \\u{i}\n  end\n" for i, key in enumerate(batch)
    )
    source.write_text(f"autoidx 1000000\n{''.join(parts)}module \\batch\n{cells}end\n")
    run_yosys(
        f"read_rtlil {source}\nsetattr -mod -set keep_hierarchy 1\n"
        f"{SYNTHESIS} -top batch\ntee -q -o {statistics} stat\n"
    )
    found = parse_statistics(statistics.read_text(encoding="utf-8"))
    return {key: _own_cells(found[key.removeprefix("\\")], modules) for key in batch}


def parse_statistics(text: str) -> dict[str, dict[str, int]]:
    """Cells of each module by type, from yosys's ``stat``, whose JSON (0.23) lacks commas at times.

    A name's backslash is not shown there.
    """
    _, *parts = _SECTION.split(text)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    return {
        name: {cell: int(n) for cell, n in _CELLS.findall(body)} for name, body in sections.items()
    }


def _own_cells(cells: Mapping[str, int], modules: Mapping[str, Module]) -> dict[str, int]:
    return {
        cell: n for cell, n in cells.items() if cell not in modules and f"\\{cell}" not in modules
    }


def _digest(modules: Mapping[str, Module], key: str, version: str) -> str:
    """Changes with whatever the module's netlist depends on."""
    module = modules[key]
    ports = [modules[child].stub() for child in sorted(module.children)]
    parts = [version, SYNTHESIS, json.dumps(module.parameters, sort_keys=True), *ports]
    digest = hashlib.sha256("\0".join(parts).encode())
    for text in _texts(module.name):
        digest.update(without_comments(text).encode())
    return digest.hexdigest()


def _texts(name: str) -> list[str]:
    """Source of a module and of what it includes."""
    holder = RTL / f"{name}.sv"
    if not holder.exists():  # a file with a second module
        holder = next(p for p in sorted(RTL.glob("*.sv")) if f"module {name}" in p.read_text())
    texts = [holder.read_text(encoding="utf-8")]
    waiting = _INCLUDE.findall(texts[0])
    while waiting:
        file = waiting.pop(0)
        path = next(folder / file for folder in INCLUDES if (folder / file).exists())
        texts.append(path.read_text(encoding="utf-8"))
        waiting += _INCLUDE.findall(texts[-1])
    return texts


def _load(place: Path) -> dict[str, int]:
    cells: dict[str, int] = json.loads(place.read_text(encoding="utf-8"))
    return cells


def _store(place: Path, cells: Mapping[str, int]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_suffix(".part")
    part.write_text(json.dumps(cells, sort_keys=True), encoding="utf-8")
    part.replace(place)
