"""The picture of utilisation over one token: a row a unit, darker where it is busier. SVG."""

from collections.abc import Iterator
from html import escape
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.report.units import binned, busy_share

BINS: Final = 600
_ROW_PX, _LABEL_PX, _SHARE_PX, _TOP_PX, _BOTTOM_PX = 22, 220, 60, 44, 34
_STEPS: Final = 8
"""Shades: as many as an eye can tell apart, and few enough for a small file."""


def utilisation_svg(trace: NDArray[np.uint32], title: str) -> str:
    """A whole SVG document. ``trace``: uint32 [cycle, (units, op)]."""
    rows, shares = binned(trace, BINS), busy_share(trace)
    bins = next(iter(rows.values())).size
    width = _LABEL_PX + BINS + _SHARE_PX
    height = _TOP_PX + _ROW_PX * len(rows) + _BOTTOM_PX
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="20" font-size="13">{escape(title)}</text>',
    ]
    for index, (name, busy) in enumerate(rows.items()):
        y = _TOP_PX + index * _ROW_PX
        lines.append(f'<text x="8" y="{y + 15}">{escape(name)}</text>')
        lines.extend(_bars(busy, y, BINS / bins))
        x = _LABEL_PX + BINS + 8
        lines.append(f'<text x="{x}" y="{y + 15}">{shares[name]:.1%}</text>')
    lines.extend(_axis(len(trace), height))
    return "\n".join([*lines, "</svg>", ""])


def _bars(busy: NDArray[np.float64], y: int, bin_px: float) -> Iterator[str]:
    """Runs of equal shade, one rectangle each."""
    shade = np.ceil(busy * _STEPS).astype(int)
    edges = [0, *(np.flatnonzero(np.diff(shade)) + 1).tolist(), shade.size]
    for begin, end in pairwise(edges):
        if shade[begin]:
            x, width = _LABEL_PX + begin * bin_px, (end - begin) * bin_px
            yield (
                f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="{_ROW_PX - 6}" '
                f'fill="#1f5a96" fill-opacity="{shade[begin] / _STEPS:.3f}"/>'
            )


def _axis(cycles: int, height: int) -> Iterator[str]:
    y = height - _BOTTOM_PX + 6
    yield f'<line x1="{_LABEL_PX}" y1="{y}" x2="{_LABEL_PX + BINS}" y2="{y}" stroke="#444444"/>'
    for tenth in range(0, 11, 2):
        x = _LABEL_PX + BINS * tenth // 10
        yield f'<text x="{x}" y="{y + 16}" text-anchor="middle">{cycles * tenth // 10:,}</text>'
    yield f'<text x="8" y="{y + 16}">cycles of one decoded token</text>'
