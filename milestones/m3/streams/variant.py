"""m3/streams: m3/fusion's kernel on parts of the batch, whose copies and launches overlap."""

from mini_dnn.variant import ConvShape, CopyIn, CopyOut, Images, Launch, Step, Variant, ceil_div

TILE = 16  # side of an output tile; TILE * TILE threads per block
STREAMS = 3  # parts under way at once: one copied in, one computed, one copied out
PARTS = 48  # of the batch; more make the unhidden first and last copy shorter


def plan(s: ConvShape) -> list[Step]:
    """Copy in, launch and copy out for each part, the streams in turn."""
    parts = min(PARTS, s.N)
    steps: list[Step] = []
    for part in range(parts):
        first, last, stream = part * s.N // parts, (part + 1) * s.N // parts, part % STREAMS
        x, y = Images("x", first, last), Images("y", first, last)
        grid = (ceil_div(s.P * s.Q, TILE), ceil_div(s.M, TILE), last - first)
        args = (x, "w", y, s.C, s.H, s.W, s.M, s.R, s.S)
        steps += [
            CopyIn(x, stream),
            Launch("conv_fused", grid, (TILE, TILE), args, stream=stream),
            CopyOut(y, stream),
        ]
    return steps


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    defines={"TILE": TILE},
    parent="m3/fusion",
    idea="copy the next part in and the last one out while this one computes, on several streams",
)
