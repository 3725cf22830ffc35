"""Where a setting comes from: flag, then environment, then configuration file, then default."""

import json

import pytest
from click.testing import CliRunner

from hetero.cli import main
from hetero.core.errors import ConfigError


@pytest.fixture
def probe(monkeypatch, tmp_path):
    """Runs a command, on its own and in a group, with a configuration file; returns its values."""
    for words in ("probe", "draft probe"):
        monkeypatch.setitem(main.COMMANDS, words, "support.probe_command:command")

    def run(*args, config="", env=None, words=("probe",)):
        path = tmp_path / "hetero.toml"
        path.write_bytes(config.encode("latin-1"))
        result = CliRunner().invoke(
            main.cli,
            ["--config", str(path), *words, *args],
            env=env or {},
            catch_exceptions=False,
            standalone_mode=False,
        )
        return json.loads(result.stdout)

    return run


CONFIG = """
[probe]
max-words = 2
stop = ["a", "b"]

[draft.probe]
max_words = 3
"""


def test_flag_beats_environment_beats_file_beats_default(probe):
    env = {"HETERO_PROBE_LIMIT": "5"}
    assert probe()["limit"] == 1
    assert probe(config=CONFIG)["limit"] == 2
    assert probe(config=CONFIG, env=env)["limit"] == 5
    assert probe("--max-words", "7", config=CONFIG, env=env)["limit"] == 7


def test_tables_nest_as_commands_do_and_lists_are_taken(probe):
    assert probe(config=CONFIG)["stop"] == ["a", "b"]
    assert probe(config=CONFIG, words=("draft", "probe"))["limit"] == 3
    assert probe(config="[probe]\njson = true")["as_json"] is True


@pytest.mark.parametrize(
    "config, message",
    [
        (
            "[probe]\nmax-wrods = 2",
            r"probe\.max-wrods: no such option\. Use one of json, ",
        ),
        ("[prob]\nmax-words = 2", "prob is no table of a command"),
        ("max-words = 2", "max-words is no table of a command"),
        ("[draft]\nprobe = 2", "draft: probe is no table of a command"),
        ("max-words", "not TOML"),
        ("# \xff", "Name a readable file"),
    ],
)
def test_a_file_that_means_nothing_is_an_error(probe, config, message):
    with pytest.raises(ConfigError, match=message) as caught:
        probe(config=config)
    assert caught.value.exit_code == 2


def test_a_value_of_the_wrong_type_is_an_error_wherever_it_comes_from(probe):
    for case in ({"config": "[probe]\nmax-words = 'x'"}, {"env": {"HETERO_PROBE_LIMIT": "x"}}):
        with pytest.raises(Exception, match="'x' is not a valid integer"):
            probe(**case)
