"""What the accelerator reaches in RTL, all of it in one run: the table of docs/accelerator.md.

A token's cycles are the difference of two starts (sim/report/measure.py). Drafts are random ones:
no cycle depends on a value. Everything but ``WallSpeed`` is simulated time.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from fpga.driver.driver import DraftCard
from fpga.program.layout import BEAT_BYTES
from hetero.core.types import LaneWork
from sim.calib.profile import load_profile
from sim.cycles.dram import dram, serve
from sim.report.measure import (
    FEW_TOKENS,
    MANY_TOKENS,
    RunConfig,
    information_bytes,
    timing_of,
    work,
)
from sim.rtl.open_card import RtlCardConfig, card_build, open_rtl_card
from sim.rtl.parameters import MemoryTiming
from sim.shapes import cached_draft

LANES: Final = 4
LANE_POSITIONS: Final = (100, 250, 1000, 2000)
LANE_DRAFTS: Final = ("10m", "15m")
DRAFTS: Final = ("5m", "10m", "15m")
POSITION: Final = 250
PREFILL_TOKENS: Final = 512
SPEED_DRAFT: Final = "10m"
SPEED_TOKENS: Final = 16
CONTEXT_TOKENS: Final = 2048
STREAM_BEATS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFigure:
    """One lane. ``deliverable``: the share of the ports that the memory can fill at best."""

    draft: str
    memory: str
    cycles_per_token: float
    utilisation: float
    deliverable: float

    @property
    def of_deliverable(self) -> float:
        """What is used of what can be had."""
        return self.utilisation / self.deliverable


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFigure:
    """A token in each of ``lanes``, against a token in one, on the same build."""

    draft: str
    position: int
    lanes: int
    cycles_one: float
    cycles_all: float
    bytes_ratio: float

    @property
    def ratio(self) -> float:
        """Of cycles."""
        return self.cycles_all / self.cycles_one


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFigure:
    """Reading a prompt in ``lanes`` rows a pass, against as many decode steps of one lane.

    ``share``: of the decode steps' cycles; ``lanes`` rows at no cost would take 1 / lanes.
    """

    draft: str
    tokens: int
    lanes: int
    cycles: int
    decode_cycles: float

    @property
    def share(self) -> float:
        """Prefill's cycles over those of decode steps."""
        return self.cycles / self.decode_cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class WallSpeed:
    """How fast Verilator drafts on this computer, one thread."""

    draft: str
    tokens_per_s: float
    cycles_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Everything."""

    ports: int
    tokens: tuple[TokenFigure, ...]
    lanes: tuple[LaneFigure, ...]
    prefill: PrefillFigure
    speed: WallSpeed


def measure_figures(cfg: RunConfig, *, prefill_lanes: int = LANES) -> Figures:
    """Builds the RTL two or three times. ``cfg``: its draft, lanes, position are not used.

    Other ``prefill_lanes`` than LANES have as few array slices as there may be.
    """
    tokens = [
        _token(named(cfg, draft), memory, draft) for memory in ("ideal", "card") for draft in DRAFTS
    ]
    wide = _wide(cfg, LANES)
    lanes = [figure for draft in LANE_DRAFTS for figure in _lanes(named(wide, draft), draft)]
    reader = wide if prefill_lanes == LANES else replace(cfg, lanes=prefill_lanes)
    return Figures(
        ports=cfg.num_ports,
        tokens=tuple(tokens),
        lanes=tuple(lanes),
        prefill=_prefill(named(reader, SPEED_DRAFT), prefill_lanes),
        speed=_speed(named(cfg, SPEED_DRAFT)),
    )


def named(cfg: RunConfig, draft: str) -> RunConfig:
    """With a random draft of sim/shapes.py."""
    return replace(cfg, draft=cached_draft(draft, cfg.cache_dir / "drafts", cfg.progress))


def deliverable(timing: MemoryTiming, ports: int, port_bytes: int) -> float:
    """Share of the ports' bytes that one endless sequential read of each channel gets.

    Through the memory model that the RTL runs against, statement for statement.
    """
    memory = dram(timing)
    end = max(int(serve(memory, 0, beat * BEAT_BYTES, 0, 0)) for beat in range(STREAM_BEATS))
    channel_bytes_per_cycle = STREAM_BEATS * BEAT_BYTES / end
    return min(1.0, channel_bytes_per_cycle * min(timing.channels, ports) / (ports * port_bytes))


def _wide(cfg: RunConfig, lanes: int) -> RunConfig:
    """A build in which full passes take two beats a cycle too."""
    build = replace(card_build(load_profile(cfg.device).kernel), arrays=2 * lanes)
    return replace(cfg, build=build, lanes=lanes)


@contextmanager
def _card(cfg: RunConfig) -> Iterator[DraftCard]:
    card = open_rtl_card(
        RtlCardConfig(
            device=cfg.device,
            artefact_path=cfg.draft,
            cache_dir=cfg.cache_dir,
            progress=cfg.progress,
            num_slots=cfg.lanes,
            max_context_tokens=CONTEXT_TOKENS,
            ports=cfg.num_ports,
            lanes=cfg.lanes,
            build=cfg.build,
            timing=timing_of(cfg, load_profile(cfg.device)),
        )
    )
    try:
        yield card
    finally:
        card.close()


def _cycles(card: DraftCard, cfg: RunConfig) -> float:
    """Of a token in each of ``cfg.lanes``."""
    few, many = (card.run(work(cfg, n)).usage.cycles for n in (FEW_TOKENS, MANY_TOKENS))
    return (many - few) / (MANY_TOKENS - FEW_TOKENS)


def _token(cfg: RunConfig, memory: str, name: str) -> TokenFigure:
    cfg = replace(cfg, memory=memory, position=POSITION, lanes=1)
    cfg.progress(f"a token of {name}, {memory} memory")
    profile = load_profile(cfg.device)
    with _card(cfg) as card:
        cycles = _cycles(card, cfg)
    port_bytes = profile.kernel.port_beat_bytes
    return TokenFigure(
        draft=name,
        memory=memory,
        cycles_per_token=cycles,
        utilisation=information_bytes(cfg) / (cycles * cfg.num_ports * port_bytes),
        deliverable=1.0
        if memory == "ideal"
        else deliverable(timing_of(cfg, profile), cfg.num_ports, port_bytes),
    )


def _lanes(cfg: RunConfig, name: str) -> Iterator[LaneFigure]:
    with _card(cfg) as card:
        for position in LANE_POSITIONS:
            cfg.progress(f"{cfg.lanes} lanes of {name} at position {position}")
            here = replace(cfg, position=position)
            alone = replace(here, lanes=1)
            yield LaneFigure(
                draft=name,
                position=position,
                lanes=cfg.lanes,
                cycles_one=_cycles(card, alone),
                cycles_all=_cycles(card, here),
                bytes_ratio=information_bytes(here) / information_bytes(alone),
            )


def _prefill(cfg: RunConfig, lanes: int) -> PrefillFigure:
    cfg.progress(f"reading {PREFILL_TOKENS} tokens, {lanes} a pass")
    prompt = LaneWork(
        slot=0,
        start=0,
        token_ids=tuple(1 + i % 199 for i in range(PREFILL_TOKENS)),
        num_draft_tokens=0,
        output_index=0,
        seed=1,
        choice_index=0,
        temperature=1.0,
    )
    with _card(cfg) as card:
        cycles = card.run([prompt]).usage.cycles
        # Context grows evenly, so a step in the middle is the mean one.
        step = _cycles(card, replace(cfg, lanes=1, position=PREFILL_TOKENS // 2))
    return PrefillFigure(
        draft=SPEED_DRAFT,
        tokens=PREFILL_TOKENS,
        lanes=lanes,
        cycles=cycles,
        decode_cycles=step * PREFILL_TOKENS,
    )


def _speed(cfg: RunConfig) -> WallSpeed:
    cfg.progress(f"drafting {SPEED_TOKENS} tokens against the clock on the wall")
    cfg = replace(cfg, lanes=1, position=POSITION, memory="ideal")
    with _card(cfg) as card:
        card.run(work(cfg, 1))  # loads the program
        begin = time.perf_counter()
        cycles = card.run(work(cfg, SPEED_TOKENS)).usage.cycles
        seconds = time.perf_counter() - begin
    return WallSpeed(
        draft=SPEED_DRAFT, tokens_per_s=SPEED_TOKENS / seconds, cycles_per_s=cycles / seconds
    )
