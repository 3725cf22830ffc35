"""Fixtures shared by all tests, and the switches that keep a test run offline and repeatable."""

import os
from pathlib import Path

# Before anything imports torch, transformers or tokenizers: they read these once.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # see gpu_verifier/__init__.py
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
from hypothesis import settings
from support.tiny import make_tiny_checkpoint

from hetero.core.errors import HeteroError
from hetero.models.registry import DEFAULT_MODEL, resolve_model

# Wall time says nothing on a shared machine, and an example must not pass once and fail later.
settings.register_profile("hetero", deadline=None, derandomize=True)
settings.load_profile("hetero")


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Llama directory; tests must not write into it."""
    return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def real_model_dir() -> Path:
    """SmolLM2-135M-Instruct from the cache. Absent means fail, with the fix, never skip."""
    try:
        return resolve_model(DEFAULT_MODEL)
    except HeteroError as error:
        pytest.fail(f"{error} (in this repository: `make model`)", pytrace=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what needs hardware that this host lacks."""
    reasons = {"gpu": _no_gpu, "card": _no_card}
    for mark, why_not in reasons.items():
        marked = [item for item in items if item.get_closest_marker(mark)]
        if marked and (reason := why_not()) is not None:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def _no_gpu() -> str | None:
    try:
        import torch
    except ImportError:
        return "needs torch with CUDA; torch is not installed"
    return None if torch.cuda.is_available() else "needs a CUDA device; torch sees none"


def _no_card() -> str | None:
    if "HETERO_TEST_CARD" in os.environ:
        return None
    return "needs a real FPGA card; name it in HETERO_TEST_CARD"
