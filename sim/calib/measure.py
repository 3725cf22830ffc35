"""Runs the calibration's starts on the RTL and counts each instruction's cycles in each pass."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.driver.driver import DraftCard
from fpga.program.artefact import load_artefact
from sim.calib.cases import CONTEXT_TOKENS, DRAFTS, Case, Start
from sim.calib.profile import load_profile
from sim.open_card import SimCardConfig, open_sim_card
from sim.rtl.build import Progress
from sim.rtl.model import RtlModel
from sim.rtl.open_card import RtlCardConfig, open_rtl_card
from sim.rtl.parameters import MemoryTiming
from sim.rtl.timing import dram_timing, ideal_timing
from sim.shapes import random_draft

MAX_TRACE_CYCLES: Final = 1 << 23
NOT_RUNNING_BIT: Final = 9  # of trace_busy: fpga/rtl/counters.sv
IN_START_BIT: Final = 11
OP_INDEX_MASK: Final = 0xFFFF
TIMED_STARTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One start on the RTL. ``passes``: cycles of each instruction in each pass. ``drafted``: the
    tokens of each lane. ``at_cycle``: the card's cycle in which it began.

    ``rtl_s``, ``functional_s``: how long this host took for it, on the RTL and on the functional
    simulator; 0 where that was not measured.
    """

    cycles: int
    passes: tuple[tuple[int, ...], ...]
    drafted: tuple[tuple[int, ...], ...]
    at_cycle: int
    rtl_s: float = field(default=0.0, compare=False)
    functional_s: float = field(default=0.0, compare=False)


def draft_of(case: Case, drafts_dir: Path) -> Path:
    """The case's random draft, built if it is not there."""
    return random_draft(DRAFTS[case.draft], drafts_dir / f"calibration-{case.draft}")


def timing_of(case: Case) -> MemoryTiming:
    """The memory around the RTL, and in the model."""
    profile = load_profile(case.device)
    if case.memory == "ideal":
        return ideal_timing(profile)
    return dram_timing(profile, ports=case.rtl.ports)


def measure(case: Case, cache_dir: Path, progress: Progress) -> list[Measured]:
    """Every start of the case, in the order of ``case.starts``."""
    draft = draft_of(case, cache_dir / "drafts")
    functional_s = _functional_times(case, draft)
    models: list[RtlModel] = []
    card = open_rtl_card(
        RtlCardConfig(
            device=case.device,
            artefact_path=draft,
            cache_dir=cache_dir,
            progress=progress,
            num_slots=case.rtl.lanes + 1,
            max_context_tokens=CONTEXT_TOKENS,
            ports=case.rtl.ports,
            lanes=case.rtl.lanes,
            build=case.rtl,
            timing=timing_of(case),
            watch=models.append,
        )
    )
    num_ops = len(load_artefact(draft).program) - 1
    try:
        card.run(case.starts[0].work())  # loads the program
        measured = []
        for number, start in enumerate(case.starts):
            rtl_s = _timed(card, start) if number < TIMED_STARTS else 0.0
            models[-1].start_trace(MAX_TRACE_CYCLES)
            before = models[-1].cycle
            run = card.run(start.work())
            trace = models[-1].end_trace()
            measured.append(
                Measured(
                    cycles=run.usage.cycles,
                    passes=cycles_by_pass(trace, num_ops),
                    drafted=tuple(lane.token_ids for lane in run.lanes),
                    at_cycle=before + int(np.argmax(trace[:, 0] >> IN_START_BIT & 1)),
                    rtl_s=rtl_s,
                    functional_s=functional_s[number],
                )
            )
        return measured
    finally:
        card.close()


def _functional_times(case: Case, draft: Path) -> list[float]:
    card = open_sim_card(
        SimCardConfig(
            device=case.device,
            artefact_path=draft,
            num_slots=case.rtl.lanes + 1,
            max_context_tokens=CONTEXT_TOKENS,
            ports=case.rtl.ports,
            lanes=case.rtl.lanes,
        )
    )
    try:
        timed = [min(_timed(card, start) for _ in range(3)) for start in case.starts[:TIMED_STARTS]]
        return timed + [0.0] * (len(case.starts) - len(timed))
    finally:
        card.close()


def _timed(card: DraftCard, start: Start) -> float:
    """Seconds on this host."""
    begin = time.perf_counter()
    card.run(start.work())
    return time.perf_counter() - begin


def cycles_by_pass(trace: NDArray[np.uint32], num_ops: int) -> tuple[tuple[int, ...], ...]:
    """Cycles of each instruction of each pass. ``trace``: uint32 [cycle, (busy, op)]."""
    busy, op = trace[:, 0], trace[:, 1]
    running = (busy >> IN_START_BIT & 1 == 1) & (busy >> NOT_RUNNING_BIT & 1 == 0)
    index = (op[running] & OP_INDEX_MASK).astype(np.int64)
    begins = np.flatnonzero(np.diff(index) < 0) + 1
    return tuple(
        tuple(np.bincount(part, minlength=num_ops)[:num_ops].tolist())
        for part in np.split(index, begins)
    )
