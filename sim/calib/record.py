"""What was measured on the RTL, and the errors of the model: measured.json, errors.json.

With the measurements kept, a test can hold the model to them on a host without Verilator. Both say
for which RTL they hold; ``rtl_sha256`` says what the RTL is now.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sim.calib.measure import Measured
from sim.calib.profile import ENGINE_FILE, FOLDER, Constants, engine_entries
from sim.rtl.build import card_source, include_files
from sim.rtl.parameters import RtlBuild

MEASURED_FILE: Final = FOLDER / "measured.json"
ERRORS_FILE: Final = FOLDER / "errors.json"
HASH_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Measurements of one RTL; keys are names of cases."""

    rtl_sha256: str
    measured: Mapping[str, Sequence[Measured]]


def rtl_sha256() -> str:
    """Of the accelerator's sources, whatever its parameters; comments and spacing are no matter."""
    digest = hashlib.sha256()
    for path in [*card_source(RtlBuild()).files, *include_files()]:
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        digest.update(f"{path.name} {' '.join(text.split())}\n".encode())
    return digest.hexdigest()


def load_record(path: Path = MEASURED_FILE) -> Record:
    """The committed one."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Record(
        rtl_sha256=document["rtl_sha256"],
        measured={
            name: [
                Measured(
                    cycles=start[0],
                    at_cycle=start[1],
                    drafted=_tuples(start[2]),
                    passes=_tuples(start[3:]),
                )
                for start in case
            ]
            for name, case in document["cases"].items()
        },
    )


def _tuples(rows: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in rows)


def save_record(record: Record, path: Path = MEASURED_FILE) -> None:
    """A line a start, so that a change shows what changed: its cycles, when it began, each
    lane's tokens, then the cycles of each pass's instructions."""
    cases = []
    for name, starts in record.measured.items():
        lines = [
            json.dumps([m.cycles, m.at_cycle, m.drafted, *m.passes], separators=(",", ":"))
            for m in starts
        ]
        cases.append(f'"{name}": [\n' + ",\n".join(lines) + "]")
    head = f'{{"rtl_sha256": "{record.rtl_sha256}",\n"cases": {{\n'
    path.write_text(head + ",\n".join(cases) + "}}\n", encoding="utf-8")


def save_errors(document: Mapping[str, Any], path: Path = ERRORS_FILE) -> None:
    """The summary, without this host's own speed."""
    kept = {name: value for name, value in document.items() if name != "speed"}
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def save_constants(constants: Constants, sha256: str, path: Path = FOLDER / ENGINE_FILE) -> None:
    """The same entries with new values, fitted to the RTL of this hash."""
    comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "#"]
    lines = []
    for name, entry in engine_entries(path).items():
        meaning = entry["source"].partition(": ")[2]
        source = f"fitted to the RTL {sha256[:HASH_DIGITS]}: {meaning}"
        lines.append(f'{name} = {{ value = {getattr(constants, name)}, source = "{source}" }}')
    path.write_text("\n".join([*comments, *lines]) + "\n", encoding="utf-8")
