"""Writes answers in advance, so that the grader would take them for answers to later questions."""
# expect: answered before it was asked|no plan

import json
import os
import struct
import time

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

forged = json.dumps(["conv2d", "fp32", 75, "", False]).encode()
os.write(4, (struct.pack("<IQ", 0, len(forged)) + forged) * 3)


def plan(s: ConvShape) -> list[Launch]:
    """One launch, after a delay."""
    time.sleep(0.1)
    grid = (ceil_div(s.P * s.Q, 64), s.M, s.N)
    return [Launch("conv", grid, (64,), ("x", "w", "y", s.N, s.C, s.H, s.W, s.M, s.R, s.S))]


VARIANT = Variant(op="conv2d", plan=plan, idea="none of its own")
