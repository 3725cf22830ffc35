"""Opens a simulated card: a pynq Device of ours below the driver that boards use too."""

import logging
import tempfile
import threading
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fpga.driver.driver import CardIdentity, DraftCard, DriverConfig
from fpga.driver.faults import card_errors
from fpga.driver.kernel_port import WaitPolicy
from fpga.program.artefact import load_artefact
from hetero.core.errors import CardError, ConfigError
from hetero.core.types import LaneWork
from sim.bitstream import SimBitstream
from sim.calib.profile import CardProfile, load_profile

if TYPE_CHECKING:
    from sim.device import SimulatedDevice

BACKEND: Final = "functional"
WARM_UP_TALK_S: Final = 5.0
"""A warm-up that takes longer compiles; say so."""

_LOG: Final = logging.getLogger(__name__)
_WARM_UP_WORK: Final = LaneWork(
    slot=0,
    start=0,
    token_ids=(0,),
    num_draft_tokens=2,
    output_index=0,
    seed=0,
    choice_index=0,
    temperature=0.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimCardConfig:
    """``device``: a card of sim/calib. ``max_context_tokens`` None: what the draft was built for.

    ``window``: how many positions a token sees, its own included; 0: all. ``ports``,
    ``lanes`` None: as the card's profile says. ``warm_up``: run a token at once, so that the first
    draft does not wait for numba.
    """

    device: str = "u55c"
    artefact_path: Path
    num_slots: int = 8
    max_context_tokens: int | None = None
    window: int = 0
    ports: int | None = None
    lanes: int | None = None
    warm_up: bool = True
    wait: WaitPolicy = field(default_factory=WaitPolicy)


def open_sim_card(cfg: SimCardConfig) -> DraftCard:
    """A simulated card with a draft loaded.

    Raises ConfigError for an unknown card or a draft that does not fit it, ArtefactError for a
    damaged one, CardError when pynq is absent.
    """
    profile = built_with(load_profile(cfg.device), ports=cfg.ports, lanes=cfg.lanes)
    device = device_class()(profile, tag=f"hetero-sim-{uuid.uuid4()}")
    return open_on(device, cfg)


def built_with(profile: CardProfile, *, ports: int | None, lanes: int | None) -> CardProfile:
    """The card with fewer ports or other lanes; ConfigError for what it cannot have."""
    kernel = profile.kernel
    ports, lanes = ports or kernel.ports, lanes or kernel.max_lanes
    if ports > kernel.ports:
        raise ConfigError(f"card_ports = {ports}: the {profile.name} has {kernel.ports}.")
    for name, value in (("card_ports", ports), ("card_lanes", lanes)):
        if value & (value - 1):
            raise ConfigError(f"{name} = {value}: use a power of two.")
    return replace(profile, kernel=replace(kernel, ports=ports, max_lanes=lanes))


def device_class() -> "type[SimulatedDevice]":
    """pynq is imported only when a card is opened."""
    try:
        from sim.device import SimulatedDevice
    except ImportError as error:
        raise CardError(
            f"simulated card: {error}. Install the card extra: pip install 'hetero[card]'."
        ) from error
    return SimulatedDevice


def open_on(
    device: "SimulatedDevice",
    cfg: SimCardConfig,
    *,
    bitstream: SimBitstream | None = None,
    backend: str = BACKEND,
) -> DraftCard:
    """The same on a device that the caller made, for instance one with faults.

    ``bitstream`` None: the build that the card's profile describes.
    """
    artefact = load_artefact(cfg.artefact_path)
    identity = CardIdentity(
        device=cfg.device,
        backend=backend,
        simulated=True,
        start_overhead_s=device.profile.host.seconds,
    )
    config = DriverConfig(
        num_slots=cfg.num_slots,
        max_context_tokens=cfg.max_context_tokens,
        window=cfg.window,
        wait=cfg.wait,
    )
    overlay = load_overlay(device, bitstream or SimBitstream.for_card(device.profile))
    card = DraftCard(overlay, artefact, identity, config=config, on_close=device.release)
    if cfg.warm_up:
        _warm_up(card)
    return card


def _warm_up(card: DraftCard) -> None:
    """Touch every kernel: reading, drafting, greedily and not."""
    slow = threading.Timer(WARM_UP_TALK_S, _LOG.info, ["compiling the simulator (once, 20 s)"])
    slow.start()
    try:
        for temperature in (0.0, 1.0):
            card.run([replace(_WARM_UP_WORK, temperature=temperature)])
    finally:
        slow.cancel()


def load_overlay(device: "SimulatedDevice", bitstream: SimBitstream) -> Any:
    """What ``pynq.Overlay`` makes of a bitstream on a device; pynq insists on a file."""
    from pynq import Overlay

    with tempfile.TemporaryDirectory(prefix="hetero-sim-") as folder:
        path = Path(folder) / f"{bitstream.device}.json"
        path.write_text(bitstream.to_json(), encoding="utf-8")
        with card_errors(f"loading the bitstream for {bitstream.device}"):
            return Overlay(str(path), device=device)
