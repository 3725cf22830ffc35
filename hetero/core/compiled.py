"""numba with its disk cache as a convenience: a host without a place for it only starts slower."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_LOG = logging.getLogger(__name__)


def compile_cached(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``numba.njit(**options)`` that keeps machine code on disk where it can.

    numba refuses to decorate when neither the installation nor the home directory is writable
    ("no locator available"), and lets a full disk fail the call that was merely the first.
    """
    from numba import njit

    try:
        compiled: Callable[..., Any] = njit(cache=True, **options)(function)
    except RuntimeError as error:
        _LOG.debug("%s; set NUMBA_CACHE_DIR to a writable directory", error)
        uncached: Callable[..., Any] = njit(**options)(function)
        return uncached
    _forgive_failed_saves(compiled)
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
