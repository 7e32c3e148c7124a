"""The pen that garments are drawn with: outlines through a random affine map, and random proportions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

SPAN = 86  # the side of an image in units of the outlines
OVERSAMPLING = 2  # canvas pixels per unit
CORNER = 3.5  # units that rounding takes off either edge of a corner
CLOTH = 150  # the canvas value of tone 1; tones reach 255 / CLOTH

Point = tuple[float, float]
Outline = Sequence[Point] | np.ndarray  # (n, 2)


class Pen:
    """Fills outlines on a canvas through a random affine map; it also draws the random numbers.

    A garment lies around (0, 0) with x to the right and y down; the image spans -43 … 43 in both. Tones are
    relative to the cloth: 1 is its plain tone, less is darker, 0 is the background.

    Parameters
    ----------
    rng : numpy.random.Generator
        The image's own generator.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.canvas = Image.new("L", (SPAN * OVERSAMPLING, SPAN * OVERSAMPLING), 0)
        self._ink = ImageDraw.Draw(self.canvas)
        angle = self.between(-0.14, 0.14)
        wide, tall = self.between(0.74, 1.04), self.between(0.78, 1.03)
        slant = self.between(-0.06, 0.06)
        turn = np.array(((math.cos(angle), -math.sin(angle)), (math.sin(angle), math.cos(angle))))
        self._matrix = OVERSAMPLING * np.array(((1.0, slant), (0.0, 1.0))) @ turn @ np.diag((wide, tall))
        self._contrast = self.between(0.25, 1.0)
        self._centre = OVERSAMPLING * (SPAN / 2 + rng.uniform(-3, 3, 2))

    def between(self, low: float, high: float) -> float:
        """Draw a number in [low, high)."""
        return low + (high - low) * float(self.rng.random())

    def chance(self, probability: float) -> bool:
        """Draw true with the given probability."""
        return float(self.rng.random()) < probability

    def count(self, low: int, high: int) -> int:
        """Draw a whole number in [low, high)."""
        return int(self.rng.integers(low, high))

    def fill(self, outline: Outline, tone: float = 1.0, rounding: int = 1) -> None:
        """Fill a closed outline, its corners cut `rounding` times; tone 0 cuts a hole."""
        points = np.asarray(outline)
        for _ in range(rounding):  # Chaikin 1974, but no corner loses more than CORNER of an edge
            edges = np.roll(points, -1, axis=0) - points
            cuts = edges * 0.25 / np.maximum(1, np.hypot(*edges.T) * 0.25 / CORNER)[:, None]
            points = np.stack((points + cuts, points + edges - cuts), 1).reshape(-1, 2)
        self._ink.polygon(self._placed(points), fill=self._value(tone))

    def mirrored(self, half: Sequence[Point], tone: float = 1.0, rounding: int = 1) -> None:
        """Fill an outline of which only the right half is given, from top to bottom."""
        self.fill([*half, *((-x, y) for x, y in reversed(half))], tone, rounding)

    def line(self, points: Sequence[Point], tone: float, width: float = 1.0) -> None:
        """Draw an open line; `width` is in units."""
        self._ink.line(
            self._placed(np.asarray(points)), self._value(tone), max(1, round(width * OVERSAMPLING)), "curve"
        )

    def dot(self, x: float, y: float, radius: float, tone: float) -> None:
        """Fill a small disc."""
        self.fill(arc(x, y, radius, radius, 0, 330, 12), tone, 0)

    def _value(self, tone: float) -> int:
        return min(255, round(CLOTH * (1 + self._contrast * (tone - 1)))) if tone else 0

    def _placed(self, points: np.ndarray) -> list[Point]:
        return [(x, y) for x, y in (points @ self._matrix.T + self._centre).tolist()]


def arc(x: float, y: float, rx: float, ry: float, start: float, end: float, count: int = 9) -> list[Point]:
    """Points on an ellipse; degrees, 0 to the right, 90 down."""
    angles = np.radians(np.linspace(start, end, count))
    return list(zip((x + rx * np.cos(angles)).tolist(), (y + ry * np.sin(angles)).tolist(), strict=True))
