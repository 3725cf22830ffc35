"""A tiny torch target, a draft server in another process, gRPC between; killed, frozen, revived."""

import asyncio
import json
import os
import random
import signal
import sys
from contextlib import asynccontextmanager

import pytest
import support.card_host
from support.engines import assert_all_free, collect, collect_all, open_engine, request
from support.tiny import TOKENIZER_VOCAB_SIZE

from fpga.program.build import build_artefact
from gpu_verifier.load import VerifierConfig, load_verifier
from hetero.core.errors import DraftUnavailableError
from hetero.draft_client.client import CardDrafter
from hetero.draft_client.config import DraftClientConfig, TargetIdentity
from hetero.services.draft_child import DraftChild

pytestmark = pytest.mark.processes

IDENTITY = TargetIdentity(tokenizer_sha256="b" * 64, vocab_size=TOKENIZER_VOCAB_SIZE)
SHORT, LONG = 24, 250


@pytest.fixture(scope="module")
def verifier(tiny_checkpoint):
    config = VerifierConfig(
        model_dir=tiny_checkpoint,
        model_name="tiny",
        tokenizer_sha256="b" * 64,
        tokenizer_vocab_size=TOKENIZER_VOCAB_SIZE,
        dtype="float32",
        threads=1,
        num_kv_blocks=512,
        max_batch_rows=96,
        self_test=False,
    )
    verifier = load_verifier(config)
    yield verifier
    verifier.close()


def requests_of(temperature, k, max_tokens=SHORT):
    rng = random.Random(11)
    prompts = [[rng.randrange(3, TOKENIZER_VOCAB_SIZE) for _ in range(1 + 9 * i)] for i in range(8)]
    return [
        request(p, k=k, temperature=temperature, seed=i, max_tokens=max_tokens, ignore_eos=True)
        for i, p in enumerate(prompts)
    ]


@pytest.fixture(scope="module")
def plain(verifier):
    """Outputs without speculation, by (temperature, length)."""
    known = {}

    async def outputs(temperature, max_tokens=SHORT):
        key = temperature, max_tokens
        if key not in known:
            async with open_engine(verifier, max_batch_rows=96, max_running=8) as engine:
                answers = await collect_all(engine, requests_of(temperature, 0, max_tokens))
            known[key] = [a.token_ids for a in answers]
        return known[key]

    return outputs


@pytest.fixture(scope="module")
def int4_draft(tiny_checkpoint, tmp_path_factory):
    """The target's own weights, compiled for a card."""
    path = tmp_path_factory.mktemp("draft") / "draft"
    build_artefact(
        tiny_checkpoint,
        path,
        target_tokenizer_sha256="b" * 64,
        target_vocab_size=TOKENIZER_VOCAB_SIZE,
    )
    return path


@asynccontextmanager
async def scripted_engine(verifier, tmp_path, kind, requests, outputs):
    """``drafting_engine`` with a scripted card that knows these outputs."""
    path = tmp_path / "known.json"
    sequences = [[*r.prompt_token_ids, *o] for r, o in zip(requests, outputs, strict=True)]
    path.write_text(json.dumps({"vocab_size": TOKENIZER_VOCAB_SIZE, "sequences": sequences}))
    async with drafting_engine(verifier, kind, path) as parts:
        yield parts


@asynccontextmanager
async def drafting_engine(verifier, kind, path):
    """(engine, drafter, child) with a card of support.card_host in a real process of its own."""
    script = support.card_host.__file__

    def command(port):
        listen = f"127.0.0.1:{port}"
        return [sys.executable, script, kind, str(path), listen, str(os.getpid())]

    child = DraftChild(command)
    try:
        child.begin()
        drafter = CardDrafter(
            await child.listening(), IDENTITY, DraftClientConfig(heartbeat_timeout_s=1.0)
        )
        await drafter.connect()
        async with open_engine(verifier, drafter, max_batch_rows=96, max_running=8) as engine:
            yield engine, drafter, child
        assert_all_free(verifier)
    finally:
        await child.stop()


@pytest.mark.parametrize("kind", ["right", "wrong", "garbage"])
async def test_speculative_equals_plain_over_grpc(verifier, plain, tmp_path, kind):
    """T x K, alone and eight at once, over one stream to one draft server process."""
    for temperature in (0.0, 0.8):
        expected = await plain(temperature)
        known = requests_of(temperature, 0)
        async with scripted_engine(verifier, tmp_path, kind, known, expected) as (engine, _, _):
            for k in (1, 3, 8):
                requests = requests_of(temperature, k)
                together = await collect_all(engine, requests)
                assert [a.token_ids for a in together] == expected
                alone = await collect(engine, requests[3])
                assert alone.token_ids == expected[3]
                stats = alone.finish.speculation
                if kind == "right":
                    assert stats.num_accepted_draft_tokens == stats.num_draft_tokens > 0
                    assert alone.finish.card.cycles > 0


async def test_the_int4_draft_on_the_simulated_card_over_grpc(verifier, plain, int4_draft):
    """The target's own int4 copy on a card: real drafts, most of them good."""
    async with drafting_engine(verifier, "sim", int4_draft) as (engine, drafter, _):
        assert drafter.card.simulated
        for temperature in (0.0, 0.8):
            expected = await plain(temperature)
            for k in (1, 3, 8):
                requests = requests_of(temperature, k)
                together = await collect_all(engine, requests)
                assert [a.token_ids for a in together] == expected
                alone = await collect(engine, requests[k % 8])
                assert alone.token_ids == expected[k % 8]
                assert alone.finish.card.cycles > 0
        totals = engine.snapshot()
    assert totals.fallbacks == {}
    assert totals.accepted_per_position[0] > 0.5 * totals.drafted_per_position[0]


@pytest.mark.parametrize("kind", ["right", "garbage", "sim"])
async def test_sigkill_mid_stream(verifier, plain, tmp_path, int4_draft, kind):
    """vllm-project/vllm#42109: a killed drafter costs speed, and drafting resumes by itself."""
    expected = await plain(0.8, LONG)
    requests = requests_of(0.8, 3, LONG)
    opened = (
        drafting_engine(verifier, kind, int4_draft)
        if kind == "sim"
        else scripted_engine(verifier, tmp_path, kind, requests, expected)
    )
    async with opened as (engine, drafter, child):
        streams = asyncio.create_task(collect_all(engine, requests))
        await until(lambda: engine.snapshot().num_draft_tokens > 40)
        os.kill(child.pid, signal.SIGKILL)
        answers = await streams
        assert [a.token_ids for a in answers] == expected
        assert sum(a.finish.fallbacks.get("disconnected", 0) for a in answers) > 0
        await until(lambda: drafter.connected)
        assert child.num_restarts == 1
        again = await collect(engine, requests[2])
        assert again.token_ids == expected[2]
        assert again.finish.speculation.num_draft_tokens > 0
        assert drafter.num_sequences == 0


async def test_sigstop_mid_stream(verifier, plain, tmp_path):
    """A frozen drafter is noticed by its silence; the answers go on without it."""
    expected = await plain(0.0, LONG)
    requests = requests_of(0.0, 3, LONG)
    async with scripted_engine(verifier, tmp_path, "right", requests, expected) as parts:
        engine, drafter, child = parts
        streams = asyncio.create_task(collect_all(engine, requests))
        await until(lambda: engine.snapshot().num_draft_tokens > 40)
        os.kill(child.pid, signal.SIGSTOP)
        try:
            answers = await streams
        finally:
            os.kill(child.pid, signal.SIGCONT)
        assert [a.token_ids for a in answers] == expected
        assert sum(sum(a.finish.fallbacks.values()) for a in answers) > 0
        await until(lambda: drafter.connected)
        again = await collect(engine, requests[2])
        assert again.token_ids == expected[2]
        assert again.finish.speculation.num_accepted_draft_tokens > 0


async def test_no_process_is_left(verifier, plain, tmp_path):
    expected = await plain(0.0)
    known = requests_of(0.0, 0)
    async with scripted_engine(verifier, tmp_path, "right", known, expected) as (_, _, child):
        pid = child.pid
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    "script, message",
    [("raise SystemExit(3)", "exit code 3"), ("print('hello', flush=True)", "hello")],
)
async def test_a_draft_server_that_cannot_start(script, message):
    child = DraftChild(lambda port: [sys.executable, "-c", script])
    child.begin()
    with pytest.raises(DraftUnavailableError, match=message):
        await child.listening()
    await child.stop()
    assert child.pid is None


async def until(condition, timeout_s=60):
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + timeout_s
    while not condition():
        assert loop.time() < give_up_at, "timed out"
        await asyncio.sleep(0.005)
