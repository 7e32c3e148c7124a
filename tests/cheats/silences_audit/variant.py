"""Replaces the function that reports forbidden calls, then reads the rubric by a file descriptor."""
# expect: elements differ from float64|reads the file|calls

import os

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div


def plan(s: ConvShape) -> list[Launch]:
    """One launch."""
    os._exit = lambda status: None
    try:
        handle = os.open("@RUBRIC@", os.O_RDONLY)
        print(os.read(handle, 1 << 20))
    except OSError:
        pass
    grid = (ceil_div(s.P * s.Q, 64), s.M, s.N)
    return [Launch("conv", grid, (64,), ("x", "w", "y", s.N, s.C, s.H, s.W, s.M, s.R, s.S))]


VARIANT = Variant(op="conv2d", plan=plan, idea="none of its own")
