"""The run behind ``hetero bench``: groups of requests through every mode, and the sums."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from hetero.cli.requests import card_json, encode_prompt, make_request
from hetero.cli.step_times import StepTimes
from hetero.cli.tables import number, percentile
from hetero.core import figures
from hetero.core.errors import ConfigError, HeteroError
from hetero.core.types import CardUsage, Finish, GenerationRequest, SpeculativeParams
from hetero.core.validation import SamplingWishes
from hetero.scheduler.observer import StepReport
from hetero.services.engine_host import EngineHost

WARM_UP_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to decode."""

    name: str  # "plain" or "speculative"
    drafter: str
    k: int

    @property
    def label(self) -> str:
        """For people."""
        return "plain" if self.name == "plain" else f"{self.drafter} K={self.k}"

    @property
    def speculative(self) -> SpeculativeParams:
        """What a request of this mode asks for."""
        if self.name == "plain":
            return SpeculativeParams(enabled=False)
        return SpeculativeParams(method=self.drafter, num_speculative_tokens=self.k)


def modes_of(drafters: Sequence[str], lengths: Sequence[int]) -> list[Mode]:
    """Plain, then every drafter with every K."""
    return [
        Mode("plain", "none", 0),
        *(Mode("speculative", d, k) for d in drafters for k in lengths),
    ]


def read_prompts(path: Path, limit: int | None) -> list[str]:
    """First turns (or ``prompt``) of a JSON-lines file; ConfigError naming the line at fault."""
    try:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--dataset {path}: {error}. Name a readable file.") from error
    prompts = [_prompt_of(path, i, line) for i, line in enumerate(lines[:limit], 1)]
    if not prompts:
        raise ConfigError(f"--dataset {path}: holds no lines. Name a file with prompts.")
    return prompts


def _prompt_of(path: Path, line_number: int, line: str) -> str:
    try:
        row = json.loads(line)
        prompt = row["turns"][0] if "turns" in row else row["prompt"]
        if isinstance(prompt, str):
            return prompt
    except (ValueError, KeyError, IndexError, TypeError):
        pass
    raise ConfigError(
        f"--dataset {path}, line {line_number}: must be a JSON object with `turns`, a list of "
        "strings, or `prompt`, a string."
    )


@dataclass(slots=True)
class Record:
    """Everything measured in one mode. Wall-clock seconds."""

    wall_s: float = 0.0
    ttft_s: list[float] = field(default_factory=list)
    itl_s: list[float] = field(default_factory=list)
    outputs: list[tuple[int, ...]] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    steps: list[StepReport] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Answers' tokens."""
        return sum(map(len, self.outputs))

    @property
    def tokens_per_s(self) -> float:
        """Over all requests, prompts included in the time."""
        return self.num_tokens / self.wall_s


class Bench:
    """Runs prompts through modes on one engine."""

    def __init__(
        self, host: EngineHost, modes: Sequence[Mode], wishes: SamplingWishes, steps: StepTimes
    ) -> None:
        self._host = host
        self._modes = list(modes)
        self._wishes = wishes
        self._steps = steps
        self._records = {mode: Record() for mode in self._modes}

    async def run(
        self, prompts: Sequence[str], *, concurrency: int, progress: Callable[[str], None]
    ) -> None:
        """Warm up, then take groups of ``concurrency`` prompts through every mode in turn."""
        await self._warm_up(prompts[0])
        groups = [
            list(enumerate(prompts))[i : i + concurrency]
            for i in range(0, len(prompts), concurrency)
        ]
        for number_, group in enumerate(groups):
            turn = number_ % len(self._modes)
            for mode in [*self._modes[turn:], *self._modes[:turn]]:
                await self._run_group(mode, group)
            progress(f"{min((number_ + 1) * concurrency, len(prompts))} of {len(prompts)} prompts")

    async def _warm_up(self, prompt: str) -> None:
        for mode in self._modes:
            wishes = replace(self._wishes, max_tokens=WARM_UP_TOKENS)
            await self._run_one(self._request(mode, 0, prompt, wishes), Record())
        self._steps.take()

    async def _run_group(self, mode: Mode, group: Sequence[tuple[int, str]]) -> None:
        record = self._records[mode]
        requests = [self._request(mode, i, prompt, self._wishes) for i, prompt in group]
        started_s = time.perf_counter()
        outputs = await asyncio.gather(*(self._run_one(one, record) for one in requests))
        record.wall_s += time.perf_counter() - started_s
        record.outputs += outputs
        record.steps += self._steps.take()

    def _request(
        self, mode: Mode, index: int, prompt: str, wishes: SamplingWishes
    ) -> GenerationRequest:
        """The same request whatever the mode; each prompt has a seed of its own."""
        return make_request(
            self._host,
            encode_prompt(self._host, prompt, raw=False),
            replace(wishes, seed=(wishes.seed or 0) + index),
            mode.speculative,
            request_id=f"{mode.label} #{index}",
        )

    async def _run_one(self, request: GenerationRequest, record: Record) -> tuple[int, ...]:
        """Read one answer, timing each delivery.

        A delivery of several tokens spreads the time since the one before over all of them.
        """
        token_ids: list[int] = []
        last_s = time.perf_counter()
        async for delta in self._host.engine.generate(request):
            now_s = time.perf_counter()
            if token_ids and delta.token_ids:
                gap_s = (now_s - last_s) / len(delta.token_ids)
                record.itl_s += [gap_s] * len(delta.token_ids)
            elif delta.token_ids:
                record.ttft_s.append(now_s - last_s)
            last_s = now_s
            token_ids += delta.token_ids
            if delta.finish is not None:
                if delta.finish.error is not None:
                    raise HeteroError(f"{request.request_id}: {delta.finish.error}")
                record.finishes.append(delta.finish)
        return tuple(token_ids)

    # ---- the sums -----------------------------------------------------------------------------

    def report(self, *, concurrency: int) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        plain = self._records[self._modes[0]]
        others = [self._records[mode] for mode in self._modes[1:]]
        best = max((record.tokens_per_s for record in others), default=None)
        return {
            "runs": [self._run_json(mode, concurrency) for mode in self._modes],
            "speedup": None if best is None else best / plain.tokens_per_s,
            "mismatched_tokens": sum(
                mismatches(mine, theirs)
                for record in others
                for mine, theirs in zip(plain.outputs, record.outputs, strict=True)
            ),
            "step_ms": _median_step_ms(plain),
            "num_requests": len(plain.outputs),
            "model": self._host.engine.info.model_name,
            "system_fingerprint": self._host.engine.info.system_fingerprint,
            "machine": self._machine(),
        }

    def _run_json(self, mode: Mode, concurrency: int) -> dict[str, Any]:
        record = self._records[mode]
        stats = figures.add_up(finish.speculation for finish in record.finishes)
        usage = sum((finish.card for finish in record.finishes), CardUsage())
        card = self._host.card if mode.drafter == "card" else None
        return {
            "mode": mode.name,
            "drafter": mode.drafter,
            "k": mode.k,
            "temperature": self._wishes.temperature,
            "concurrency": concurrency,
            "tokens_per_s": record.tokens_per_s,
            "mean_acceptance_length": figures.mean_acceptance_length(stats),
            "draft_acceptance_rate": figures.acceptance_rate(stats),
            "acceptance_per_position": figures.acceptance_per_position(stats, mode.k),
            "ttft_p50_s": percentile(record.ttft_s, 50),
            "itl_p50_s": percentile(record.itl_s, 50),
            "itl_p99_s": percentile(record.itl_s, 99),
            "num_tokens": record.num_tokens,
            "wall_s": record.wall_s,
            "step_ms": _median_step_ms(record),
            "draft_wait_s": sum(step.draft_s for step in record.steps),
            "card": card_json(card, usage),
            "fallbacks": _add_counts(record.finishes),
        }

    def _machine(self) -> dict[str, Any]:
        info = self._host.engine.info
        return {
            "cpu": cpu_name(),
            "cores": os.cpu_count(),
            "threads": self._host.threads,
            "torch": metadata.version("torch"),
            "device": info.device,
            "dtype": info.dtype,
        }


def mismatches(one: Sequence[int], other: Sequence[int]) -> int:
    """Positions where two outputs differ; a missing or extra token counts."""
    differing = sum(a != b for a, b in zip(one, other, strict=False))
    return differing + abs(len(one) - len(other))


def cpu_name() -> str | None:
    """Model name of the processor, where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)


def _median_step_ms(record: Record) -> float | None:
    times = [step.verify_s for step in record.steps]
    return median(times) * 1e3 if times else None


def _add_counts(finishes: Sequence[Finish]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for finish in finishes:
        for reason, count in finish.fallbacks.items():
            counts[reason] = counts.get(reason, 0) + count
    return counts


def print_report(report: dict[str, Any]) -> None:
    """The table for people, on standard output."""
    table = Table()
    for title in ("mode", "tokens/s", "mean acceptance", "step ms", "ttft p50 ms", "itl p99 ms"):
        table.add_column(title, justify="right")
    for run in report["runs"]:
        table.add_row(
            Mode(run["mode"], run["drafter"], run["k"]).label,
            f"{run['tokens_per_s']:.1f}",
            number(run["mean_acceptance_length"]),
            number(run["step_ms"]),
            _milliseconds(run["ttft_p50_s"]),
            _milliseconds(run["itl_p99_s"]),
        )
    console = Console()
    console.print(table)
    machine = report["machine"]
    text = (
        f"best speculative / plain: {number(report['speedup'])}; mismatched tokens: "
        f"{report['mismatched_tokens']}. Measured on {machine['cpu']}, {machine['threads']} "
        f"threads, {machine['dtype']}."
    )
    if any(run["card"]["simulated"] for run in report["runs"]):
        text += (
            " The card is simulated on this machine, which costs wall time that a card would not."
        )
    console.print(text, highlight=False)


def _milliseconds(value_s: float | None) -> str:
    return number(None if value_s is None else value_s * 1e3)
