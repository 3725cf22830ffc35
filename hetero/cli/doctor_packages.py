"""Which packages are installed, in which versions, and whose our package names really are."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from importlib import metadata
from pathlib import Path

from hetero.cli.doctor_check import Check

OWN_PACKAGES = ("hetero", "fpga", "gpu_verifier", "sim", "deploy")
IMPORT_TIMEOUT_S = 120
EXTRAS = {
    "gpu": "the verifier",
    "card": "a draft server",
    "models": "hetero models pull",
    "serve": "hetero serve",
}
MODULES = {
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health.v1.health",
    "grpcio-reflection": "grpc_reflection.v1alpha.reflection",
    "prometheus-client": "prometheus_client",
    "protobuf": "google.protobuf",
}
"""Distributions whose module has another name."""


def try_import(module: str, code: str | None = None) -> str | None:
    """Import in a child process; None if it worked, else the reason in one line."""
    command = [sys.executable, "-W", "ignore", "-c", code or f"import {module}"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"took longer than {IMPORT_TIMEOUT_S} s"
    if run.returncode == 0:
        return None
    lines = run.stderr.strip().splitlines()
    return lines[-1] if lines else f"ended with exit code {run.returncode}"


# ---- other people's packages ------------------------------------------------------------------


def check_packages(pool: Executor) -> list[Check]:
    """Each requirement of hetero: installed, importable, in the tested range."""
    return list(pool.map(_check_requirement, *zip(*_requirements(), strict=True)))


def _requirements(distribution: str = "hetero") -> Iterator[tuple[str, str, frozenset[str]]]:
    """(name, version range, extras that want it) of each, from our own metadata."""
    extras_of: dict[tuple[str, str], set[str]] = {}
    for line in metadata.requires(distribution) or ():
        requirement, _, marker = line.partition(";")
        name, version_range = re.match(r"\s*([\w.-]+)\s*(.*)", requirement).groups()  # type: ignore[union-attr]
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        if "python_version" not in marker and (extra is None or extra[1] in EXTRAS):
            key = (name, version_range.strip())
            extras_of.setdefault(key, set()).update({extra[1]} if extra else ())
    return ((name, wanted, frozenset(extras)) for (name, wanted), extras in extras_of.items())


def _check_requirement(name: str, version_range: str, extras: frozenset[str]) -> Check:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return _absent(name, extras)
    error = try_import(MODULES.get(name, name))
    fix = f"pip install '{name}{version_range}'"
    if error is not None:
        return Check(name, "fail", f"{version} is installed but does not load: {error}", fix)
    if not in_range(version, version_range):
        return Check(name, "warn", f"{version}: tested with {version_range}", fix)
    return Check(name, "ok", f"{version} (tested with {version_range})")


def _absent(name: str, extras: frozenset[str]) -> Check:
    if not extras:
        return Check(name, "fail", "not installed", "Install hetero again: make setup.")
    wanted_by = " and ".join(EXTRAS[extra] for extra in sorted(extras))
    fix = f"pip install 'hetero[{sorted(extras)[0]}]' if this host is to run it"
    return Check(name, "warn", f"not installed; needed for {wanted_by}", fix)


def in_range(version: str, version_range: str) -> bool:
    """Whether ``1.2.3`` fits ``>=1.2,<2``. Pre- and local parts of a version don't count."""
    return all(_fits(_numbers(version), clause) for clause in version_range.split(",") if clause)


def _fits(version: tuple[int, ...], clause: str) -> bool:
    operator, bound_text = re.match(r"\s*([<>=!~]+)\s*(.+)", clause).groups()  # type: ignore[union-attr]
    bound = _numbers(bound_text)
    length = max(len(version), len(bound))
    ours, theirs = (v + (0,) * (length - len(v)) for v in (version, bound))
    return {
        ">=": ours >= theirs,
        "<": ours < theirs,
        "==": ours == theirs,
        "<=": ours <= theirs,
        ">": ours > theirs,
        "!=": ours != theirs,
    }[operator]


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\d+(\.\d+)*", version.strip())
    return tuple(map(int, release[0].split("."))) if release else ()


# ---- our own packages -------------------------------------------------------------------------


def check_own_packages(names: Iterable[str] = OWN_PACKAGES) -> Iterator[Check]:
    """Each of our top-level packages really is ours; the names are common."""
    home = Path(__file__).resolve().parents[2]
    for name in names:
        found = _found_at(name)
        if found == home / name:
            yield Check(f"package {name}", "ok", str(found))
            continue
        where = f"{found}, not {home / name}" if found else f"nothing, not {home / name}"
        culprits = ", ".join(metadata.packages_distributions().get(name, ())) or "unknown"
        yield Check(
            f"package {name}",
            "fail",
            f"import {name} finds {where} (owner: {culprits})",
            "Uninstall that distribution, or give hetero an environment of its own.",
        )


def _found_at(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    if not folders:
        return Path(spec.origin).resolve() if spec.origin else None
    return Path(folders[0]).resolve()
