"""The engine's own draft server: a child process, started, watched, restarted, ended."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetero.core.errors import DraftUnavailableError

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 120.0
BUILD_TIMEOUT_S = 1800.0
"""The first start of the RTL card compiles it, for minutes on a slow machine."""
STOP_TIMEOUT_S = 5.0
RESTART_MIN_S = 0.2
RESTART_MAX_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftChildConfig:
    """What ``hetero draft serve`` gets on its command line."""

    draft: Path
    card: str = "sim"
    card_device: str = "u55c"
    num_slots: int = 8
    card_ports: int | None = None
    card_lanes: int | None = None

    @property
    def start_timeout_s(self) -> float:
        """How long it may take until it listens."""
        return BUILD_TIMEOUT_S if self.card == "rtl" else START_TIMEOUT_S

    def command(self, port: int) -> list[str]:
        """The command line; port 0 lets the child choose."""
        return [
            *(sys.executable, "-m", "hetero.cli.main", "draft", "serve"),
            *("--card", self.card, "--card-device", self.card_device),
            *("--draft", str(self.draft), "--slots", str(self.num_slots)),
            *_given("--card-ports", self.card_ports),
            *_given("--card-lanes", self.card_lanes),
            *("--listen", f"{LOOPBACK}:{port}"),
            *("--parent-pid", str(os.getpid())),
        ]


def _given(option: str, value: int | None) -> list[str]:
    return [] if value is None else [option, str(value)]


class DraftChild:
    """Keeps one draft server process alive on a fixed loopback port.

    The child runs in a session of its own, so that Ctrl-C reaches us alone and we end it in
    order; should we die first, it notices by its ``--parent-pid``. When it dies it is started
    again, ever more slowly, while the engine decodes without drafts.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        *,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """``command``: the command line for a port to listen on; 0 lets the child choose."""
        self._command = command
        self._start_timeout_s = start_timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._port = 0
        self.num_restarts = 0

    @property
    def address(self) -> str:
        """HOST:PORT, once started."""
        return f"{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def begin(self) -> None:
        """Start the process; others may do their own slow things meanwhile."""
        self._starting = asyncio.create_task(self._spawn(), name="hetero-draft-child-start")

    async def listening(self) -> str:
        """HOST:PORT once the server listens; DraftUnavailableError when it can't be brought up."""
        assert self._starting is not None, "begin() first"
        await self._starting
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch(), name="hetero-draft-child")
        return self.address

    async def stop(self) -> None:
        """End the process, by force if need be. Idempotent."""
        tasks = [task for task in (self._starting, self._watcher) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._starting = self._watcher = None
        await self._end()

    async def _spawn(self) -> None:
        # Shielded: a cancel between fork and assignment would leave a process nobody knows.
        starting = asyncio.create_task(_start_process(self._command(self._port)))
        try:
            self._process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._process = await starting
            await self._end()
            raise
        try:
            self._port = await asyncio.wait_for(_read_port(self._process), self._start_timeout_s)
        except asyncio.TimeoutError:
            await self._end()
            raise DraftUnavailableError(
                f"the draft server did not listen within {self._start_timeout_s:.0f} s. "
                "Is the machine overloaded? Try again, or use --drafter ngram."
            ) from None
        except BaseException:
            await self._end()
            raise

    async def _watch(self) -> None:
        delay_s = RESTART_MIN_S
        loop = asyncio.get_running_loop()
        while True:
            assert self._process is not None
            started_s = loop.time()
            code = await self._process.wait()
            if loop.time() - started_s > RESTART_MAX_S:
                delay_s = RESTART_MIN_S  # it had been well for a while
            logger.warning("draft server ended (exit %d); starting it again", code)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RESTART_MAX_S)
            with contextlib.suppress(DraftUnavailableError):
                await self._spawn()
                self.num_restarts += 1

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()


async def _start_process(command: Sequence[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def _read_port(process: asyncio.subprocess.Process) -> int:
    """The child's one line on stdout says where it listens; no line means that it gave up."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        code = await process.wait()
        raise DraftUnavailableError(
            f"the draft server ended with exit code {code} before it listened; "
            "its own message is above. Mend that, or use --drafter ngram."
        )
    try:
        return int(str(json.loads(line)["listening"]).rpartition(":")[2])
    except (ValueError, KeyError, TypeError):
        raise DraftUnavailableError(
            f"the draft server said {line[:80]!r} instead of where it listens. "
            "Are hetero's installed parts of one version?"
        ) from None
