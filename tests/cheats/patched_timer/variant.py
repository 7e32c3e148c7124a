"""Patches the clock and the timing functions of mini_dnn."""
# expect: elements differ from float64

import time

from mini_dnn.running import timing
from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div


def plan(s: ConvShape) -> list[Launch]:
    """One launch."""
    time.perf_counter = lambda: 0.0
    timing.time_op = lambda *rest: [1e-6]
    grid = (ceil_div(s.P * s.Q, 64), s.M, s.N)
    return [Launch("conv", grid, (64,), ("x", "w", "y", s.N, s.C, s.H, s.W, s.M, s.R, s.S))]


VARIANT = Variant(op="conv2d", plan=plan, idea="none of its own")
