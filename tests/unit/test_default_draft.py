"""The draft that a target gets when none is named: built once, and again when damaged."""

import pytest

from fpga.program.artefact import load_artefact
from hetero.core.errors import ConfigError
from hetero.services.default_draft import default_draft


def ensure(checkpoint, drafts_dir, said):
    return default_draft(
        checkpoint, drafts_dir, tokenizer_sha256="b" * 64, vocab_size=375, progress=said.append
    )


def test_it_is_built_once(tiny_checkpoint, tmp_path):
    said = []
    paths = {ensure(tiny_checkpoint, tmp_path / "drafts", said) for _ in range(3)}
    assert len(paths) == len(said) == 1
    assert load_artefact(paths.pop()).manifest.target.vocab_size == 375


@pytest.mark.parametrize("name", ["draft.json", "program.bin", "weights.bin"])
def test_a_damaged_one_is_built_again(tiny_checkpoint, tmp_path, name):
    said = []
    path = ensure(tiny_checkpoint, tmp_path, said)
    before = (path / name).read_bytes()
    (path / name).write_bytes(before[: len(before) // 2])
    assert ensure(tiny_checkpoint, tmp_path, said) == path
    assert (path / name).read_bytes() == before
    assert len(said) == 2


def test_a_cache_that_cannot_be_written_is_one_error(tiny_checkpoint, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cache .*Not a directory.*HETERO_CACHE"):
        ensure(tiny_checkpoint, tmp_path / "file" / "drafts", [])
