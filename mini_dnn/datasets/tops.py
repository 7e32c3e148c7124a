"""Upper garments and the dress, each with proportions drawn at random (coordinates and tones: see `Pen`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mini_dnn.datasets.pen import Pen, Point, arc


@dataclass(frozen=True)
class Cut:
    """Proportions of an upper garment; x is half a width."""

    neck: float
    shoulder: float
    chest: float
    hem: float
    top: float  # y of the neck's corners
    bottom: float  # y of the hem
    slope: float  # how far the shoulders lie below the neck

    @property
    def armpit(self) -> Point:
        """Where sleeve and side meet."""
        return self.chest, self.top + self.slope + 13


def t_shirt(pen: Pen) -> None:
    """Plain sleeves that stand off, most of them short, a round or V neck, sometimes a print."""
    cut = _cut(pen, length=(54, 68), flare=(-1, 2))
    if pen.chance(0.85):
        _sleeves(pen, cut, pen.between(24, 55), pen.between(13, 24), pen.between(10, 14))
    else:
        _sleeves(pen, cut, pen.between(8, 24), pen.between(30, 58), pen.between(8, 11))
    _body(pen, cut)
    _neckline(pen, cut, pen.between(4, 8), pointed=pen.chance(0.3))
    if pen.chance(0.4):
        wide, tall, y = pen.between(5, 11), pen.between(4, 10), cut.top + pen.between(22, 32)
        tone = pen.between(0.3, 0.7) if pen.chance(0.5) else pen.between(1.3, 1.6)
        pen.fill(
            [(-wide, y - tall), (wide, y - tall), (wide, y + tall), (-wide, y + tall)], tone, pen.count(0, 3)
        )


def pullover(pen: Pen) -> None:
    """Long sleeves with ribbed cuffs, a ribbed hem and a ribbed neck."""
    cut = _cut(pen, length=(56, 70), flare=(-2, 2))
    band = pen.between(2, 6)
    _sleeves(pen, cut, pen.between(8, 20), pen.between(48, 60), pen.between(8, 11), band)
    _body(pen, cut)
    _neckline(pen, cut, pen.between(4, 8), pointed=pen.chance(0.3), collar=pen.between(2, 5))
    _band(pen, cut.hem, cut.bottom - band, band, 0.66)
    if pen.chance(0.35):  # a band of another colour across the chest
        _band(pen, cut.chest, cut.top + pen.between(22, 34), pen.between(3, 8), pen.between(0.5, 1.5))


def coat(pen: Pen) -> None:
    """Long, with long sleeves, a front that opens, pockets, and lapels or a zip."""
    cut = _cut(pen, length=(62, 79), flare=(0, 6))
    _sleeves(pen, cut, pen.between(7, 15), pen.between(50, 62), pen.between(9, 12))
    _body(pen, cut)
    if pen.chance(0.7):
        depth = pen.between(14, 30)
        pen.fill([(-cut.neck, cut.top), (cut.neck, cut.top), (0, cut.top + depth)], 0.3, 0)
        for side in (1, -1):
            tip = (side * (cut.neck + 4), cut.top + 0.45 * depth)
            pen.fill([(side * cut.neck, cut.top - 1), tip, (0, cut.top + depth)], 1.25, 0)
    else:
        depth = pen.between(4, 7)
        _neckline(pen, cut, depth, pointed=False, collar=pen.between(2, 4))
    pen.line([(0, cut.top + depth), (0, cut.bottom)], 0.3, pen.between(0.5, 2.0))
    if pen.chance(0.6):
        for k in range(3):
            pen.dot(3.0, cut.top + depth + 5 + 8 * k, 1.3, 0.35)
    for side in (1, -1):  # a pocket
        y = cut.top + pen.between(42, 47)
        pen.line([(side * 6, y), (side * 15, y - 1)], 0.5, 1.4)
    if pen.chance(0.3):  # a belt
        _band(pen, cut.chest, cut.top + pen.between(34, 40), 4, 0.55)


def shirt(pen: Pen) -> None:
    """A turned-down collar and buttons, all the way or to the chest; long or short sleeves."""
    cut = _cut(pen, length=(56, 72), flare=(-1, 3))
    if pen.chance(0.7):
        _sleeves(pen, cut, pen.between(7, 18), pen.between(48, 60), pen.between(8, 11), pen.between(0, 4))
    else:
        _sleeves(pen, cut, pen.between(22, 45), pen.between(15, 24), pen.between(10, 13))
    _body(pen, cut)
    pen.fill([(-cut.neck, cut.top), (cut.neck, cut.top), (0, cut.top + 7)], 0.35, 0)
    wing_end, wing_rise = pen.between(7, 12), pen.between(0, 3)
    for side in (1, -1):
        x, y = side * cut.neck, cut.top
        pen.fill([(x, y - wing_rise), (x + side * 2.5, y + 3), (0.5 * x, y + wing_end), (0, y + 6)], 1.3, 0)
    end = cut.bottom if pen.chance(0.75) else cut.top + 26
    for x in (-1.6, 1.6):
        pen.line([(x, cut.top + 7), (x, end)], 0.6, 0.7)
    for y in np.arange(cut.top + 11, end - 3, 8.5).tolist():
        pen.dot(0, y, 1.0, 0.3)
    if pen.chance(0.4):  # a breast pocket
        y = cut.top + 22
        pen.line([(5, y), (13, y), (13, y + 9), (5, y + 9), (5, y)], 0.6, 0.8)


def dress(pen: Pen) -> None:
    """Narrow, with a waist above a skirt that widens; no sleeves, or sleeves of some length."""
    bust = pen.between(11, 16)
    waist, hem = bust * pen.between(0.62, 1.0), pen.between(13, 26)
    cut = Cut(
        pen.between(5, 8), pen.between(11, 14), bust, hem, pen.between(-40, -36), pen.between(30, 40), 2
    )
    style = pen.between(0, 1)
    if style < 0.35:
        _sleeves(pen, cut, pen.between(15, 40), pen.between(8, 14), pen.between(7, 9))
    elif style < 0.5:
        _sleeves(pen, cut, pen.between(10, 20), pen.between(34, 46), pen.between(5, 7))
    y = cut.top + pen.between(24, 31)
    half = [(0, cut.top), (cut.neck, cut.top), (cut.shoulder, cut.top + 2), (bust, cut.top + 14)]
    pen.mirrored([*half, (waist, y), (0.5 * (waist + hem), y + 16), (hem, cut.bottom), (0, cut.bottom + 2)])
    _neckline(pen, cut, pen.between(6, 13), pointed=pen.chance(0.5))
    pen.line([(-waist, y), (waist, y)], 0.55, pen.between(0.8, 3.5))
    for _ in range(pen.count(0, 5)):  # folds of the skirt
        x = pen.between(-1, 1)
        pen.line([(x * waist, y + 2), (x * hem * 0.9, cut.bottom - 1)], 0.72, 0.8)


def _cut(pen: Pen, length: tuple[float, float], flare: tuple[float, float]) -> Cut:
    """Draw the proportions of an upper garment, centred in height; each pair is a range."""
    half, tall = pen.between(18, 23), pen.between(*length)
    chest = half - pen.between(0, 2.5)
    hem = chest + pen.between(*flare)
    return Cut(pen.between(6, 9), half, chest, hem, -tall / 2, tall / 2, pen.between(3, 7))


def _band(pen: Pen, half: float, y: float, tall: float, tone: float) -> None:
    """Fill a level band from -half to half, `y` its upper edge."""
    pen.fill([(-half, y), (half, y), (half, y + tall), (-half, y + tall)], tone, 0)


def _body(pen: Pen, cut: Cut) -> None:
    half = [(0, cut.top), (cut.neck, cut.top), (cut.shoulder, cut.top + cut.slope), cut.armpit]
    pen.mirrored([*half, (cut.hem, cut.bottom), (0, cut.bottom)])
    x, y = cut.armpit
    for side in (1, -1):  # the seams of the sleeves
        pen.line([(side * cut.shoulder, cut.top + cut.slope), (side * x, y)], 0.55, 0.9)


def _sleeves(pen: Pen, cut: Cut, angle: float, length: float, cuff: float, band: float = 0.0) -> None:
    """Draw both sleeves: `angle` in degrees off hanging, `cuff` the end's width, `band` its ribbed part."""
    x, y = cut.shoulder, cut.top + cut.slope
    along = np.array((math.sin(math.radians(angle)), math.cos(math.radians(angle))))
    across = np.array((-along[1], along[0]))
    end = np.array((x, y)) + length * along
    sleeve = np.array(((x - 5, y), (x, y), end, end + cuff * across, cut.armpit))
    ring = np.array((end, end + cuff * across, end + cuff * across - band * along, end - band * along))
    tone = pen.between(0.82, 0.95)
    for side in ((1, 1), (-1, 1)):
        pen.fill(sleeve * side, tone)
        if band:
            pen.fill(ring * side, 0.62, 0)


def _neckline(pen: Pen, cut: Cut, depth: float, pointed: bool, collar: float = 1.5) -> None:
    """Cut the neck's opening, with a darker inside at the back and a border `collar` wide."""
    outer = cut.neck + collar
    if pointed:
        pen.fill([(-outer, cut.top - 1), (outer, cut.top - 1), (0, cut.top + 1.6 * depth + collar)], 0.7, 0)
        pen.fill([(-cut.neck, cut.top - 1), (cut.neck, cut.top - 1), (0, cut.top + 1.6 * depth)], 0.3, 0)
    else:
        pen.fill(arc(0, cut.top, outer, depth + collar, 0, 180), 0.7, 0)
        pen.fill(arc(0, cut.top, cut.neck, depth, 0, 180), 0.3, 0)
    pen.fill(arc(0, cut.top - 2, cut.neck, 0.5 * depth + 1, 0, 180), 0.0, 0)
