"""Runs decoded tokens on the RTL and on the cycle model, and counts.

A start costs something once, so a token's cycles are the difference of two starts that differ in
the number of drafted tokens only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.driver.lanes import lane_command
from fpga.program import isa
from fpga.program.artefact import load_artefact
from fpga.program.link import link_program, unlink_program
from hetero.core.errors import ConfigError
from hetero.core.types import LaneWork
from sim.calib.profile import CardProfile, KernelModel, load_profile
from sim.cycles.model import CycleModel
from sim.report.information import pass_bytes
from sim.rtl.build import Progress
from sim.rtl.model import RtlModel
from sim.rtl.open_card import RtlCardConfig, card_build, open_rtl_card
from sim.rtl.parameters import MemoryTiming, RtlBuild
from sim.rtl.timing import dram_timing, ideal_timing

FEW_TOKENS: Final = 2
MANY_TOKENS: Final = 5
MAX_TRACE_CYCLES: Final = 1 << 24
MEMORIES: Final = ("ideal", "card")
RTL_PORTS: Final = 4
"""More take long to build, and figures of 16 and 32 ports are left to the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What to run. ``position``: where the first token is read; what lies before is not read in.

    ``memory``: ideal (the card's latency, then a beat a cycle and port), or card (its banks,
    refresh and peak rate). ``ports`` None: 4, or what the card has. ``build`` None: the card's own,
    with these ports and lanes.
    """

    device: str = "u55c"
    draft: Path
    cache_dir: Path
    progress: Progress
    ports: int | None = None
    lanes: int = 1
    position: int = 250
    memory: str = "ideal"
    build: RtlBuild | None = None

    def __post_init__(self) -> None:
        if self.memory not in MEMORIES:
            raise ConfigError(f"memory = {self.memory!r}: use one of {', '.join(MEMORIES)}.")
        if self.position < 0:
            raise ConfigError(f"position = {self.position}: use 0 or more.")

    @property
    def num_ports(self) -> int:
        """Of the RTL that is run."""
        return self.ports or min(RTL_PORTS, load_profile(self.device).kernel.ports)


@dataclass(frozen=True, slots=True, kw_only=True)
class RtlFigures:
    """Of one decoded token in each lane. ``trace``: uint32 [cycle, (units, op)] of one token."""

    cycles_per_token: float
    ideal_cycles_per_token: float
    information_bytes: float
    bytes_per_cycle: int
    trace: NDArray[np.uint32]

    @property
    def utilisation(self) -> float:
        """Information bytes over what the ports could have carried meanwhile."""
        return self.information_bytes / (self.cycles_per_token * self.bytes_per_cycle)


def measure_rtl(cfg: RunConfig) -> RtlFigures:
    """Build the RTL if needed, open it as a card, and run two starts."""
    profile = load_profile(cfg.device)
    models: list[RtlModel] = []
    card = open_rtl_card(
        RtlCardConfig(
            device=cfg.device,
            artefact_path=cfg.draft,
            cache_dir=cfg.cache_dir,
            progress=cfg.progress,
            num_slots=cfg.lanes,
            max_context_tokens=cfg.position + MANY_TOKENS + 1,
            ports=cfg.num_ports,
            lanes=cfg.lanes,
            build=cfg.build,
            timing=timing_of(cfg, profile),
            watch=models.append,
        )
    )
    try:
        cfg.progress(f"running {FEW_TOKENS + MANY_TOKENS} tokens of {cfg.lanes} lanes in RTL")
        few = card.run(work(cfg, FEW_TOKENS)).usage.cycles
        models[-1].start_trace(MAX_TRACE_CYCLES)
        many = card.run(work(cfg, MANY_TOKENS)).usage.cycles
        trace = one_token(models[-1].end_trace())
    finally:
        card.close()
    information = information_bytes(cfg)
    bytes_per_cycle = cfg.num_ports * profile.kernel.port_beat_bytes
    return RtlFigures(
        cycles_per_token=(many - few) / (MANY_TOKENS - FEW_TOKENS),
        ideal_cycles_per_token=information / bytes_per_cycle,
        information_bytes=information,
        bytes_per_cycle=bytes_per_cycle,
        trace=trace,
    )


def timing_of(cfg: RunConfig, profile: CardProfile) -> MemoryTiming:
    """Around the RTL, and in the model that stands beside it."""
    if cfg.memory == "card":
        return dram_timing(profile, ports=cfg.num_ports)
    return ideal_timing(profile)


def work(cfg: RunConfig, num_tokens: int) -> list[LaneWork]:
    """The same in every lane."""
    return [
        LaneWork(
            slot=lane,
            start=cfg.position,
            token_ids=(1 + lane,),
            num_draft_tokens=num_tokens,
            output_index=0,
            seed=1,
            choice_index=0,
            temperature=1.0,
        )
        for lane in range(cfg.lanes)
    ]


def information_bytes(cfg: RunConfig) -> float:
    """Mean over the passes in which the two starts differ, a token in every lane."""
    program = load_artefact(cfg.draft).program
    positions = range(cfg.position + FEW_TOKENS, cfg.position + MANY_TOKENS)
    return float(np.mean([pass_bytes(program, [p] * cfg.lanes) for p in positions]))


def model_cycles(cfg: RunConfig) -> float:
    """Cycles of such a token by the cycle model, with the same build and memory."""
    profile = load_profile(cfg.device)
    build = replace(
        cfg.build or card_build(profile.kernel),
        ports=cfg.num_ports,
        lanes=cfg.lanes,
        port_bytes=profile.kernel.port_beat_bytes,
    )
    if build.arrays < build.lanes:
        build = replace(build, arrays=0)
    kernel = KernelModel.of_build(build.verilog(), profile.kernel.clock_hz)
    built = replace(profile, kernel=kernel)
    return modelled_token(cycle_model(cfg.draft, built, timing_of(cfg, profile)), cfg)


def cycle_model(
    draft: Path, profile: CardProfile, timing: MemoryTiming | None = None
) -> CycleModel:
    """Of a draft on a card as its profile describes it; ``timing`` None: with its own memory."""
    linked = link_program(load_artefact(draft), profile.kernel.ports)
    program = unlink_program(linked.words, profile.kernel.ports)
    return CycleModel(program, profile, timing=timing)


def modelled_token(model: CycleModel, cfg: RunConfig) -> float:
    """As measured: the difference of two starts."""
    few, many = (
        model.start([lane_command(lane) for lane in work(cfg, count)]).cycles
        for count in (FEW_TOKENS, MANY_TOKENS)
    )
    return (many - few) / (MANY_TOKENS - FEW_TOKENS)


def one_token(trace: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The last whole token of a trace: from one EMBED's begin to the next one's."""
    begins = embeds(trace[:, 1])
    if len(begins) < 2:
        raise ConfigError("the trace holds no whole token: trace more cycles.")
    return trace[begins[-2] : begins[-1]]


def embeds(op_c: NDArray[np.uint32]) -> Sequence[int]:
    """Cycles in which an EMBED becomes the instruction in execution."""
    is_embed = (op_c >> 24) == isa.Embed.opcode
    begins: list[int] = np.flatnonzero(is_embed & ~np.roll(is_embed, 1)).tolist()
    return begins
