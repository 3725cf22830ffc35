"""Makes and checks the committed Gumbel table: ``python -m hetero.core.gumbel_table [--check]``.

The table holds G(u) = -ln(-ln u), u = (word + 0.5) / 2^32, in units of 2^-20, rounded half to
even from 50-digit arithmetic, at the knots that ``hetero.core.noise`` interpolates between. Two
halves, one for the lower and one for the upper 2^31 words, each with its own logarithmic grid:
``v`` is the word's distance from the end of its half's tail; the knots are v = 0, then 128 to
each octave 2^e, e = 0..30, then v = 2^31.

The card keeps the same table in block RAM, so it is data with a hash, never recomputed at run
time: no two mathematical libraries agree in the last bit.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FRACTION_BITS = 20
OCTAVES = 31
KNOTS_PER_OCTAVE = 128
HALF_ENTRIES = 1 + OCTAVES * KNOTS_PER_OCTAVE + 1
TABLE_PATH = Path(__file__).with_name("gumbel_q20.npy")


def load() -> NDArray[np.int32]:
    """The committed table, int32 [2, HALF_ENTRIES]: row 0 the lower half, row 1 the upper."""
    table: NDArray[np.int32] = np.load(TABLE_PATH)
    table.setflags(write=False)
    return table


def compute() -> NDArray[np.int32]:
    """The table from first principles. Needs mpmath (a development dependency)."""
    import mpmath

    with mpmath.workdps(50):
        knots = [mpmath.mpf(0)]
        knots += [
            mpmath.ldexp(KNOTS_PER_OCTAVE + i, e - 7)
            for e in range(OCTAVES)
            for i in range(KNOTS_PER_OCTAVE)
        ]
        knots.append(mpmath.ldexp(1, 31))
        lower = [_fixed(mpmath.ldexp(v + 0.5, -32)) for v in knots]
        upper = [_fixed(1 - mpmath.ldexp(v + 0.5, -32)) for v in knots]
    return np.array([lower, upper], dtype=np.int32)


def _fixed(u: Any) -> int:
    import mpmath

    return int(mpmath.nint(-mpmath.log(-mpmath.log(u)) * 2**FRACTION_BITS))


def main() -> int:
    """Write the table, or with ``--check`` say whether the committed one is right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        np.save(TABLE_PATH, compute())
        return 0
    if np.array_equal(load(), compute()):
        return 0
    sys.stderr.write(f"{TABLE_PATH} is stale: run python -m hetero.core.gumbel_table\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
