"""Opens a simulated card whose kernel is the accelerator's own RTL."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fpga.driver.driver import DraftCard
from fpga.driver.kernel_port import WaitPolicy
from fpga.program.artefact import load_artefact
from hetero.core.errors import ConfigError
from sim.bitstream import SimBitstream
from sim.calib.profile import CardProfile, KernelModel, load_profile
from sim.memory import DeviceMemory
from sim.open_card import SimCardConfig, built_with, device_class, open_on
from sim.rtl.build import Progress, Source, build_library, card_source
from sim.rtl.fit import check_fits
from sim.rtl.kernel import RtlKernel
from sim.rtl.model import Reach, RtlModel
from sim.rtl.parameters import MemoryTiming, RtlBuild
from sim.rtl.timing import dram_timing

BACKEND: Final = "rtl"
MINUTES_A_LANE: Final = 0.23
"""To build a port's share of a lane: 16 ports x 2 lanes took 7.4 minutes (two shared cores)."""
HUNG_S: Final = 1.0
"""When a start has returned, the card is done or stands still: no need to wait for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RtlCardConfig:
    """As SimCardConfig, and the build. ``cache_dir``: where built libraries are kept.

    ``build`` None: the card's own (fpga/vivado/builds.toml), with sizes that hold SmolLM2-135M.
    ``ports``, ``lanes`` override it; its port_bytes are the card's. ``timing`` None: the card's
    own memory. ``watch`` is told the model once it runs: for traces.
    """

    device: str = "u55c"
    artefact_path: Path
    cache_dir: Path
    progress: Progress
    num_slots: int = 8
    max_context_tokens: int | None = None
    window: int = 0
    ports: int | None = None
    lanes: int | None = None
    build: RtlBuild | None = None
    timing: MemoryTiming | None = None
    watch: Callable[[RtlModel], None] | None = None


def open_rtl_card(cfg: RtlCardConfig) -> DraftCard:
    """A card with a draft loaded; builds the RTL if no earlier run did.

    Raises ConfigError for an unknown card, a draft that does not fit or missing tools,
    ArtefactError for a damaged draft, CardError when pynq is absent or the RTL does not build.
    """
    profile = load_profile(cfg.device)
    build = build_for(profile, cfg)
    artefact = load_artefact(cfg.artefact_path)
    context = cfg.max_context_tokens or artefact.shape.max_context_tokens
    check_fits(artefact, build, context_tokens=context)
    source = card_source(build)
    bitstream = bitstream_for(profile, build, source)
    library = build_library(
        source.with_parameters(
            BUILD_HASH=f"128'h{bitstream.build_hash[::-1].hex()}", CLOCK_HZ=bitstream.clock_hz
        ),
        cfg.cache_dir,
        lambda line: cfg.progress(f"{line}; {_build_time(build)}"),
    )
    timing = cfg.timing or dram_timing(profile, ports=build.ports)

    def make_kernel(loaded: SimBitstream, _: CardProfile, memory: DeviceMemory) -> RtlKernel:
        model = RtlModel(library, memory.data, reach(loaded, memory), timing)
        if cfg.watch is not None:
            cfg.watch(model)
        return RtlKernel(model)

    device = device_class()(profile, f"hetero-rtl-{uuid.uuid4()}", kernel=make_kernel)
    config = SimCardConfig(
        device=cfg.device,
        artefact_path=cfg.artefact_path,
        num_slots=cfg.num_slots,
        max_context_tokens=cfg.max_context_tokens,
        window=cfg.window,
        warm_up=False,
        wait=WaitPolicy(timeout_s=HUNG_S),
    )
    return open_on(device, config, bitstream=bitstream, backend=BACKEND)


def build_for(profile: CardProfile, cfg: RtlCardConfig) -> RtlBuild:
    """The build's parameters on this card; ConfigError for more ports than it has, or for a card
    that nothing is built for."""
    if profile.cost_model_only:
        raise ConfigError(
            f"card_device = {profile.name}: a cost model only, no RTL is built for it: "
            f"{profile.cost_model_only}. Use u55c, or --card sim."
        )
    base = cfg.build or card_build(profile.kernel)
    kernel = built_with(
        profile,
        ports=cfg.ports or min(base.ports, profile.kernel.ports),
        lanes=cfg.lanes or base.lanes,
    ).kernel
    arrays = base.arrays if base.arrays >= kernel.max_lanes else 0
    return replace(
        base,
        ports=kernel.ports,
        lanes=kernel.max_lanes,
        arrays=arrays,
        port_bytes=kernel.port_beat_bytes,
    )


def card_build(kernel: KernelModel) -> RtlBuild:
    """What cycles depend on as on the card, sizes as by default."""
    return RtlBuild(
        ports=kernel.ports,
        port_bytes=kernel.port_beat_bytes,
        lanes=kernel.max_lanes,
        arrays=kernel.arrays,
        array_bytes=kernel.array_bytes,
        attn_heads=kernel.attention_heads,
        attn_bytes=kernel.attention_bytes,
        fifo_beats=kernel.fifo_beats,
        slr_stages=kernel.slr_stages,
    )


def _build_time(build: RtlBuild) -> str:
    minutes = max(1, round(MINUTES_A_LANE * build.ports * build.lanes))
    return (
        f"{build.ports} ports x {build.lanes} lanes take about {minutes} min on two cores, "
        "fewer ones less (--card-ports, --card-lanes)"
    )


def bitstream_for(profile: CardProfile, build: RtlBuild, source: Source) -> SimBitstream:
    """What the driver loads: says what the RTL was built with."""
    return replace(
        SimBitstream.for_card(profile),
        port_banks=tuple(port % profile.memory.banks for port in range(build.ports)),
        max_lanes=build.lanes,
        max_read_tokens=build.max_read_tokens,
        max_draft_tokens=build.max_draft_tokens,
        vector_words=build.vector_words,
        rtl_sha256=source.sha256(),
    )


def reach(bitstream: SimBitstream, memory: DeviceMemory) -> list[Reach]:
    """The bank that each port is wired to."""
    banks = [memory.banks[index] for index in bitstream.port_banks]
    return [Reach(bank.base_address, bank.end) for bank in banks]
