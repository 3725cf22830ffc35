"""Times one round over the draft link: ``python scripts/bench_draft_link.py``.

Client here, server in its own process on loopback, a card that answers at once; so what is
measured is protocol, codec and gRPC. Prints microseconds per round, all measured on this machine.
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import sys
import time
from multiprocessing.connection import Connection

from hetero.core.types import (
    CardInfo,
    CardRun,
    CardUsage,
    DraftBatch,
    DraftQuery,
    LaneResult,
    SamplingParams,
    SequenceId,
)
from hetero.draft_client.client import CardDrafter
from hetero.draft_client.config import TargetIdentity
from hetero.draft_server.server import DraftServer

SHA = "0" * 64
INFO = CardInfo(
    device="none",
    backend="instant",
    simulated=True,
    num_slots=64,
    max_lanes=64,
    max_context_tokens=8192,
    max_draft_tokens=16,
    max_prefill_tokens=256,
    vocab_size=49152,
    clock_hz=1,
    artefact_sha256=SHA,
    target_tokenizer_sha256=SHA,
)


class InstantCard:
    """Drafts zeros, at once."""

    info = INFO

    def run(self, work):
        """All lanes answered."""
        lanes = tuple(
            LaneResult(w.slot, (0,) * w.num_draft_tokens, (0.5,) * w.num_draft_tokens) for w in work
        )
        return CardRun(lanes, CardUsage())

    def close(self):
        """Nothing to free."""


def serve(ready: Connection) -> None:
    """The server's process: send the port, serve until killed."""

    async def run() -> None:
        ready.send(await DraftServer(InstantCard()).start("127.0.0.1:0"))
        await asyncio.sleep(3600)

    asyncio.run(run())


async def measure(port: int, num_sequences: int, num_rounds: int, k: int) -> list[float]:
    """Seconds of each round; one committed token a round and sequence."""
    identity = TargetIdentity(tokenizer_sha256=SHA, vocab_size=INFO.vocab_size)
    drafter = CardDrafter(f"127.0.0.1:{port}", identity)
    await drafter.connect()
    tokens = [1] * 64
    seconds = []
    for round_id in range(num_rounds):
        tokens.append(2)
        queries = tuple(
            DraftQuery(SequenceId(i), tokens, 64, k, SamplingParams()) for i in range(num_sequences)
        )
        started = time.perf_counter()
        drafts = await drafter.propose(DraftBatch(round_id, queries))
        seconds.append(time.perf_counter() - started)
        if len(drafts.drafts) != num_sequences:
            sys.exit(
                f"{num_sequences - len(drafts.drafts)} sequences undrafted: {drafts.fallbacks}"
            )
    await drafter.close()
    return seconds[10:]


def main() -> None:
    """Print one line for each number of sequences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--k", type=int, default=5)
    args = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    port = ours.recv()
    sys.stdout.write(f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}\n")
    for num_sequences in (1, 8, 32):
        times = asyncio.run(measure(port, num_sequences, args.rounds, args.k))
        cuts = statistics.quantiles(times, n=100)
        sys.stdout.write(
            f"{num_sequences:3} sequences, K = {args.k}: p50 {cuts[49] * 1e6:.0f} us, "
            f"p99 {cuts[98] * 1e6:.0f} us\n"
        )
    server.kill()


if __name__ == "__main__":
    main()
