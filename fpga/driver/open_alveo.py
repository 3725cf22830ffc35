"""Opens an Alveo card through pyxrt. Not yet run on hardware: no bitstream exists.

pyxrt comes with XRT, not from PyPI; it and pynq are imported inside, so no other host needs them.
"""

import importlib
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fpga.driver.build_info import BuildInfo
from fpga.driver.driver import CardIdentity, DraftCard, DriverConfig
from fpga.driver.faults import card_errors
from fpga.program.artefact import load_artefact
from hetero.core.errors import CardError


@dataclass(frozen=True, slots=True, kw_only=True)
class AlveoConfig:
    """``bitfile``: X.xclbin with X.json beside it. ``index``: which card, as xbutil counts."""

    bitfile: Path
    artefact_path: Path
    index: int = 0
    driver: DriverConfig = field(default_factory=DriverConfig)


def open_alveo_card(cfg: AlveoConfig, *, xrt: Any = None) -> DraftCard:
    """Load the bitstream onto the card and a draft into its memory.

    ``xrt``: the module pyxrt, None to import it. Raises CardError when XRT or pynq is missing,
    the card is absent, or the bitstream does not load.
    """
    xrt = xrt or _pyxrt()
    try:
        from fpga.driver.alveo import AlveoDevice, Overlay
    except ImportError as error:
        raise CardError(f"card: {error}. Install hetero[card].") from error
    artefact = load_artefact(cfg.artefact_path)
    with card_errors(f"opening Alveo card {cfg.index}"):
        device = AlveoDevice(xrt, cfg.index, tag=f"hetero-alveo-{uuid.uuid4()}")
    with card_errors(f"loading bitstream {cfg.bitfile}"):
        name = BuildInfo.beside(cfg.bitfile).device
        overlay = Overlay(str(cfg.bitfile), device=device)
    identity = CardIdentity(device=name, backend="xrt", simulated=False)
    return DraftCard(overlay, artefact, identity, config=cfg.driver, on_close=device.release)


def _pyxrt() -> Any:
    try:
        return importlib.import_module("pyxrt")
    except ImportError as error:
        raise CardError(
            f"card: {error}. pyxrt is part of XRT: install XRT on this host and put "
            "/opt/xilinx/xrt/python on PYTHONPATH (its setup.sh does)."
        ) from error
