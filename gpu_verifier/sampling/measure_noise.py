"""Times the coupled draw: ``python -m gpu_verifier.sampling.measure_noise``.

Prints milliseconds for one verify step's worth of rows on one thread; docs/verifier.md quotes it.
"""

import sys
import time

import numpy as np
from numpy.typing import NDArray

from gpu_verifier.sampling.noise_kernel import coupled_draw, coupled_draw_reference

_ROWS, _VOCAB, _REPEATS = 40, 49_152, 5


def main() -> int:
    """Time peaked and flat logits at several temperatures, and the NumPy reference once."""
    rng = np.random.default_rng(0)
    peaked_v = rng.normal(0.0, 3.0, _VOCAB).astype(np.float32)
    peaked_v[100] = 14.0
    flat_v = np.zeros(_VOCAB, dtype=np.float32)
    coupled_draw(flat_v, 1.0, 0, 0)  # compiles, or loads what was compiled
    for name, z_v in (("peaked", peaked_v), ("flat", flat_v)):
        for temperature in (0.005, 0.6, 1.0, 2.0):
            best_s = min(_time_rows(z_v, temperature) for _ in range(_REPEATS))
            sys.stdout.write(
                f"{_ROWS} rows x {_VOCAB}, {name} logits, T = {temperature}: "
                f"{best_s * 1e3:.1f} ms\n"
            )
    started = time.perf_counter()
    coupled_draw_reference(peaked_v, 1.0, 0, 0)
    reference_s = (time.perf_counter() - started) * _ROWS
    sys.stdout.write(f"the NumPy reference would take {reference_s * 1e3:.0f} ms\n")
    return 0


def _time_rows(z_v: NDArray[np.float32], temperature: float) -> float:
    started = time.perf_counter()
    for index in range(_ROWS):
        coupled_draw(z_v, temperature, 7, index)
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
