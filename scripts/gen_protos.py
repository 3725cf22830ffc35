"""Generates hetero/rpc/** from proto/**: ``python scripts/gen_protos.py [--check]``.

Uses the oldest toolchain that hetero supports (grpcio-tools 1.64.0, mypy-protobuf 3.6.0, both
pinned in constraints.txt): code from a newer protoc refuses to load in an older runtime. With
``--check`` nothing is written; exit 1 names the files that are stale.
"""

import argparse
import os
import sys
import tempfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROTO_ROOT = ROOT / "proto"
TOOLS = {"grpcio-tools": "1.64.0", "mypy-protobuf": "3.6.0"}


def main() -> int:
    """Write the generated tree, or compare it with what is checked in."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 if stale")
    check = parser.parse_args().check
    if problem := _wrong_tools():
        sys.stderr.write(problem)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        fresh = _generate(Path(folder))
    stale = sorted(name for name, text in fresh.items() if _current(name) != text)
    stale += sorted(_orphans(set(fresh)))
    if check:
        sys.stderr.writelines(f"{name} is stale: run make protos\n" for name in stale)
        return 1 if stale else 0
    for name in stale:
        _write(name, fresh.get(name))
    return 0


def _wrong_tools() -> str:
    for name, version in TOOLS.items():
        found = metadata.version(name)
        if found != version:
            return f"{name} is {found}; generated code needs exactly {version}: make setup\n"
    return ""


def _generate(out: Path) -> dict[str, bytes]:
    """Path below the repository's root -> contents, package markers included."""
    from grpc_tools import protoc

    # protoc finds the mypy plug-ins on PATH; they lie beside the interpreter.
    bin_folder = os.path.dirname(sys.executable)
    os.environ["PATH"] = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    sources = sorted(str(p.relative_to(PROTO_ROOT)) for p in PROTO_ROOT.rglob("*.proto"))
    builtin = Path(protoc.__file__).parent / "_proto"
    kinds = ("python", "grpc_python", "mypy", "mypy_grpc")
    flags = [f"--{kind}_out={'quiet:' if 'mypy' in kind else ''}{out}" for kind in kinds]
    if protoc.main(["protoc", f"-I{PROTO_ROOT}", f"-I{builtin}", *flags, *sources]):
        sys.exit("protoc failed")
    fresh = {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*.py*") if p.is_file()}
    for source in sources:
        for folder in Path(source).parents[:-3]:
            fresh[str(folder / "__init__.py")] = b""
    return fresh


def _current(name: str) -> bytes | None:
    path = ROOT / name
    return path.read_bytes() if path.exists() else None


def _orphans(fresh: set[str]) -> set[str]:
    """Generated files whose .proto is gone."""
    found = (ROOT / "hetero" / "rpc").rglob("*_pb2*.py*")
    return {str(p.relative_to(ROOT)) for p in found if p.suffix in (".py", ".pyi")} - fresh


def _write(name: str, text: bytes | None) -> None:
    path = ROOT / name
    if text is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


if __name__ == "__main__":
    sys.exit(main())
