"""Runs cocotb benches on Icarus Verilog, against a module of fpga/rtl or one of the test's own.

    run_bench("beat_fifo", "bench_beat_fifo", parameters={"DEPTH": 16})
    expect_caught("beat_fifo", "bench_beat_fifo", bug="BUG_BEAT_FIFO_1")

A bench is a module of ``@cocotb.test()`` functions in tests/rtl. Builds are kept in the temporary
folder under the hash of what goes into them.
"""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4
from xml.etree import ElementTree

from cocotb_tools.runner import get_results, get_runner

ROOT = Path(__file__).parents[2]
RTL = ROOT / "fpga/rtl"
INCLUDES = (RTL / "include", RTL / "generated", ROOT / "fpga/regmap")
SHOWN_LINES = 60
CAUGHT_BY = {"AssertionError", "SimTimeoutError", "TimeoutError"}
"""How a bench says that the design is wrong; any other exception is the bench's own fault."""


class BenchFailure(AssertionError):
    """Tests of a bench failed, or an assertion of the design ended the simulation."""


class BenchBroken(RuntimeError):
    """The design does not build or the bench does not run: nothing was tested."""


def module_sources(module: str, extra: Sequence[Path] = ()) -> list[Path]:
    """``extra`` and the files of ``module`` and of all modules of fpga/rtl that they name."""
    known = {path.stem: path for path in RTL.glob("*.sv")}
    found = {path.stem: path for path in extra}
    open_names = [module, *found]
    while open_names:
        path = found.get(name := open_names.pop()) or known.get(name)
        if path is None:
            continue
        found[name] = path
        words = set(re.findall(r"\w+", _without_comments(path.read_text(encoding="utf-8"))))
        open_names += [word for word in words if word in known and word not in found]
    if module not in found:
        raise FileNotFoundError(f"{RTL / module}.sv: no such module, nor is it in extra")
    return sorted(found.values())


def include_files() -> list[Path]:
    """Everything that a source can include."""
    return sorted(path for folder in INCLUDES for path in folder.glob("*.svh"))


def run_bench(
    module: str,
    bench: str,
    *,
    parameters: Mapping[str, object] | None = None,
    defines: Sequence[str] = (),
    extra: Sequence[Path] = (),
    testcase: str | None = None,
    environment: Mapping[str, str] | None = None,
    seed: int = 1,
) -> None:
    """Build ``module`` and run a bench on it; BenchFailure with the log's end if a test fails.

    BenchBroken when it does not build or run. ``extra``: sources of the test's own, wrappers for
    instance. ``testcase``: only this one. Random numbers of the bench are seeded; a test that
    wants others passes another ``seed``.
    """
    build = _build(module, parameters or {}, tuple(defines), tuple(extra))
    with tempfile.TemporaryDirectory(prefix="hetero-bench-") as folder:
        log, results = Path(folder) / "bench.log", Path(folder) / "results.xml"
        # What happened is in the results file or, after a $fatal of the design, in the log.
        with contextlib.suppress(SystemExit, RuntimeError):
            get_runner("icarus").test(
                test_module=bench,
                hdl_toplevel=module,
                hdl_toplevel_lang="verilog",
                build_dir=build,
                test_dir=folder,
                results_xml=str(results),
                testcase=testcase,
                seed=seed,
                extra_env=dict(environment or {}),
                log_file=log,
            )
        _judge(results, _tail(log), f"{module} {dict(parameters or {})} {bench}")


def _judge(results: Path, log: str, what: str) -> None:
    """Raise unless there were tests and all passed."""
    if not results.exists():
        raise (BenchFailure if "FATAL" in log else BenchBroken)(f"{what} ended early\n{log}")
    ran, failed = get_results(results)
    if not ran:
        raise BenchBroken(f"{what}: no tests\n{log}")
    kinds = {x.get("type") for x in ElementTree.parse(results).iter("failure")}
    if kinds - CAUGHT_BY:
        raise BenchBroken(f"{what}: {', '.join(sorted(map(str, kinds - CAUGHT_BY)))}\n{log}")
    if failed:
        raise BenchFailure(f"{what}: {failed} of {ran} tests failed\n{log}")


def expect_caught(module: str, bench: str, *, bug: str, **options: object) -> None:
    """The bench must fail when the source is built with the planted bug ``bug``.

    A bug that is in no source, or that does not build, is caught by nobody: both fail the test.
    """
    extra: tuple[Path, ...] = tuple(options.get("extra", ()))  # type: ignore[arg-type]
    texts = [path.read_text(encoding="utf-8") for path in module_sources(module, extra)]
    assert any(re.search(rf"\b{bug}\b", text) for text in texts), f"{bug} is in no source"
    defines = (*options.pop("defines", ()), bug)  # type: ignore[misc]
    try:
        run_bench(module, bench, defines=defines, **options)  # type: ignore[arg-type]
    except BenchFailure:
        return
    raise AssertionError(f"{bench} does not notice {bug}")


@dataclass(frozen=True, slots=True)
class Mutant:
    """fpga/rtl/``module``.sv with ``old``, which stands there once, made ``new``."""

    module: str
    old: str
    new: str

    def write(self, folder: Path) -> Path:
        """The changed source, under the module's own name."""
        text = (RTL / f"{self.module}.sv").read_text(encoding="utf-8")
        found = text.count(self.old)
        assert found == 1, f"{self.module}.sv has {found} of {self.old!r}: plant the bug anew"
        path = folder / f"{self.module}.sv"
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")
        return path


def expect_mutant_caught(top: str, bench: str, mutant: Mutant, **options: object) -> None:
    """The bench must fail on the mutant; one that does not build is caught by nobody."""
    with tempfile.TemporaryDirectory(prefix="hetero-mutant-") as folder:
        extra = (*options.pop("extra", ()), mutant.write(Path(folder)))  # type: ignore[misc]
        try:
            run_bench(top, bench, extra=extra, **options)  # type: ignore[arg-type]
        except BenchFailure:
            return
    raise AssertionError(f"{bench} does not notice {mutant}")


def _build(
    module: str, parameters: Mapping[str, object], defines: tuple[str, ...], extra: tuple[Path, ...]
) -> Path:
    """Folder with the compiled simulation; compiled if no earlier run left it there."""
    sources = module_sources(module, extra)
    options = [
        *(f"-P{module}.{name}={_literal(value)}" for name, value in parameters.items()),
        *(f"-D{define}" if "=" in define else f"-D{define}=1" for define in defines),
        *(f"-I{folder}" for folder in INCLUDES),
    ]
    key = _digest([module, *options, _icarus_version()], [*sources, *include_files()])
    cached = Path(tempfile.gettempdir()) / f"hetero-rtl-{os.getuid()}" / key
    if cached.exists():
        return cached
    fresh = cached.with_name(f"{key}.{uuid4()}")
    fresh.mkdir(parents=True)
    (fresh / "flags").write_text("+timescale+1ns/1ps\n", encoding="utf-8")
    command = [
        "iverilog",
        "-f",
        str(fresh / "flags"),
        "-g2012",
        "-s",
        module,
        "-o",
        str(fresh / "sim.vvp"),
        *options,
    ]
    done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(fresh)
        raise BenchBroken(f"iverilog refuses {module}:\n{done.stdout}{done.stderr}")
    try:
        fresh.rename(cached)
    except OSError:  # another run was faster
        shutil.rmtree(fresh)
    return cached


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(int(value))  # type: ignore[call-overload]


def _digest(texts: Sequence[str], files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for content in [*(text.encode() for text in texts), *(path.read_bytes() for path in files)]:
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:24]


@cache
def _icarus_version() -> str:
    if shutil.which("iverilog") is None:
        raise BenchBroken("iverilog is not installed: run scripts/install_debian.sh")
    return subprocess.run(["iverilog", "-V"], capture_output=True, text=True).stdout[:80]


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def _tail(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else "(no log)"
    return "\n".join(text.splitlines()[-SHOWN_LINES:])
