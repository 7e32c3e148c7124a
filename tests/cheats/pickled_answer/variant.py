"""Answers with a pickle, which would run code when it is read."""
# expect: not valid JSON

import os
import pickle
import struct

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div


def plan(s: ConvShape) -> list[Launch]:
    """One launch."""

    class Evil:
        def __reduce__(self) -> tuple:
            return os.system, ("touch @OUT@/evil",)

    forged = pickle.dumps(Evil())
    os.write(4, struct.pack("<IQ", 0, len(forged)) + forged)
    grid = (ceil_div(s.P * s.Q, 64), s.M, s.N)
    return [Launch("conv", grid, (64,), ("x", "w", "y", s.N, s.C, s.H, s.W, s.M, s.R, s.S))]


VARIANT = Variant(op="conv2d", plan=plan, idea="none of its own")
