"""The checks of ``hetero doctor``. They need nothing but hetero's base dependencies.

A check never raises and never imports a heavy package into this process: what may crash on
import runs in a child of its own.
"""

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hetero.cli.doctor_check import Check
from hetero.cli.doctor_packages import check_own_packages, check_packages, try_import
from hetero.core.errors import HeteroError

OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 12)
NEEDED_MEMORY_BYTES = 2 << 30
NEEDED_DISK_BYTES = 2 << 30
BF16_FLAGS = ("amx_bf16", "avx512_bf16")
RTL_TOOLS = ("verilator", "g++", "make", "perl")
GENERATED_CODE = (
    "hetero.rpc.draft.v1.draft_pb2_grpc",
    "hetero.rpc.inference.v1.inference_pb2_grpc",
)


def run_checks(*, ports: Mapping[str, str]) -> list[Check]:
    """Every check of this host, the base of the others first. Takes some seconds."""
    checks = [check_python(sys.version_info[:3]), *check_own_packages(), *check_generated_code()]
    with ThreadPoolExecutor(2) as pool:
        checks += check_packages(pool)
    checks += [check_processor(), check_memory(), *check_cache()]
    checks += [*check_card(), check_cuda()]
    checks += [check_port(setting, address) for setting, address in ports.items()]
    return checks


# ---- the host ---------------------------------------------------------------------------------


def check_python(version: tuple[int, ...]) -> Check:
    """The interpreter's version against the range that is tested."""
    detail = ".".join(map(str, version))
    if OLDEST_PYTHON <= version[:2] <= NEWEST_PYTHON:
        return Check("python", "ok", f"{detail} at {sys.executable}")
    return Check(
        "python", "fail", f"{detail}: hetero is tested on 3.10 to 3.12", "Use Python 3.11."
    )


def check_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Check:
    """Whether bf16 runs natively, which decides what --dtype auto means."""
    cores = os.cpu_count() or 1
    try:
        flags = set(_field(cpuinfo.read_text(), "flags").split())
    except OSError:
        return Check("processor", "ok", f"{cores} cores; its instruction sets are not readable")
    native = [flag for flag in BF16_FLAGS if flag in flags]
    kind = f"bf16 by {native[0]}" if native else "no bf16 instructions: the target runs in float32"
    return Check("processor", "ok", f"{cores} cores, {kind}")


def check_memory(meminfo: Path = Path("/proc/meminfo")) -> Check:
    """Free memory against what the default model takes."""
    try:
        available_bytes = int(_field(meminfo.read_text(), "MemAvailable").split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return Check("memory", "warn", "not readable on this system", None)
    detail = f"{available_bytes / 2**30:.1f} GiB available"
    if available_bytes >= NEEDED_MEMORY_BYTES:
        return Check("memory", "ok", detail)
    return Check(
        "memory",
        "warn",
        f"{detail}; the default model wants {NEEDED_MEMORY_BYTES / 2**30:.0f} GiB",
        "End other programs, or give --num-kv-blocks a small number.",
    )


def _field(text: str, name: str) -> str:
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")


def check_port(setting: str, address: str) -> Check:
    """Whether ``hetero serve`` could listen there."""
    name = f"port of {setting}"
    host, _, port = address.rpartition(":")
    try:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, int(port)))
    except (OSError, ValueError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        fix = f"End what listens there, or give hetero serve another {setting}."
        return Check(name, "warn", f"{address}: {why}", fix)
    return Check(name, "ok", f"{address} is free")


# ---- our own files ----------------------------------------------------------------------------


def check_generated_code() -> Iterator[Check]:
    """Whether the protocol code loads with the protobuf and grpcio that are installed."""
    for module in GENERATED_CODE:
        error = try_import(module)
        name = f"protocol {module.split('.')[2]}"
        if error is None:
            yield Check(name, "ok", "loads with the installed protobuf and grpcio")
        else:
            fix = "Install the versions of constraints.txt: make setup."
            yield Check(name, "fail", error, fix)


def check_cache(cache_dir: Path | None = None) -> Iterator[Check]:
    """The cache folder, the default model in it, and the drafts beside it."""
    from hetero.models.registry import default_cache_dir

    folder = cache_dir or default_cache_dir()
    yield _guarded("cache", lambda: _cache_folder(folder))
    yield _guarded("default model", lambda: _default_model(folder))
    yield from _drafts(folder / "drafts")


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except (HeteroError, OSError) as error:
        return Check(name, "fail", str(error), "See the message.")


def _cache_folder(folder: Path) -> Check:
    fix = "Make it writable, or point HETERO_CACHE at another folder."
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("cache", "fail", f"{folder}: {error.strerror}", fix)
    detail = f"{folder}, {free_bytes / 2**30:.1f} GiB free"
    if free_bytes < NEEDED_DISK_BYTES:
        fix = "Free some space, or point HETERO_CACHE at another disk."
        return Check("cache", "warn", detail, fix)
    return Check("cache", "ok", detail)


def _default_model(folder: Path) -> Check:
    from hetero.models.manifest import check_contents
    from hetero.models.registry import DEFAULT_MODEL, model_dir

    path = model_dir(DEFAULT_MODEL, folder)
    fix = f"hetero models pull {DEFAULT_MODEL}"
    if not path.is_dir():
        return Check("default model", "warn", f"{DEFAULT_MODEL} is not fetched", fix)
    try:
        check_contents(path)
    except HeteroError as error:
        return Check("default model", "fail", str(error), fix)
    return Check("default model", "ok", f"{path}, every byte as it should be")


def _drafts(folder: Path) -> Iterator[Check]:
    try:
        from fpga.program.artefact import MANIFEST_FILE, load_artefact
    except ImportError as error:
        yield Check("drafts", "warn", f"can't be read here: {error}", "See the packages above.")
        return
    paths = sorted(path.parent for path in folder.glob(f"[!.]*/{MANIFEST_FILE}"))
    if not paths:
        detail = f"none in {folder}"
        yield Check("drafts", "warn", detail, "The first hetero generate or serve builds one.")
    for path in paths:
        name = f"draft {path.name}"
        try:
            artefact = load_artefact(path)
        except HeteroError as error:
            yield Check(name, "fail", str(error), f"Remove {path}; it is built again when needed.")
        else:
            yield Check(name, "ok", f"{artefact.image.nbytes / 2**20:.0f} MiB, hashes agree")


# ---- cards ------------------------------------------------------------------------------------


def check_card(dev: Path = Path("/dev"), sys_root: Path = Path("/sys")) -> Iterator[Check]:
    """FPGA boards that this host shows, and what drives them."""
    pynq_error = try_import("pynq")
    if pynq_error is None:
        yield Check("simulated card", "ok", "pynq loads")
    else:
        fix = "pip install 'hetero[card]', or use --drafter ngram on this host."
        yield Check("simulated card", "warn", f"pynq does not load: {pynq_error}", fix)
    yield check_rtl_tools()
    boards = sorted(_boards(dev, sys_root))
    if not boards:
        yield Check("fpga card", "ok", "none here; the simulated card stands in")
        return
    error = pynq_error if any("fpga_manager" in b for b in boards) else try_import("pyxrt")
    detail = ", ".join(boards)
    if error is None:
        yield Check("fpga card", "ok", detail)
    else:
        fix = "Install the board's runtime (XRT with pyxrt for Alveo, PYNQ for Zynq and Kria)."
        yield Check("fpga card", "warn", f"{detail}, but its driver does not load: {error}", fix)


def check_rtl_tools() -> Check:
    """What ``--card rtl`` builds with."""
    missing = [tool for tool in RTL_TOOLS if shutil.which(tool) is None]
    if not missing:
        return Check("rtl card", "ok", f"{', '.join(RTL_TOOLS)} are here")
    fix = f"sudo apt-get install {' '.join(missing)}; only --card rtl needs them."
    return Check("rtl card", "warn", f"{', '.join(missing)} not found", fix)


def _boards(dev: Path, sys_root: Path) -> Iterable[str]:
    """Alveo management nodes of XRT's kernel driver, and the FPGA managers of Zynq boards."""
    yield from (str(path) for path in dev.glob("xclmgmt*"))
    yield from (str(path) for path in (sys_root / "class" / "fpga_manager").glob("*"))


def check_cuda(dev: Path = Path("/dev")) -> Check:
    """Whether a CUDA device is there, and torch sees it."""
    if not list(dev.glob("nvidia[0-9]*")):
        return Check("cuda", "ok", "no device; the target runs on the CPU")
    code = "import torch; assert torch.cuda.is_available(); print(torch.cuda.get_device_name())"
    error = try_import("torch", code)
    if error is None:
        return Check("cuda", "ok", "torch sees the device")
    fix = "Install a torch build for this host's CUDA driver."
    return Check("cuda", "warn", f"a device is there, but torch can't use it: {error}", fix)
