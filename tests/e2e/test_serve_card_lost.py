"""A service whose card host is elsewhere, and dies, and comes back (vllm-project/vllm#42109)."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import pytest
import support.card_host
from support.serve_process import serve

from fpga.program.build import build_artefact
from hetero.models.tokenizer import load_tokenizer

pytestmark = pytest.mark.processes

DETECTION_LIMIT_S = 1.0  # 150 ms on the client's clock; the rest is a loaded test machine


@pytest.fixture(scope="module")
def artefact(tiny_checkpoint, tmp_path_factory):
    path = tmp_path_factory.mktemp("artefact") / "tiny"
    tokenizer = load_tokenizer(tiny_checkpoint)
    build_artefact(
        tiny_checkpoint,
        path,
        target_tokenizer_sha256=tokenizer.sha256,
        target_vocab_size=tokenizer.vocab_size,
    )
    return path


@contextmanager
def card_host(artefact, address):
    """A card host process around the golden executor; yields (process, HOST:PORT)."""
    script = Path(support.card_host.__file__)
    arguments = ["golden", str(artefact), address, str(os.getpid())]
    with subprocess.Popen(
        [sys.executable, str(script), *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            assert line, "the card host did not start"
            yield process, line.split('"listening": "')[1].split('"')[0]
        finally:
            process.kill()


def ask(client, speculative):
    return client.chat.completions.create(
        model="model",
        messages=[{"role": "user", "content": "one two three"}],
        seed=7,
        temperature=0.8,
        max_tokens=100,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True, "speculative": speculative},
    )


def text_of(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def state_of(server):
    ready = httpx.get(f"{server.url}/ready")
    assert ready.status_code == 200
    (card,) = [d["state"] for d in ready.json()["drafters"] if d["name"] == "card"]
    return card, ready.json()["degraded"]


def until(condition, timeout_s):
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_card_host_that_dies_costs_speed_only(tiny_checkpoint, artefact, tmp_path):
    with card_host(artefact, "127.0.0.1:0") as (host, address):
        options = ("--drafters", address, "--drafter", "card")
        with (
            serve(tiny_checkpoint, tmp_path, *options) as server,
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
        ):
            plain = text_of(ask(client, {"enabled": False}))
            assert state_of(server) == ("ready", False)

            with ask(client, {"method": "card"}) as stream:
                chunks = iter(stream)
                begun = [next(chunks) for _ in range(3)]
                host.send_signal(signal.SIGKILL)
                rest = list(chunks)
            assert text_of(begun + rest) == plain
            assert rest[-1].metrics["speculative_decoding"]["num_draft_tokens"] > 0
            assert rest[-1].metrics["fallbacks"]
            until(lambda: state_of(server) == ("disconnected", True), DETECTION_LIMIT_S)
            undrafted = list(ask(client, {"method": "card"}))
            assert text_of(undrafted) == plain
            assert undrafted[-1].metrics["speculative_decoding"]["num_draft_tokens"] == 0

            with card_host(artefact, address):
                until(lambda: state_of(server) == ("ready", False), 30)
                drafted = list(ask(client, {"method": "card"}))
            assert text_of(drafted) == plain
            assert drafted[-1].metrics["speculative_decoding"]["num_draft_tokens"] > 0
