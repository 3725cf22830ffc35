"""``hetero draft build``: one JSON object, and one clear line when it can't."""

import json

from click.testing import CliRunner

from fpga.program.artefact import load_artefact
from hetero.cli.main import cli
from hetero.core.errors import ModelError, UnknownModelError
from hetero.models.tokenizer import load_tokenizer


def _run(*arguments):
    return CliRunner().invoke(cli, ["draft", "build", *map(str, arguments)])


def test_json_names_the_artefact(tiny_checkpoint, tmp_path):
    out = tmp_path / "draft"
    result = _run(tiny_checkpoint, "-o", out, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)["artefact"]
    artefact = load_artefact(out)
    tokenizer = load_tokenizer(tiny_checkpoint)
    assert report == {
        "path": str(out),
        "sha256": artefact.sha256,
        "params": artefact.manifest.num_params,
        "weight_bytes": artefact.manifest.weight_bytes,
        "instructions": len(artefact.program),
        "target_tokenizer_sha256": tokenizer.sha256,
    }
    assert artefact.manifest.target.tokenizer_sha256 == tokenizer.sha256
    assert artefact.manifest.target.vocab_size == 375  # the tokenizer's, not the filled-up 384


def test_for_people_it_prints_two_lines(tiny_checkpoint, tmp_path):
    result = _run(tiny_checkpoint, "-o", tmp_path / "draft", "--target", tiny_checkpoint)
    assert result.exit_code == 0, result.output
    assert "parameters in" in result.stdout
    assert len(result.stdout.splitlines()) == 2


def test_an_unknown_model_is_one_error(tmp_path):
    result = _run("SmolLM3-9T", "-o", tmp_path / "draft")
    assert isinstance(result.exception, UnknownModelError)
    assert not (tmp_path / "draft").exists()


def test_a_directory_without_a_model_is_one_error(tmp_path):
    (tmp_path / "empty").mkdir()
    result = _run(tmp_path / "empty", "-o", tmp_path / "draft")
    assert isinstance(result.exception, ModelError)


def test_the_output_is_required(tiny_checkpoint):
    assert CliRunner().invoke(cli, ["draft", "build", str(tiny_checkpoint)]).exit_code == 2


def test_help_says_what_it_takes():
    assert "CHECKPOINT" in _run("--help").output
