"""Each check of `hetero doctor`, well and ill; and the command's two outputs."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from fpga.program.artefact import MANIFEST_FILE
from hetero.cli import doctor, doctor_checks, doctor_packages
from hetero.cli.doctor_check import Check


def test_python_versions():
    assert doctor_checks.check_python((3, 10, 0)).status == "ok"
    assert doctor_checks.check_python((3, 12, 9)).status == "ok"
    for version in ((3, 9, 18), (3, 13, 0)):
        check = doctor_checks.check_python(version)
        assert check.status == "fail"
        assert check.fix


@pytest.mark.parametrize(
    "version, version_range, fits",
    [
        ("1.64.0", "<2,>=1.64", True),
        ("1.63.9", "<2,>=1.64", False),
        ("2.0", "<2,>=1.64", False),
        ("2.13.0+cpu", "<2.15,>=2.9", True),
        ("2.15.0rc1", "<2.15,>=2.9", False),
        ("0.10.0", ">=0.9", True),
        ("3.6.0", "==3.6", True),
        ("3.6.1", "==3.6", False),
        ("1", "", True),
    ],
)
def test_version_ranges(version, version_range, fits):
    assert doctor_packages.in_range(version, version_range) is fits


def test_every_requirement_of_ours_is_looked_at(monkeypatch):
    monkeypatch.setattr(doctor_packages, "try_import", lambda module: None)
    with ThreadPoolExecutor(2) as pool:
        found = {check.name: check for check in doctor_packages.check_packages(pool)}
    assert {"torch", "transformers", "numpy", "grpcio", "protobuf", "pynq"} <= set(found)
    assert {check.status for check in found.values()} == {"ok"}


def test_an_absent_extra_is_a_warning_and_an_absent_base_a_failure():
    absent = doctor_packages._check_requirement("no-such-package", ">=1", frozenset({"serve"}))
    assert (absent.status, "hetero serve" in absent.detail) == ("warn", True)
    assert "hetero[serve]" in absent.fix
    base = doctor_packages._check_requirement("no-such-package", ">=1", frozenset())
    assert base.status == "fail"


def test_a_version_outside_the_range_is_a_warning():
    check = doctor_packages._check_requirement("click", ">=99", frozenset())
    assert check.status == "warn"
    assert ">=99" in check.detail


def test_what_breaks_or_kills_its_process_on_import_is_told():
    assert doctor_packages.try_import("json") is None
    assert "no_such_module" in doctor_packages.try_import("no_such_module")
    assert "exit code" in doctor_packages.try_import("x", "import os; os._exit(9)")


def test_our_packages_are_ours():
    """The names are common; `fpga` of another distribution would break the command line."""
    assert [c for c in doctor_packages.check_own_packages() if c.status != "ok"] == []


def test_a_foreign_package_is_named_with_its_owner(tmp_path):
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "__init__.py").write_text("")
    info = tmp_path / "other_sim-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-sim\nVersion: 1.0\n")
    (info / "RECORD").write_text("sim/__init__.py,,\n")
    (info / "top_level.txt").write_text("sim\n")
    code = (
        "from hetero.cli.doctor_packages import check_own_packages\n"
        "for c in check_own_packages(['sim', 'fpga']): print(c.name, c.status, c.detail)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    clash, fine = run.stdout.splitlines()
    assert clash.startswith("package sim fail")
    assert "other-sim" in clash
    assert fine.startswith("package fpga ok")


def test_generated_code_loads_here():
    assert {check.status for check in doctor_checks.check_generated_code()} == {"ok"}


def test_processor(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu avx2 avx512_bf16\n")
    assert "avx512_bf16" in doctor_checks.check_processor(cpuinfo).detail
    cpuinfo.write_text("flags\t: fpu avx2\n")
    assert "float32" in doctor_checks.check_processor(cpuinfo).detail
    assert doctor_checks.check_processor(tmp_path / "none").status == "ok"


def test_memory(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:   8388608 kB\n")
    check = doctor_checks.check_memory(meminfo)
    assert (check.status, check.detail) == ("ok", "8.0 GiB available")
    meminfo.write_text("MemAvailable: 1048576 kB\n")
    assert doctor_checks.check_memory(meminfo).status == "warn"
    assert doctor_checks.check_memory(tmp_path / "none").status == "warn"


def test_ports():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        check = doctor_checks.check_port("--http", address)
        assert check.status == "warn"
        assert address in check.detail
        assert "--http" in check.fix
    assert doctor_checks.check_port("--http", address).status == "ok"
    for bad in ("nonsense", "127.0.0.1:99999", "127.0.0.1:x"):
        assert doctor_checks.check_port("--http", bad).status == "warn"


def by_name(checks):
    return {check.name: check for check in checks}


def test_an_empty_cache_warns(tmp_path):
    checks = by_name(doctor_checks.check_cache(tmp_path / "new"))
    assert checks["cache"].status in ("ok", "warn")
    assert checks["default model"].status == "warn"
    assert checks["default model"].fix.startswith("hetero models pull")
    assert checks["drafts"].status == "warn"


def test_a_cache_that_cannot_be_written_fails(tmp_path):
    (tmp_path / "file").write_text("")
    checks = by_name(doctor_checks.check_cache(tmp_path / "file"))
    assert checks["cache"].status == "fail"
    assert "HETERO_CACHE" in checks["cache"].fix


def test_damaged_models_and_drafts_fail(tmp_path):
    model = tmp_path / "models" / "SmolLM2-135M-Instruct"
    model.mkdir(parents=True)
    draft = tmp_path / "drafts" / "mine"
    draft.mkdir(parents=True)
    (draft / MANIFEST_FILE).write_text("{}")
    checks = by_name(doctor_checks.check_cache(tmp_path))
    assert checks["default model"].status == "fail"
    assert checks["draft mine"].status == "fail"
    assert str(draft) in checks["draft mine"].fix


def test_boards_are_found_by_their_device_nodes(tmp_path, monkeypatch):
    monkeypatch.setattr(
        doctor_checks, "try_import", {"pynq": None, "pyxrt": "No module named 'pyxrt'"}.get
    )
    (tmp_path / "dev").mkdir()
    (none,) = [c for c in doctor_checks.check_card(tmp_path / "dev", tmp_path) if "fpga" in c.name]
    assert none.status == "ok"
    (tmp_path / "dev" / "xclmgmt256").write_text("")
    checks = by_name(doctor_checks.check_card(tmp_path / "dev", tmp_path))
    assert checks["fpga card"].status == "warn"
    assert "xclmgmt256" in checks["fpga card"].detail


def test_missing_rtl_tools_are_told_with_the_fix(monkeypatch):
    assert doctor_checks.check_rtl_tools().status == "ok"
    monkeypatch.setenv("PATH", "")
    check = doctor_checks.check_rtl_tools()
    assert check.status == "warn"
    assert "apt-get install verilator g++ make perl" in check.fix


def test_a_cuda_device_must_be_of_use(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor_checks, "try_import", lambda module, code: "driver too old")
    assert doctor_checks.check_cuda(tmp_path).status == "ok"
    (tmp_path / "nvidia0").write_text("")
    check = doctor_checks.check_cuda(tmp_path)
    assert check.status == "warn"
    assert "driver too old" in check.detail


@pytest.fixture
def checks(monkeypatch):
    found = [Check("python", "ok", "3.11"), Check("sim", "warn", "absent", "install it")]
    monkeypatch.setattr(doctor, "run_checks", lambda *, ports: found)
    return found


def test_json_output(checks):
    result = CliRunner().invoke(doctor.command, ["--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "checks": [
            {"name": "python", "status": "ok", "detail": "3.11", "fix": None},
            {"name": "sim", "status": "warn", "detail": "absent", "fix": "install it"},
        ]
    }


def test_any_failure_exits_1_and_shows_its_fix(checks):
    checks.append(Check("cache", "fail", "read-only", "Make it writable."))
    result = CliRunner().invoke(doctor.command, [])
    assert result.exit_code == 1
    assert "-> Make it writable." in result.stdout
