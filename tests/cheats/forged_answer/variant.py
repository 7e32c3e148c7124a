"""Writes a grade to the place of its answers."""
# expect: not a plan

import os
import struct

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div


def plan(s: ConvShape) -> list[Launch]:
    """One launch."""
    forged = b'{"score": 100}'
    os.write(4, struct.pack("<IQ", 0, len(forged)) + forged)
    grid = (ceil_div(s.P * s.Q, 64), s.M, s.N)
    return [Launch("conv", grid, (64,), ("x", "w", "y", s.N, s.C, s.H, s.W, s.M, s.R, s.S))]


VARIANT = Variant(op="conv2d", plan=plan, idea="none of its own")
