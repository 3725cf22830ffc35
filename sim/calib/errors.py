"""How far the cycle model is from what was measured on the RTL."""

import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from fpga.driver.buffers import CardLimits, KvGeometry
from fpga.driver.lanes import lane_command
from fpga.program import isa
from fpga.program.artefact import load_artefact
from fpga.program.layout import BEAT_BYTES
from fpga.program.link import link_program, unlink_program
from sim.calib.cases import CONTEXT_TOKENS, Case, Start
from sim.calib.measure import Measured, draft_of, timing_of
from sim.calib.profile import CardProfile, Constants, KernelModel, load_profile
from sim.cycles.model import CycleModel, CycleReport, one_after_the_other
from sim.cycles.table import op_table

LEAST_CYCLES: Final = 800
"""max(1 %, 8 cycles) of m cycles is 1 % of max(m, 800): an instruction errs by shares of that."""


class Miss(NamedTuple):
    """One instruction in one pass of one start; ``shape``: what sets its work apart."""

    kind: str
    shape: tuple[int | str, ...]
    fitted: bool
    modelled: int
    measured: int

    @property
    def error(self) -> float:
        """At most 0.01 is within max(1 %, 8 cycles)."""
        return abs(self.modelled - self.measured) / max(self.measured, LEAST_CYCLES)


class StartMiss(NamedTuple):
    """A whole start, and the passes in it."""

    fitted: bool
    modelled: int
    measured: int
    passes: tuple[tuple[int, int], ...]

    @property
    def error(self) -> float:
        """As a share."""
        return abs(self.modelled / self.measured - 1)

    @property
    def pass_errors(self) -> list[float]:
        """Of each pass, which is a token in each lane."""
        return [abs(modelled / measured - 1) for modelled, measured in self.passes]

    @property
    def pass_error(self) -> float:
        """The worst of them."""
        return max(self.pass_errors)


class Subject:
    """A case with its measurements and its cycle model."""

    def __init__(self, case: Case, measured: Sequence[Measured], drafts_dir: Path) -> None:
        self.case, self.measured = case, measured
        artefact = load_artefact(draft_of(case, drafts_dir))
        linked = link_program(artefact, case.rtl.ports)
        cache = artefact.kv_layout(case.rtl.lanes + 1, CONTEXT_TOKENS)
        self._kv = KvGeometry.of(cache, case.rtl.ports)
        limits = CardLimits(
            num_ports=case.rtl.ports,
            max_lanes=case.rtl.lanes,
            max_read_tokens=case.rtl.max_read_tokens,
            max_draft_tokens=case.rtl.max_draft_tokens,
        )
        buffers = (BEAT_BYTES + len(linked.words), limits.command_bytes, limits.result_bytes)
        self._weights, self._kv_places = one_after_the_other(
            case.rtl.ports, linked.shares[0].size, self._kv.port_bytes, before=buffers
        )
        self._program = unlink_program(linked.words, case.rtl.ports)
        self._kinds = [type(op).__name__ for op in self._program if not isinstance(op, isa.End)]
        table = op_table(
            [op for op in self._program if not isinstance(op, isa.End)], case.rtl.ports
        )
        self._shapes = [tuple(row) for row in table[:, :6].tolist()]

    def model(self, constants: Constants) -> CycleModel:
        """The model with these constants."""
        profile = replace(profile_of(self.case), constants=constants)
        return CycleModel(
            self._program,
            profile,
            timing=timing_of(self.case),
            kv=self._kv,
            weight_addresses=self._weights,
            kv_addresses=self._kv_places,
        )

    def with_measured(self, measured: Sequence[Measured]) -> "Subject":
        """The same case with other measurements."""
        other = copy(self)
        other.measured = measured
        return other

    def modelled(self, model: CycleModel, start: Start, measured: Measured) -> CycleReport:
        """What the model says of a start that was measured."""
        commands = [lane_command(lane) for lane in start.work()]
        return model.start(commands, drafted=measured.drafted, at_cycle=measured.at_cycle)

    def misses(
        self, constants: Constants, *, only_fitted: bool = False
    ) -> tuple[list[Miss], list[StartMiss]]:
        """Of every instruction of every pass, and of every start."""
        model = self.model(constants)
        ops: list[Miss] = []
        whole: list[StartMiss] = []
        for start, measured in zip(self.case.starts, self.measured, strict=True):
            fitted = self.case.fitted and start.fitted
            if only_fitted and not fitted:
                continue
            report = self.modelled(model, start, measured)
            real = np.array(measured.passes, dtype=np.int64)
            assert real.shape == report.spent.shape, "the model's passes are not the RTL's"
            passes = zip(report.spent.sum(axis=1).tolist(), real.sum(axis=1).tolist(), strict=True)
            whole.append(StartMiss(fitted, report.cycles, measured.cycles, tuple(passes)))
            ops += self._op_misses(report.spent.tolist(), real.tolist(), fitted)
        return ops, whole

    def timed(self, constants: Constants) -> dict[str, float]:
        """Sums over the starts that were timed on the RTL: its cycles, and everyone's seconds."""
        model = self.model(constants)
        sums = dict.fromkeys(("cycles", "rtl_s", "functional_s", "model_s"), 0.0)
        for start, measured in zip(self.case.starts, self.measured, strict=True):
            if not measured.rtl_s:
                continue
            sums["cycles"] += measured.cycles
            sums["rtl_s"] += measured.rtl_s
            sums["functional_s"] += measured.functional_s
            sums["model_s"] += _fastest(partial(self.modelled, model, start, measured))
        return sums

    def _op_misses(
        self, modelled: list[list[int]], measured: list[list[int]], fitted: bool
    ) -> Iterator[Miss]:
        build = (self.case.build, self.case.memory)
        for ours, theirs in zip(modelled, measured, strict=True):
            for kind, shape, own, real in zip(self._kinds, self._shapes, ours, theirs, strict=True):
                if own or real:
                    yield Miss(kind, (*shape, *build), fitted, own, real)


def _fastest(call: Callable[[], object]) -> float:
    """Seconds of the fastest of a few calls."""
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def profile_of(case: Case) -> CardProfile:
    """The case's card with the case's build."""
    profile = load_profile(case.device)
    kernel = KernelModel.of_build(case.rtl.verilog(), profile.kernel.clock_hz)
    return replace(profile, kernel=kernel)
