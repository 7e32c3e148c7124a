"""Colours and fonts of the plots. Each plot is drawn for light and for dark backgrounds."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from mini_dnn.report.document import Picture

WIDTH = 10.0  # inches, of every plot
DOTS_PER_INCH = 150  # of the PNG files


@dataclass(frozen=True)
class Theme:
    """Colours for one background. The palette of Okabe and Ito is safe for colour-blind readers [1]_.

    References
    ----------
    .. [1] M. Okabe, K. Ito, "Color Universal Design", 2008, https://jfly.uni-koeln.de/color/
    """

    ground: str
    text: str
    soft: str
    grid: str
    series: tuple[str, ...]
    better: str
    worse: str
    rungs: tuple[str, ...]  # colours of a ladder's rungs, from the first to the last

    def ramp(self, count: int) -> list[str]:
        """Return a colour for each rung of a ladder, evenly spaced along `rungs`."""
        last = len(self.rungs) - 1
        places = [at * last / max(1, count - 1) for at in range(count)]
        return [_between(self.rungs, place) for place in places]


def _between(colours: Sequence[str], place: float) -> str:
    """Interpolate between the colours at whole numbers."""
    at = min(int(place), len(colours) - 2)
    low, high = (np.array(to_rgb(colour)) for colour in colours[at : at + 2])
    return to_hex(low + (high - low) * (place - at))


LIGHT = Theme(
    "#ffffff",
    "#1b1f24",
    "#59636e",
    "#d9dfe5",
    ("#0072B2", "#E69F00", "#009E73", "#CC79A7"),
    better="#009E73",
    worse="#D55E00",
    rungs=("#b45309", "#be185d", "#6d28d9", "#1d4ed8", "#0f766e"),
)
DARK = Theme(
    "#14181d",
    "#e6e9ed",
    "#9aa5b1",
    "#2d353e",
    ("#56B4E9", "#E69F00", "#009E73", "#CC79A7"),
    better="#009E73",
    worse="#D55E00",
    rungs=("#fbbf24", "#f472b6", "#a78bfa", "#60a5fa", "#2dd4bf"),
)

Draw = Callable[[Theme], Figure]


def picture(draw: Draw, on_page: bool = True) -> Picture:
    """Draw for both backgrounds. The SVGs are left empty if the page does not show the picture."""
    svgs = [_render(draw, ground, "svg") if on_page else b"" for ground in (LIGHT, DARK)]
    return Picture(_render(draw, LIGHT, "png"), *svgs)


def _render(draw: Draw, theme: Theme, form: str) -> bytes:
    style: Any = {
        "figure.facecolor": theme.ground,
        "axes.facecolor": theme.ground,
        "axes.edgecolor": theme.soft,
        "axes.labelcolor": theme.text,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "text.color": theme.text,
        "xtick.color": theme.text,
        "ytick.color": theme.text,
        "grid.color": theme.grid,
        "legend.frameon": False,
        "font.size": 10,
        "svg.hashsalt": "mini_dnn",  # the same results give the same file
    }
    out = io.BytesIO()
    with mpl.rc_context(style):
        metadata = {"Date": None} if form == "svg" else None
        draw(theme).savefig(out, format=form, dpi=DOTS_PER_INCH, metadata=metadata)
    return out.getvalue()
