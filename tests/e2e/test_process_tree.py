"""``hetero generate`` with a draft server of its own: one process tree, whatever ends it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def command(tiny_checkpoint, tmp_path_factory):
    """(arguments, environment) of a generate on the tiny target, its draft built once."""
    cache = tmp_path_factory.mktemp("cache")
    env = {**os.environ, "HETERO_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    base = [sys.executable, "-m", "hetero.cli.main", "generate", "--prompt", "Hello there"]
    return [*base, "--target", str(tiny_checkpoint), "--threads", "1", "--seed", "7"], env


def run_json(command, *args):
    base, env = command
    done = subprocess.run(
        [*base, *args, "--json"], env=env, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_the_card_changes_no_token(command, temperature):
    sampling = ["--temperature", temperature, "--max-tokens", "40", "--ignore-eos"]
    drafted = run_json(command, *sampling, "--num-speculative-tokens", "3")
    plain = run_json(command, *sampling, "--drafter", "none")
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["system_fingerprint"] == plain["system_fingerprint"]
    metrics = drafted["metrics"]
    assert metrics["speculative_decoding"]["mean_acceptance_length"] > 1.5
    assert len(metrics["speculative_decoding"]["acceptance_per_position"]) == 3
    assert metrics["card"]["simulated"] is True
    assert metrics["card"]["device"] == "u55c"
    assert metrics["card"]["cycles"] > 0
    assert 0 < metrics["card"]["modelled_s"] < 10
    assert metrics["fallbacks"] == {}
    assert plain["metrics"]["card"]["cycles"] is None


def test_the_demo_shows_what_happened_and_from_where_each_figure_is(command):
    base, env = command
    target = base[base.index("--target") + 1]
    demo = [sys.executable, "-m", "hetero.cli.main", "demo", "--prompt", "Hello there"]
    done = subprocess.run(
        [*demo, "--target", target, "--threads", "1", "--max-tokens", "40", "--temperature", "0.8"],
        env={**env, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    for row in (
        r"mean acceptance length\W+\d+\.\d\d",
        r"acceptance rate\W+\d+\.\d% \(\d+ of \d+\)",
        r"one verify step, measured \(median\)\W+\d+\.\d\d m?s",
        r"card u55c \(simulated: virtual time of the modelled card\)\W+\d+\.\d\d m?s",
        r"card time per drafted token, simulated\W+\d+\.\d\d m?s",
        r"the same tokens\W+yes",
        r"By the card's model, a real u55c would add \d+\.\d\d m?s",
        r"not there to be faster on a laptop",
    ):
        assert re.search(row, done.stdout), row


@pytest.mark.parametrize(
    "signum, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_no_process_outlives_its_parent(command, signum, code):
    base, env = command
    process = subprocess.Popen(
        [*base, "--max-tokens", "900", "--ignore-eos"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout.read(1)  # text has begun
        children = children_of(process.pid)
        assert len(children) == 1
        process.send_signal(signum)
        process.stdout.read()
        assert process.wait(TIMEOUT_S) == code
    finally:
        process.kill()
        process.stdout.close()
    give_up_at = time.monotonic() + 10
    while alive(children[0]):
        assert time.monotonic() < give_up_at, "the draft server lives on"
        time.sleep(0.05)


def test_a_draft_for_another_tokenizer_is_one_line(command, tmp_path):
    from fpga.program.build import build_artefact

    base, env = command
    target = base[base.index("--target") + 1]
    build_artefact(Path(target), tmp_path / "foreign", target_tokenizer_sha256="0" * 64)
    done = subprocess.run(
        [*base, "--draft", str(tmp_path / "foreign")],
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("hetero: ")
    assert "tokenizer" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_damaged_draft_is_one_line(command, tmp_path):
    from fpga.program.build import build_artefact

    base, env = command
    target = base[base.index("--target") + 1]
    path = tmp_path / "damaged"
    build_artefact(Path(target), path, target_tokenizer_sha256="0" * 64)
    weights = bytearray((path / "weights.bin").read_bytes())
    weights[len(weights) // 2] ^= 1
    (path / "weights.bin").write_bytes(weights)
    done = subprocess.run(
        [*base, "--draft", str(path)], env=env, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 1
    assert "weights.bin" in done.stderr
    assert "Traceback" not in done.stderr


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
