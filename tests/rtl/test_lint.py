"""Every file of fpga/rtl in all three tools, and what each file must have."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.rtl import INCLUDES, ROOT, RTL, module_sources

pytestmark = pytest.mark.rtl

FILES = sorted(RTL.glob("*.sv"))
NAMES = [path.stem for path in FILES]
MAX_LINES = 700
WHOLE_CARD = "test_whole_card.py"
BENCHED_ELSEWHERE = dict.fromkeys(
    ("draft_card", "control_unit", "row_context", "lane_unit", "port_slice"), WHOLE_CARD
)
INCLUDE_OPTIONS = [f"-I{folder}" for folder in INCLUDES]


@pytest.fixture(scope="module", autouse=True)
def tools():
    """Absent means fail, with the fix, never skip."""
    missing = [tool for tool in ("verilator", "iverilog", "yosys") if shutil.which(tool) is None]
    if missing:
        pytest.fail(f"{', '.join(missing)}: not installed. Run scripts/install_debian.sh.")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-6000:]


def _sources(name: str) -> list[str]:
    return [str(path) for path in module_sources(name)]


@pytest.mark.parametrize("name", NAMES)
def test_verilator_has_no_warning(name: str):
    options = ["-Wall", "-DHETERO_ASSERT=1", "-DHETERO_COVER=1", *INCLUDE_OPTIONS]
    _run("verilator", "--lint-only", *options, "--top-module", name, *_sources(name))


@pytest.mark.parametrize("name", NAMES)
def test_icarus_elaborates_it(name: str, tmp_path: Path):
    options = ["-g2012", "-DHETERO_ASSERT=1", "-DHETERO_COVER=1", *INCLUDE_OPTIONS]
    _run("iverilog", *options, "-s", name, "-o", str(tmp_path / "x.vvp"), *_sources(name))


def test_yosys_reads_them_all():
    script = [f"read_verilog -sv -DSYNTHESIS {' '.join(INCLUDE_OPTIONS)} {path}" for path in FILES]
    _run("yosys", "-q", "-p", "; ".join(script))


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_file_keeps_the_rules(path: Path):
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= MAX_LINES
    assert lines[-1] == "`default_nettype wire"
    assert re.findall(r"^module (\w+)", text, re.MULTILINE) == [path.stem]
    head = _head(path)
    assert "\n`default_nettype none\n" in f"\n{head}"
    for item in ("Latency", "Throughput", "Golden"):
        assert re.search(rf"^// {item}: ", head, re.MULTILINE), f"header lacks `// {item}: ...`"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_the_golden_function_it_names_exists(path: Path):
    for file, name in re.findall(r"\b((?:fpga|sim|hetero)/[\w/]+\.py)(?:::(\w+))?", _head(path)):
        assert (ROOT / file).exists(), file
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^(def|class) {name or '.*'}\b", text, re.MULTILINE), f"{file}::{name}"


def _head(path: Path) -> str:
    """What stands before the module."""
    return re.split(r"^module ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[0]


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_bench(name: str):
    tests = Path(__file__).parent
    if name in BENCHED_ELSEWHERE:
        assert (tests / BENCHED_ELSEWHERE[name]).exists()
        return
    users = [p for p in tests.glob("test_*.py") if p != Path(__file__) and name in p.read_text()]
    assert users, f"no test in tests/rtl uses {name}"
