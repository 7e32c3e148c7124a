"""Colours and type of the plots, and drawing one for light and for dark ground."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from mini_dnn.report.document import Picture

WIDTH = 10.0  # inches, of every plot
DOTS_PER_INCH = 150  # of the PNG files


@dataclass(frozen=True)
class Theme:
    """Colours for one ground; the palette is Okabe and Ito's, safe for colour-blind readers [1]_.

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


LIGHT = Theme(
    "#ffffff",
    "#1b1f24",
    "#59636e",
    "#d9dfe5",
    ("#0072B2", "#E69F00", "#009E73", "#CC79A7"),
    better="#009E73",
    worse="#D55E00",
)
DARK = Theme(
    "#14181d",
    "#e6e9ed",
    "#9aa5b1",
    "#2d353e",
    ("#56B4E9", "#E69F00", "#009E73", "#CC79A7"),
    better="#009E73",
    worse="#D55E00",
)

Draw = Callable[[Theme], Figure]


def picture(draw: Draw) -> Picture:
    """Draw for both grounds."""
    return Picture(_render(draw, LIGHT, "png"), _render(draw, LIGHT, "svg"), _render(draw, DARK, "svg"))


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
        "svg.hashsalt": "mini_dnn",  # the same file for the same results
    }
    out = io.BytesIO()
    with mpl.rc_context(style):
        metadata = {"Date": None} if form == "svg" else None
        draw(theme).savefig(out, format=form, dpi=DOTS_PER_INCH, metadata=metadata)
    return out.getvalue()
