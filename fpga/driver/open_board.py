"""Opens a real board with stock pynq (Zynq, Kria). Not yet run on hardware: no bitstream exists.

pynq is imported inside, so that no other host needs it.
"""

from dataclasses import dataclass, field
from pathlib import Path

from fpga.driver.driver import CardIdentity, DraftCard, DriverConfig
from fpga.driver.faults import card_errors
from fpga.program.artefact import load_artefact
from hetero.core.errors import CardError


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardConfig:
    """``bitfile``: X.bit with X.hwh beside it. ``device``: the board's name, for reports."""

    bitfile: Path
    artefact_path: Path
    device: str = "kv260"
    driver: DriverConfig = field(default_factory=DriverConfig)


def open_pynq_card(cfg: BoardConfig) -> DraftCard:
    """Load the bitstream onto this machine's board and a draft into its memory."""
    try:
        from pynq import Overlay
    except ImportError as error:
        raise CardError(f"card: {error}. Install hetero[card] on the board.") from error
    artefact = load_artefact(cfg.artefact_path)
    with card_errors(f"loading bitstream {cfg.bitfile}"):
        overlay = Overlay(str(cfg.bitfile))
    identity = CardIdentity(device=cfg.device, backend="pynq", simulated=False)
    return DraftCard(overlay, artefact, identity, config=cfg.driver, on_close=overlay.free)
