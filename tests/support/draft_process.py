"""Starts and signals draft server processes: only ever the ones started here, by their pid."""

import asyncio
import json
import signal
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("hash_model_host.py")
START_TIMEOUT_S = 60.0


class DraftProcess:
    """An async context manager around one scripted draft server process."""

    def __init__(self, *args: str, command: tuple[str, ...] | None = None) -> None:
        self._command = (*(command or (sys.executable, str(SCRIPT))), *args)
        self.process: asyncio.subprocess.Process | None = None
        self.address = ""

    async def __aenter__(self) -> "DraftProcess":
        self.process = await asyncio.create_subprocess_exec(
            *self._command, stdout=asyncio.subprocess.PIPE
        )
        line = await asyncio.wait_for(self.process.stdout.readline(), START_TIMEOUT_S)
        ready = json.loads(line)
        assert ready["pid"] == self.process.pid
        self.address = ready["listening"]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        await self.process.wait()
        # Otherwise the transport warns when it is collected.
        self.process._transport.close()

    @property
    def port(self) -> str:
        return self.address.rpartition(":")[2]

    def send_signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    async def wait(self, timeout_s: float = 20.0) -> int:
        return await asyncio.wait_for(self.process.wait(), timeout_s)
