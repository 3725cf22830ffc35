"""The card host's process: open a card, serve it until told to stop."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hetero.core.errors import ConfigError
from hetero.core.ports import CardDriver
from hetero.draft_server.config import DraftServerConfig
from hetero.draft_server.server import DraftServer

DEFAULT_LISTEN = "127.0.0.1:50052"
PARENT_POLL_S = 0.5

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftHostConfig:
    """What to serve, and where.

    ``draft``: folder of a built artefact. ``bitfile``: for a board or a card, ``card_index``: which
    of several cards. ``card_ports``, ``card_lanes``: of a simulated card, None: as its kind has.
    ``cache_dir``: where built RTL is kept. ``parent_pid``: end when that process ends.
    ``drain_s``: at the end, how long to wait for the start that the card is in.
    """

    draft: Path
    card: str = "sim"
    card_device: str = "u55c"
    bitfile: Path | None = None
    card_index: int = 0
    card_ports: int | None = None
    card_lanes: int | None = None
    cache_dir: Path | None = None
    listen: str = DEFAULT_LISTEN
    num_slots: int = 8
    parent_pid: int | None = None
    drain_s: float = 5.0
    server: DraftServerConfig = field(default_factory=DraftServerConfig)

    def __post_init__(self) -> None:
        if self.num_slots < 1:
            raise ConfigError(f"slots = {self.num_slots}: use at least 1.")


OpenCard = Callable[[DraftHostConfig], CardDriver]


def open_sim(cfg: DraftHostConfig) -> CardDriver:
    """The simulated card."""
    from sim.open_card import SimCardConfig, open_sim_card

    return open_sim_card(
        SimCardConfig(
            device=cfg.card_device,
            artefact_path=cfg.draft,
            num_slots=cfg.num_slots,
            ports=cfg.card_ports,
            lanes=cfg.card_lanes,
        )
    )


def open_board(cfg: DraftHostConfig) -> CardDriver:
    """A Zynq or Kria board that this process runs on, through stock pynq."""
    from fpga.driver.driver import DriverConfig
    from fpga.driver.open_board import BoardConfig, open_pynq_card

    if cfg.bitfile is None:
        raise ConfigError("bitfile: not set. --card pynq needs --bitfile X.bit, X.hwh beside it.")
    return open_pynq_card(
        BoardConfig(
            bitfile=cfg.bitfile,
            artefact_path=cfg.draft,
            device=cfg.card_device,
            driver=DriverConfig(num_slots=cfg.num_slots),
        )
    )


def open_rtl(cfg: DraftHostConfig) -> CardDriver:
    """The simulated card with the accelerator's RTL in it; builds it at first use."""
    from hetero.models.registry import default_cache_dir
    from sim.rtl.open_card import RtlCardConfig, open_rtl_card

    return open_rtl_card(
        RtlCardConfig(
            device=cfg.card_device,
            artefact_path=cfg.draft,
            cache_dir=cfg.cache_dir or default_cache_dir(),
            progress=_LOG.info,
            num_slots=cfg.num_slots,
            ports=cfg.card_ports,
            lanes=cfg.card_lanes,
        )
    )


def open_alveo(cfg: DraftHostConfig) -> CardDriver:
    """An Alveo card in this host, through XRT."""
    from fpga.driver.driver import DriverConfig
    from fpga.driver.open_alveo import AlveoConfig, open_alveo_card

    if cfg.bitfile is None:
        raise ConfigError(
            "bitfile: not set. --card xrt needs --bitfile X.xclbin, X.json beside it."
        )
    return open_alveo_card(
        AlveoConfig(
            bitfile=cfg.bitfile,
            artefact_path=cfg.draft,
            index=cfg.card_index,
            driver=DriverConfig(num_slots=cfg.num_slots),
        )
    )


CARDS: Mapping[str, OpenCard] = {
    "sim": open_sim,
    "rtl": open_rtl,
    "pynq": open_board,
    "xrt": open_alveo,
}
"""``--card`` -> how to open it. The only place where the words simulator and card meet."""


def run_draft_host(cfg: DraftHostConfig, *, cards: Mapping[str, OpenCard] = CARDS) -> None:
    """Open the card, print one JSON line when ready, serve until SIGTERM, SIGINT or orphaned.

    Raises ConfigError for a bad setting, ArtefactError or CardError when the card can't be opened.
    """
    if cfg.card not in cards:
        raise ConfigError(f"card = {cfg.card!r}: use one of {', '.join(sorted(cards))}.")
    driver = cards[cfg.card](cfg)
    # A card that hangs is left alone: closing what its thread still uses would crash instead.
    if asyncio.run(_serve(driver, cfg)):
        driver.close()


async def _serve(driver: CardDriver, cfg: DraftHostConfig) -> bool:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    server = DraftServer(driver, cfg.server)
    port = await server.start(cfg.listen)
    try:
        with contextlib.ExitStack() as watching:
            if cfg.parent_pid is not None:
                _watch_parent(cfg.parent_pid, stop, watching)
            host = cfg.listen.rpartition(":")[0]
            _announce({"listening": f"{host}:{port}", "pid": os.getpid()})
            await stop.wait()
    finally:
        # Whatever ended it (a reader that closed our stdout): a gRPC server that is not stopped
        # keeps the process from ever exiting.
        returned = await server.stop(cfg.drain_s)
    return returned


def _announce(ready: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()


def _watch_parent(pid: int, stop: asyncio.Event, watching: contextlib.ExitStack) -> None:
    """Set ``stop`` when ``pid`` ends, killed or not."""
    loop = asyncio.get_running_loop()
    if not hasattr(os, "pidfd_open"):
        task = loop.create_task(_poll_parent(pid, stop))
        watching.callback(task.cancel)
        return
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        stop.set()
        return
    loop.add_reader(descriptor, stop.set)
    watching.callback(os.close, descriptor)
    watching.callback(loop.remove_reader, descriptor)


async def _poll_parent(pid: int, stop: asyncio.Event) -> None:
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            stop.set()
            return
        await asyncio.sleep(PARENT_POLL_S)
