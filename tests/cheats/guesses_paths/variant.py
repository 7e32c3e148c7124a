"""Asks whether a file exists and how large it is, and computes correctly only if it learns that."""
# expect: elements differ from float64
# where: apart

import os

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div


def size(path: str) -> int:
    """The size of a file in bytes; 0 if the file does not seem to exist."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def plan(s: ConvShape) -> list[Launch]:
    """One launch."""
    grid = (ceil_div(s.P * s.Q, 64), s.M, s.N)
    learned = int(size("@RUBRIC@") > 0)
    return [Launch("conv", grid, (64,), ("x", "w", "y", s.N, s.C, s.H, s.W, s.M, s.R, s.S, learned))]


VARIANT = Variant(op="conv2d", plan=plan, idea="none of its own")
