"""Compiled code on hosts that have no place to keep it."""

import errno

import pytest
from numba.core import caching

from hetero.core.compiled import compile_cached


def add_one(x):
    return x + 1


def test_it_is_kept_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    assert compile_cached(add_one, nogil=True)(1) == 2
    again = compile_cached(add_one, nogil=True)
    assert again(1) == 2
    assert sum(again.stats.cache_hits.values()) == 1


def test_an_installation_and_a_home_that_cannot_be_written(monkeypatch):
    """numba: cannot cache function, no locator available. So it was for every import of ours."""

    def refused(self):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refused)
    assert compile_cached(add_one, nogil=True)(1) == 2


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_fills_up(tmp_path, monkeypatch, code):
    def full(self, *arguments):
        raise OSError(code, "No space left on device")

    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(caching.IndexDataCacheFile, "save", full)
    inner = compile_cached(add_one, nogil=True)

    def outer(x):
        return inner(x) + inner(2.5)

    assert compile_cached(outer, nogil=True)(1) == 5.5
