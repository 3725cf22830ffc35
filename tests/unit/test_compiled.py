"""Compiled code on hosts that have no place to keep it."""

import errno
import importlib
import sys

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


def test_it_is_compiled_anew_when_a_neighbour_of_its_file_changes(tmp_path, monkeypatch):
    """numba's own cache would go on with the old inner function."""
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "compiled_pair"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "outer.py").write_text(
        "from hetero.core.compiled import compile_cached\n"
        "from compiled_pair.inner import inner\n"
        "outer = compile_cached(lambda x: inner(x), nogil=True)\n"
    )
    for step in (1, 20):
        (package / "inner.py").write_text(
            "from hetero.core.compiled import compile_cached\n"
            f"inner = compile_cached(lambda x: x + {step}, nogil=True)\n"
        )
        for name in [name for name in sys.modules if name.startswith("compiled_pair")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        assert importlib.import_module("compiled_pair.outer").outer(1) == 1 + step


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
