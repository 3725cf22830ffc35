"""HEAD: the largest logits, ties to the lower target id."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpga.golden.fixed import I64


class Candidates(NamedTuple):
    """Largest logits first. int64 [num_candidates] each; ids are the target's."""

    logit: I64
    target_id: I64


def top_candidates(
    logit_v: I64, num_candidates: int, d2t_v: NDArray[np.int32] | None = None
) -> Candidates:
    """The best of one token's logits. ``d2t_v``: ascending target ids of the rows, or None."""
    # Rows ascend with target ids, so a stable sort breaks ties as the law wants.
    row = np.argsort(-logit_v, kind="stable")[:num_candidates]
    target = row if d2t_v is None else d2t_v[row]
    return Candidates(logit_v[row], target.astype(np.int64))
