"""``hetero generate --card rtl``: the accelerator's own RTL behind the whole service."""

import json
import os
import subprocess
import sys

import pytest
from support.tiny import make_tiny_checkpoint

pytestmark = [pytest.mark.rtl_sweep, pytest.mark.processes, pytest.mark.timeout(3600)]

BUILD = ("--card-ports", "2", "--card-lanes", "2")


def generate(checkpoint, card, *args, cache):
    """The JSON object of a run in a process of its own."""
    command = [sys.executable, "-m", "hetero.cli.main", "generate", "--json", "--prompt", "Hello"]
    command += ["--target", str(checkpoint), "--threads", "1", "--num-kv-blocks", "64"]
    done = subprocess.run(
        [*command, "--max-tokens", "12", "--card", card, *BUILD, *args],
        env={**os.environ, "HETERO_CACHE": str(cache)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("temperature", ["0", "0.9"])
def test_rtl_drafts_what_the_simulated_card_drafts(tmp_path_factory, temperature):
    cache = tmp_path_factory.getbasetemp() / "rtl-cache"
    checkpoint = make_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "model")
    sampling = ("--temperature", temperature, "--seed", "5")
    rtl, told = generate(checkpoint, "rtl", *sampling, cache=cache)
    sim, _ = generate(checkpoint, "sim", *sampling, cache=cache)
    assert rtl["token_ids"] == sim["token_ids"]
    assert rtl["metrics"]["speculative_decoding"] == sim["metrics"]["speculative_decoding"]
    assert rtl["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0
    assert rtl["metrics"]["fallbacks"] == {}
    assert rtl["metrics"]["card"]["backend"] == "rtl"
    assert rtl["metrics"]["card"]["cycles"] > 0
    if temperature == "0":
        assert "building the RTL card" in told
