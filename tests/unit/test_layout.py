"""Our top-level names are common words: each must be ours, and nobody else's."""

import importlib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("hetero", "fpga", "gpu_verifier", "sim", "deploy")


@pytest.mark.parametrize("name", PACKAGES)
def test_the_package_is_ours(name):
    found = Path(importlib.import_module(name).__file__).resolve().parent
    owners = metadata.packages_distributions().get(name, [])
    assert found == ROOT / name, f"import {name} finds {found}, installed by {owners}"


def test_no_package_hides_proto_plus():
    """A package marker under proto/ would hide proto-plus, which Google's clients need."""
    assert list((ROOT / "proto").rglob("__init__.py")) == []


def test_tests_hold_no_package_markers():
    """tests/fpga/__init__.py, for one, would shadow fpga."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []
