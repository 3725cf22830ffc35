"""The calibration in figures: what ``hetero sim calibrate`` prints and errors.json keeps."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sim.calib.cases import FITTED_BUILDS, Case
from sim.calib.errors import Miss, StartMiss, Subject
from sim.calib.profile import Constants

KERNEL_LIMIT: Final = 0.01
CHANCE_LIMITS: Final[Mapping[str, float]] = {"Embed": 0.06, "Head": 0.06, "MatMul": 0.02}
"""Where a cycle of chance decides: whether one more burst of 16 beats was asked for before a
gather, how many logits are among the best so far, and for a matrix that waits for memory, what a
gather before it took."""
TOKEN_LIMIT: Final = 0.02
CARD_MEMORY_LIMIT: Final = 0.03
EIGHT_PORTS_LIMIT: Final = 0.03
SHARED_MEMORY_LIMIT: Final = 0.06

LIMITS: Final[Mapping[str, float]] = {
    "ideal": TOKEN_LIMIT,
    "8_ports": EIGHT_PORTS_LIMIT,
    "card_memory": CARD_MEMORY_LIMIT,
    "shared_memory": SHARED_MEMORY_LIMIT,
}
"""What a whole token may be off, by group of cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseErrors:
    """One case with all its misses."""

    case: Case
    ops: Sequence[Miss]
    starts: Sequence[StartMiss]

    @property
    def group(self) -> str:
        """Which limit holds for it."""
        if self.case.memory != "ideal":
            return "shared_memory" if self.case.build == "kv260" else "card_memory"
        return "8_ports" if self.case.rtl.ports == 8 else "ideal"


def errors_of(subjects: Sequence[Subject], constants: Constants) -> list[CaseErrors]:
    """All cases with these constants."""
    found = []
    for subject in subjects:
        ops, starts = subject.misses(constants)
        found.append(CaseErrors(case=subject.case, ops=ops, starts=starts))
    return found


def summary(cases: Sequence[CaseErrors]) -> dict[str, Any]:
    """``kernels``: instructions with ideal memory, their errors as shares of max(cycles, 800), so
    that 0.01 is max(1 %, 8 cycles). ``token``: passes and whole starts, as shares of their cycles.
    """
    return {
        "kernels": _kernels(cases),
        "token": _token([case for case in cases if case.group == "ideal"]),
        "token_8_ports": _token([case for case in cases if case.group == "8_ports"]),
        "token_card_memory": _token([case for case in cases if case.group == "card_memory"]),
        "token_shared_memory": _token([case for case in cases if case.group == "shared_memory"]),
        "cases": [_case(case) for case in cases],
    }


def beyond_limits(cases: Sequence[CaseErrors]) -> list[str]:
    """What is further off than it may be, in words."""
    told = []
    for kernel in _kernels(cases):
        if kernel["max_error"] > CHANCE_LIMITS.get(kernel["kernel"], KERNEL_LIMIT):
            told.append(f"{kernel['kernel']}: {kernel['max_error']:.2%} of max(cycles, 800)")
    for case in cases:
        worst = max(max(start.error, start.pass_error) for start in case.starts)
        if worst > LIMITS[case.group]:
            told.append(f"{case.case.name}: a token is {worst:.2%} off")
    return told


def _kernels(cases: Sequence[CaseErrors]) -> list[dict[str, Any]]:
    by_kind: defaultdict[str, list[Miss]] = defaultdict(list)
    for case in cases:
        if case.case.memory == "ideal":
            for miss in case.ops:
                by_kind[miss.kind].append(miss)
    return [
        {
            "kernel": kind,
            "shapes_fitted": len({miss.shape for miss in misses if miss.fitted}),
            "shapes_held_out": len(
                {miss.shape for miss in misses} - {miss.shape for miss in misses if miss.fitted}
            ),
            "executions": len(misses),
            "max_error": _rounded(max(miss.error for miss in misses)),
            "max_error_held_out": _rounded(
                max((miss.error for miss in misses if not miss.fitted), default=0.0)
            ),
            "mean_error": _rounded(float(np.mean([miss.error for miss in misses]))),
            "share_within_limit": _rounded(
                float(np.mean([miss.error <= KERNEL_LIMIT for miss in misses]))
            ),
            "max_cycles_off": max(abs(miss.modelled - miss.measured) for miss in misses),
        }
        for kind, misses in by_kind.items()
    ]


def _token(cases: Sequence[CaseErrors]) -> dict[str, Any]:
    starts = [start for case in cases for start in case.starts]
    if not starts:
        return {}
    held_out = [start for start in starts if not start.fitted]
    passes = [error for start in starts for error in start.pass_errors]
    return {
        "max_error": _rounded(max(start.pass_error for start in starts)),
        "max_error_held_out": _rounded(max((s.pass_error for s in held_out), default=0.0)),
        "mean_error": _rounded(float(np.mean(passes))),
        "max_error_of_a_start": _rounded(max(start.error for start in starts)),
        "passes": len(passes),
    }


def _case(case: CaseErrors) -> dict[str, Any]:
    return {
        "case": case.case.name,
        "ports": case.case.rtl.ports,
        "lanes": case.case.rtl.lanes,
        "memory": case.case.memory,
        "fitted": case.case.fitted,
        "is_fitted_build": case.case.build in FITTED_BUILDS,
        "starts": len(case.starts),
        "max_instruction_error": _rounded(max(miss.error for miss in case.ops)),
        "max_token_error": _rounded(max(start.pass_error for start in case.starts)),
        "max_start_error": _rounded(max(start.error for start in case.starts)),
    }


def _rounded(share: float) -> float:
    return round(share, 5)


def speed(subjects: Sequence[Subject], constants: Constants) -> dict[str, float]:
    """How much faster than the RTL this host runs the timing model and the functional simulator."""
    totals: defaultdict[str, float] = defaultdict(float)
    for subject in subjects:
        timed = subject.timed(constants)
        for name, value in timed.items():
            totals[name] += value
    if not totals["rtl_s"]:
        return {}
    return {
        "rtl_cycles": totals["cycles"],
        "rtl_s": totals["rtl_s"],
        "rtl_cycles_per_s": totals["cycles"] / totals["rtl_s"],
        "timing_model_times_rtl": totals["rtl_s"] / totals["model_s"],
        "functional_times_rtl": totals["rtl_s"] / totals["functional_s"],
    }
