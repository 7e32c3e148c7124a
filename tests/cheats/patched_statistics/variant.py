"""Patches the statistics and the comparison with float64."""
# expect: elements differ from float64

import statistics

from mini_dnn.ops import compare as reference
from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div


def plan(s: ConvShape) -> list[Launch]:
    """One launch."""
    statistics.median = lambda samples: 1e-6
    reference.compare = lambda *rest: reference.Comparison(1, 0, None, 0.0, 0.0, 0.0, 0.0)
    grid = (ceil_div(s.P * s.Q, 64), s.M, s.N)
    return [Launch("conv", grid, (64,), ("x", "w", "y", s.N, s.C, s.H, s.W, s.M, s.R, s.S))]


VARIANT = Variant(op="conv2d", plan=plan, idea="none of its own")
