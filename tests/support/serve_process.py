"""`hetero serve` as a real process, for tests that talk to it, signal it and wait for its end."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

START_TIMEOUT_S = 120
END_TIMEOUT_S = 60


@dataclass
class ServeProcess:
    """A running service. ``stderr`` collects what it says."""

    process: subprocess.Popen
    stderr: list[str] = field(default_factory=list)
    http: str = ""
    grpc: str = ""

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Exit code; a process that does not end fails the test."""
        return self.process.wait(END_TIMEOUT_S)

    def said(self) -> str:
        return "".join(self.stderr)


def command(target: Path, *options: str) -> list[str]:
    hetero = [sys.executable, "-m", "hetero.cli.main", "serve", "--target", str(target)]
    return [*hetero, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--json", *options]


def environment(cache_dir: Path) -> dict[str, str]:
    return {**os.environ, "HETERO_CACHE": str(cache_dir), "OMP_NUM_THREADS": "1"}


@contextmanager
def _starting(target: Path, cache_dir: Path, *options: str):
    """The process, not waited for; ended on the way out, if the test has not done so."""
    process = subprocess.Popen(
        command(target, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(cache_dir),
    )
    with process:
        server = ServeProcess(process)
        reader = threading.Thread(target=lambda: server.stderr.extend(process.stderr))
        reader.start()
        try:
            yield server
        finally:
            _end(server)
            reader.join()


def _end(server: ServeProcess) -> None:
    if server.process.poll() is None:
        server.signal(signal.SIGTERM)
    try:
        server.wait()
    except subprocess.TimeoutExpired:
        server.process.kill()
        raise


@contextmanager
def serve(target: Path, cache_dir: Path, *options: str):
    """A service that is ready."""
    with _starting(target, cache_dir, *options) as server:
        watchdog = threading.Timer(START_TIMEOUT_S, server.process.kill)
        watchdog.start()
        line = server.process.stdout.readline()
        watchdog.cancel()
        assert line, f"hetero serve did not start:\n{server.said()}"
        addresses = json.loads(line)
        server.http, server.grpc = addresses["http"], addresses["grpc"]
        assert addresses["pid"] == server.process.pid
        yield server
