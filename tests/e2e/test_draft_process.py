"""The draft server as a process: killed, frozen, cut off, replaced; the client goes on."""

import asyncio
import contextlib
import os
import re
import signal
import sys
import time

import pytest
from support.cards import card_info, hash_model
from support.draft_pair import generate, plain, query
from support.draft_process import SCRIPT, DraftProcess
from support.proxy import Relay
from support.raw_draft import eventually

from hetero.core.types import DraftBatch
from hetero.draft_client.client import CardDrafter
from hetero.draft_client.config import DraftClientConfig, TargetIdentity

pytestmark = pytest.mark.processes

MODEL = hash_model()
INFO = card_info()
IDENTITY = TargetIdentity(tokenizer_sha256=INFO.target_tokenizer_sha256, vocab_size=INFO.vocab_size)
PROMPTS = [[1, 2, 3], [9] * 40]


@contextlib.asynccontextmanager
async def connected(address, **config):
    drafter = CardDrafter(address, IDENTITY, DraftClientConfig(**config))
    try:
        await drafter.connect()
        yield drafter
    finally:
        await drafter.close()


def assert_right(runs, num_tokens):
    assert [run.output for run in runs] == [plain(MODEL, p, num_tokens) for p in PROMPTS]


async def test_kill_in_mid_stream_then_restart():
    """vllm-project/vllm#42109: kill -9 the drafter: right text, no waiting, drafting resumes."""
    async with DraftProcess() as first, connected(first.address, deadline_s=30.0) as drafter:
        async with contextlib.AsyncExitStack() as stack:
            waited = []

            async def kill_and_restart(round_id, drafts):
                if round_id == 3:
                    first.send_signal(signal.SIGKILL)
                    waited.append(time.monotonic())
                if round_id == 4:
                    waited.append(time.monotonic())
                    assert set(drafts.fallbacks.values()) == {"disconnected"}
                    assert await first.wait() == -signal.SIGKILL
                if round_id == 6:
                    await stack.enter_async_context(DraftProcess("--listen", first.address))
                    await eventually(lambda: drafter.connected)

            runs = await generate(drafter, MODEL, PROMPTS, num_tokens=80, on_round=kill_and_restart)
        assert_right(runs, 80)
        assert waited[1] - waited[0] < 2.0
        for run in runs:
            assert set(run.fallbacks) == {"disconnected"}
            assert run.num_accepted == run.num_drafted > 40


async def test_frozen_server_is_noticed_and_drafting_resumes_when_it_thaws():
    async with DraftProcess() as host, connected(host.address, deadline_s=30.0) as drafter:
        times = {}

        async def freeze(round_id, drafts):
            if round_id == 3:
                host.send_signal(signal.SIGSTOP)
                times["frozen"] = time.monotonic()
            if round_id == 4:
                times["noticed"] = time.monotonic()
                assert set(drafts.fallbacks.values()) == {"disconnected"}
            if round_id == 6:
                host.send_signal(signal.SIGCONT)
                await eventually(lambda: drafter.connected)

        runs = await generate(drafter, MODEL, PROMPTS, num_tokens=80, on_round=freeze)
        assert_right(runs, 80)
        # heartbeat_timeout_s is 1.0; the rest is slack for a loaded machine.
        assert times["noticed"] - times["frozen"] < 4.0
        assert drafter.counters.losses == {"silence": 1}
        assert all(run.num_accepted == run.num_drafted > 40 for run in runs)


async def test_frozen_while_nobody_asks_costs_no_round():
    """The heartbeat finds out, so the next proposal does not wait at all."""
    async with DraftProcess() as host, connected(host.address) as drafter:
        host.send_signal(signal.SIGSTOP)
        await eventually(lambda: not drafter.connected)
        started = time.monotonic()
        drafts = await drafter.propose(DraftBatch(1, (query(1, [1]),)))
        assert drafts.fallbacks == {1: "disconnected"}
        assert time.monotonic() - started < 0.05


async def test_line_cut_in_the_middle_of_a_frame():
    """ggml-org/llama.cpp#23242: TCP dropped inside a frame must not harm the server."""
    async with DraftProcess() as host, Relay(host.address) as relay:
        async with connected(relay.address) as drafter:

            async def cut(round_id, drafts):
                if round_id in (2, 4):
                    relay.cut_after = 30  # the next frame is longer
                if not drafter.connected:
                    await eventually(lambda: drafter.connected)

            runs = await generate(drafter, MODEL, PROMPTS, num_tokens=60, on_round=cut)
            assert_right(runs, 60)
            assert drafter.counters.losses == {"disconnected": 2}
            assert all(run.num_accepted == run.num_drafted > 30 for run in runs)
        assert host.process.returncode is None


async def test_partition_is_noticed_by_both_sides():
    """Packets vanish without a reset: only the heartbeat can tell."""
    async with (
        DraftProcess() as host,
        Relay(host.address) as relay,
        connected(relay.address, deadline_s=30.0) as drafter,
    ):
        await drafter.propose(DraftBatch(1, (query(1, [1, 2]),)))
        relay.flowing.clear()
        drafts = await drafter.propose(DraftBatch(2, (query(1, [1, 2, 3]),)))
        assert drafts.fallbacks == {1: "disconnected"}
        assert drafter.counters.losses == {"silence": 1}
        relay.flowing.set()
        await eventually(lambda: drafter.connected)
        drafts = await drafter.propose(DraftBatch(3, (query(1, [1, 2, 3]),)))
        assert list(drafts.drafts[1].token_ids) == plain(MODEL, [1, 2, 3], 5)


async def test_sigterm_drains_and_exits_0():
    async with DraftProcess() as host, connected(host.address) as drafter:
        await drafter.propose(DraftBatch(1, (query(1, [1, 2]),)))
        host.send_signal(signal.SIGTERM)
        assert await host.wait() == 0
        await eventually(lambda: drafter.counters.losses == {"draining": 1})


async def test_sigterm_while_the_card_is_stuck():
    async with DraftProcess("--delay-s", "60") as host, connected(host.address) as drafter:
        asked = asyncio.ensure_future(drafter.propose(DraftBatch(1, (query(1, [1, 2]),))))
        await asyncio.sleep(0.2)
        host.send_signal(signal.SIGTERM)
        assert (await asked).fallbacks == {1: "disconnected"}
        assert await host.wait() == 0


async def test_it_ends_with_its_parent():
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=-1)
    async with DraftProcess("--parent-pid", str(parent.pid)) as host:
        parent.kill()
        await parent.wait()
        parent._transport.close()
        assert await host.wait() == 0


async def test_a_parent_that_is_already_gone():
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await parent.wait()
    parent._transport.close()
    async with DraftProcess("--parent-pid", str(parent.pid)) as host:
        assert await host.wait() == 0


async def run_to_end(*args):
    process = await asyncio.create_subprocess_exec(*args, stdout=-1, stderr=-1)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    process._transport.close()
    return process.returncode, out.decode(), err.decode()


async def test_port_in_use_is_one_line_and_exit_2():
    async with DraftProcess() as host:
        code, out, err = await run_to_end(sys.executable, str(SCRIPT), "--listen", host.address)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"hetero: listen = 127\.0\.0\.1:\d+: Address already in use\..*\n", err)


@pytest.mark.parametrize(
    "args, says",
    [
        (("--draft", "no-such-draft"), "draft = 'no-such-draft': no such folder"),
        (("--draft", ".", "--card", "abacus"), "abacus"),
        (("--draft", ".", "--slots", "0"), "0 is not in the range"),
        ((), "Missing option '--draft'"),
    ],
)
async def test_bad_usage_exits_2(args, says):
    hetero = os.path.join(os.path.dirname(sys.executable), "hetero")
    code, out, err = await run_to_end(hetero, "draft", "serve", *args)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


async def test_it_ends_when_nobody_can_read_its_announcement():
    """grpcio 1.64: a process whose server was not stopped spins for ever instead of exiting."""
    reader, writer = os.pipe()
    os.close(reader)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), stdout=writer, stderr=asyncio.subprocess.PIPE
    )
    os.close(writer)
    _, err = await asyncio.wait_for(process.communicate(), 30)
    process._transport.close()
    assert process.returncode == 1
    assert b"BrokenPipeError" in err
