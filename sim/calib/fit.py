"""Moves the cycle model's constants until it agrees with what was measured on the RTL."""

from collections.abc import Callable, Sequence
from typing import Final

from sim.calib.errors import Subject
from sim.calib.profile import Constants

STEPS: Final = (8, -8, 3, -3, 1, -1)


def fit(
    subjects: Sequence[Subject], constants: Constants, progress: Callable[[str], None]
) -> Constants:
    """Coordinate descent on ``loss`` over the fitted starts of these cases."""
    best, least = constants, loss(subjects, constants)
    improved = True
    while improved:
        improved = False
        for name in Constants._fields:
            for step in STEPS:
                tried = best._replace(**{name: max(0, getattr(best, name) + step)})
                tried_loss = loss(subjects, tried)
                if tried_loss < least:
                    best, least, improved = tried, tried_loss, True
        progress(f"fitting: {least:.0f}")
    return best


def loss(subjects: Sequence[Subject], constants: Constants) -> float:
    """Cycles that instructions, passes and starts are off, and shares of the short ones."""
    total = 0.0
    for subject in subjects:
        ops, starts = subject.misses(constants, only_fitted=True)
        pairs = [(op.modelled, op.measured) for op in ops]
        for start in starts:
            pairs += [(start.modelled, start.measured), *start.passes]
        for modelled, measured in pairs:
            miss = abs(modelled - measured)
            total += miss + 100 * miss / max(measured, 100)
    return total
