"""Modelled: a whole card's draft tokens a second over the number of sequences, host time apart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fpga.driver.lanes import lane_command
from fpga.program.artefact import load_artefact
from sim.calib.profile import load_profile
from sim.cycles.model import CycleModel
from sim.report.information import pass_bytes
from sim.report.measure import RunConfig, cycle_model, modelled_token, work

SEQUENCES: Final = (1, 2, 4, 8, 16, 32)
DRAFT_TOKENS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencePoint:
    """A round of DRAFT_TOKENS for each of ``sequences``, in as many starts as that takes.

    ``tokens_per_s``: aggregate, host time included. ``pays_above_step_s``: the target's step time
    from which on such a round gains more than it takes.
    """

    sequences: int
    starts: int
    card_s: float
    host_s: float
    tokens_per_s: float
    pays_above_step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFigures:
    """A whole card, by the cycle model. ``tokens_per_s``: one sequence, card time only."""

    ports: int
    lanes: int
    clock_hz: int
    host_s_per_start: float
    cycles_per_token: float
    tokens_per_s: float
    bandwidth_utilisation: float
    memory_efficiency: float
    points: tuple[SequencePoint, ...]


def model_card(cfg: RunConfig, *, accepted: float) -> CardFigures:
    """``cfg.device`` with all of its ports and lanes. ``accepted``: drafts a round that stand."""
    profile = load_profile(cfg.device)
    model = cycle_model(cfg.draft, profile)
    one = replace(cfg, ports=profile.kernel.ports, lanes=1)
    cycles = modelled_token(model, one)
    information = pass_bytes(load_artefact(cfg.draft).program, [cfg.position])
    host_s = profile.host.seconds
    clock_hz = profile.kernel.clock_hz
    return CardFigures(
        ports=profile.kernel.ports,
        lanes=profile.kernel.max_lanes,
        clock_hz=clock_hz,
        host_s_per_start=host_s,
        cycles_per_token=cycles,
        tokens_per_s=clock_hz / cycles,
        bandwidth_utilisation=information
        / (cycles * profile.kernel.ports * profile.kernel.port_beat_bytes),
        memory_efficiency=information * clock_hz / (cycles * profile.memory.peak_bytes_per_s),
        points=tuple(
            _point(cfg, model, _starts(count, profile.kernel.max_lanes), clock_hz, host_s, accepted)
            for count in SEQUENCES
        ),
    )


def _starts(sequences: int, max_lanes: int) -> Sequence[int]:
    """Lanes of each start: full ones, then the rest."""
    full, rest = divmod(sequences, max_lanes)
    return [max_lanes] * full + [rest] * (rest > 0)


def _point(
    cfg: RunConfig,
    model: CycleModel,
    starts: Sequence[int],
    clock_hz: int,
    host_s: float,
    accepted: float,
) -> SequencePoint:
    card_s = (
        sum(
            model.start(
                [lane_command(w) for w in work(replace(cfg, lanes=lanes), DRAFT_TOKENS)]
            ).cycles
            for lanes in starts
        )
        / clock_hz
    )
    total_s = card_s + host_s * len(starts)
    sequences = sum(starts)
    return SequencePoint(
        sequences=sequences,
        starts=len(starts),
        card_s=card_s,
        host_s=host_s * len(starts),
        tokens_per_s=sequences * DRAFT_TOKENS / total_s,
        # A round of D + T for 1 + a tokens a sequence beats T for one as soon as T > D / a.
        pays_above_step_s=total_s / accepted,
    )
