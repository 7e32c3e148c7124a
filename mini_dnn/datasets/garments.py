"""The ten kinds of garments in the order of their labels; here the trouser, the bag and the shoes.

Coordinates and tones: see `Pen`. Shoes point to the left, as in Fashion-MNIST.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mini_dnn.datasets.pen import Pen, arc
from mini_dnn.datasets.tops import coat, dress, pullover, shirt, t_shirt

Garment = Callable[[Pen], None]


def trouser(pen: Pen) -> None:
    """Two legs below a waistband."""
    waist, hip, cuff = pen.between(11, 15), pen.between(14, 18), pen.between(6, 10)
    top, bottom, crotch = pen.between(-41, -37), pen.between(33, 41), pen.between(-16, -8)
    inside = pen.between(1, 7)
    side = [(0, top), (waist, top), (hip, top + 16), (inside + cuff, bottom), (inside, bottom), (0.6, crotch)]
    pen.mirrored(side, rounding=pen.count(0, 2))
    pen.fill([(-waist, top), (waist, top), (waist + 0.8, top + 4), (-waist - 0.8, top + 4)], 0.65, 0)
    pen.line([(0, top + 4), (0, crotch)], 0.55, 0.9)
    for sign in (1, -1):
        pen.line([(sign * waist, top + 13), (sign * (waist - 5), top + 5)], 0.6, 0.9)  # a pocket
        if pen.chance(0.5):  # a crease
            pen.line([(sign * 0.6 * hip, top + 20), (sign * (inside + 0.5 * cuff), bottom - 1)], 0.75, 0.8)


def bag(pen: Pen) -> None:
    """A box with a handle or a strap; sometimes a flap and a clasp."""
    wide, lower = pen.between(24, 36), pen.between(-2, 5)
    top, bottom = pen.between(-12, 2), pen.between(24, 36)
    grip, height = wide * pen.between(0.35, 0.8), pen.between(12, 26)
    handle = arc(0, top + 2, grip, height, 180, 360, 13)
    pen.line(handle, pen.between(0.6, 1.2), pen.between(2, 4.5))
    half = [(0, top), (wide, top), (wide + lower, bottom), (0, bottom)]
    pen.mirrored(half, 1.0, pen.count(0, 3))
    if pen.chance(0.5):  # a flap
        y = top + pen.between(10, 18)
        pen.mirrored([(0, top), (wide, top), (wide * 0.9, y - 2), (0, y + 2)], 0.75, 1)
    else:
        pen.line([(-wide, top + 4), (wide, top + 4)], 0.5, 1.2)
    if pen.chance(0.7):
        pen.dot(0, top + pen.between(8, 18), pen.between(1.5, 3.5), pen.between(1.4, 1.7))
    for sign in (1, -1):
        pen.line([(sign * grip, top), (sign * grip, top + 9)], 0.5, 2.0)


def sneaker(pen: Pen) -> None:
    """Low, with a thick light sole, laces and a stripe."""
    sole, heel, tongue = pen.between(4, 7), pen.between(-16, -9), pen.between(-20, -13)
    floor = pen.between(14, 20)
    y = floor - sole
    upper = [(-38, y), (-37, y - 9), (-26, y - 13), (-14, y - 17), (1, tongue), (7, tongue + 2)]
    pen.fill([*upper, (14, heel + 7), (24, heel + 4), (33, heel), (36, heel + 3), (35, y)])
    pen.fill(
        [(6, tongue + 3), (14, heel + 8), (24, heel + 5), (32, heel + 2), (20, heel + 9), (12, heel + 10)],
        0.4,
        0,
    )
    pen.fill([(-39, y - 1), (37, y - 1), (37, floor), (-37, floor)], pen.between(1.3, 1.65))
    pen.line([(-38, y), (36, y)], 0.5, 0.8)
    for k in range(pen.count(3, 6)):  # laces
        pen.line([(4 * k - 15, y - 17 - k), (4 * k - 11.5, y - 10 - k)], 1.55, 1.1)
    x, slant = pen.between(4, 14), pen.between(-8, 8)
    for k in range(pen.count(1, 4)):  # stripes
        pen.line([(x + 5 * k, y - 1), (x + 5 * k + slant, y - 13)], 0.5, pen.between(1, 2.5))


def sandal(pen: Pen) -> None:
    """An open shoe: a sole and straps with the background between them; some are slip-ons."""
    floor, thick = pen.between(16, 26), pen.between(3, 6)
    slip_on = pen.chance(0.25)
    heel = pen.between(0, 4) if slip_on else pen.between(0, 16)
    bed = [
        (-38, floor - thick),
        (-12, floor - thick - 1),
        (8, floor - thick - 0.5 * heel),
        (35, floor - thick - heel),
    ]
    back = [(37, floor), (29, floor), (26, floor + 0.6 * thick - heel)] if heel > 8 else [(37, floor)]
    pen.fill([*bed, *back, (4, floor - 0.3 * heel), (-12, floor), (-37, floor)], pen.between(0.6, 0.9))
    tone, width = pen.between(0.9, 1.4), pen.between(2.5, 5)
    y = floor - thick
    if slip_on:
        x, high = pen.between(-32, -27), pen.between(14, 20)
        pen.fill(
            [(x, y), (x + 7, y - 0.55 * high), (x + 24, y - high), (x + 37, y - 0.9 * high), (x + 34, y)],
            tone,
        )
        pen.fill(arc(x + 32, y - 0.93 * high, 5, 2, 0, 330), 0.3, 0)
        return
    for x in np.linspace(-24, pen.between(-22, -8), pen.count(1, 4)).tolist():  # over the toes
        pen.line(arc(x, y, 8, pen.between(9, 15), 180, 340), tone, width)
    ankle = y - heel - pen.between(17, 26)
    pen.line(arc(22, ankle, 13, 4, 0, 360, 17), tone, 0.8 * width)
    pen.line([(35, ankle), (34, y - heel)], tone, width)
    pen.line([(11, ankle + 2), (18, y - 0.7 * heel)], tone, 0.8 * width)
    if pen.chance(0.5):  # along the instep
        pen.line([(10, ankle + 2), (-4, y - 13), (-16, y - 11)], tone, 0.7 * width)


def ankle_boot(pen: Pen) -> None:
    """A shaft above the ankle, a heel and a dark sole."""
    floor, sole, heel = pen.between(26, 34), pen.between(2, 5), pen.between(0, 8)
    top, front = pen.between(-38, -26), pen.between(-2, 8)
    y = floor - sole - heel
    ground = floor - sole
    toe = [(-37, ground), (-37, ground - 9), (-26, ground - 14), (-10, y - 17), (front - 4, y - 28)]
    shaft = [(front, top), (33, top + pen.between(-4, 4)), (32, y - 16), (36, y), (-6, ground)]
    pen.fill([*toe, *shaft])
    tread = [(36, floor), (18, floor), (15, y + sole), (-4, floor), (-37, floor)]
    pen.fill([(-38, ground), (-4, ground), (12, y), (37, y), *tread], 0.45, 0)
    pen.line([(front + 2, top + 5), (31, top + 5)], 0.5, pen.between(1, 3))
    if pen.chance(0.5):  # laces
        for k in range(5):
            pen.line([(front - 4 + 0.6 * k, y - 26 - 3.6 * k), (front + 4, y - 24 - 3.6 * k)], 1.5, 1.1)
    elif pen.chance(0.6):  # an elastic side
        pen.fill([(14, top + 4), (24, top + 4), (21, y - 18), (17, y - 18)], 0.55, 0)
    else:  # a zip
        pen.line([(18, top + 3), (16, y - 4)], 1.4, 1.0)


GARMENTS: tuple[Garment, ...] = (
    t_shirt,
    trouser,
    pullover,
    dress,
    coat,
    sandal,
    shirt,
    sneaker,
    bag,
    ankle_boot,
)  # by label
