"""A second launch changes x: that is late in the order of launches, but blocks of both launches race."""

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div


def plan(s: ConvShape) -> list[Launch]:
    """The convolution with one thread per output, then one thread that changes the input."""
    grid = (ceil_div(s.P * s.Q, 64), s.M, s.N)
    sizes = (s.N, s.C, s.H, s.W, s.M, s.R, s.S)
    return [Launch("conv", grid, (64,), ("x", "w", "y", *sizes)), Launch("change", (1, 1, 1), (1,), ("x",))]


VARIANT = Variant(op="conv2d", plan=plan, idea="the right output, and then another input")
