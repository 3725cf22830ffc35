"""numba with its disk cache as a convenience: a host without a place for it only starts slower."""

import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_LOG = logging.getLogger(__name__)


def compile_cached(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``numba.njit(**options)`` that keeps machine code on disk where it can.

    numba refuses to decorate when neither the installation nor the home directory is writable
    ("no locator available"), and lets a full disk fail the call that was merely the first. It also
    looks at the function's own file only, so that what is inlined from a neighbour would stay old.
    """
    from numba import njit

    try:
        compiled: Callable[..., Any] = njit(cache=True, **options)(function)
    except RuntimeError as error:
        _LOG.debug("%s; set NUMBA_CACHE_DIR to a writable directory", error)
        uncached: Callable[..., Any] = njit(**options)(function)
        return uncached
    _forgive_failed_saves(compiled)
    _depend_on_neighbours(compiled, Path(inspect.getfile(function)).parent)
    return compiled


def _forgive_failed_saves(dispatcher: Any) -> None:
    """The code is in memory by the time it is saved, so the call can go on."""
    cache: Any = getattr(dispatcher, "_cache", None)
    save = getattr(cache, "save_overload", None)
    if save is None:  # NUMBA_DISABLE_JIT, or a numba that keeps its cache elsewhere
        return

    def save_if_possible(*arguments: Any) -> None:
        with suppress(OSError):
            save(*arguments)

    cache.save_overload = save_if_possible


def _depend_on_neighbours(dispatcher: Any, folder: Path) -> None:
    """Machine code is kept for the present state of every module of the package."""
    file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if not hasattr(file, "_source_stamp"):
        return
    with suppress(OSError):
        stats = [(path.name, path.stat()) for path in sorted(folder.glob("*.py"))]
        stamp = tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)
        file._source_stamp = (file._source_stamp, stamp)
