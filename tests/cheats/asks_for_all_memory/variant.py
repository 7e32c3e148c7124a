"""Requests so much scratch memory that none is left for others."""
# expect: needs [\d.]+ MB for one entry

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div


def scratch(s: ConvShape) -> dict[str, tuple[int, ...]]:
    """A quarter of a terabyte."""
    return {"large": (1 << 36,)}


def plan(s: ConvShape) -> list[Launch]:
    """One launch."""
    grid = (ceil_div(s.P * s.Q, 64), s.M, s.N)
    return [Launch("conv", grid, (64,), ("x", "w", "y", s.N, s.C, s.H, s.W, s.M, s.R, s.S))]


VARIANT = Variant(op="conv2d", plan=plan, scratch=scratch, idea="none of its own")
