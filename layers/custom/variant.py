"""layers/custom: the final kernel, on quads and tensor cores."""

from dataclasses import replace

from mini_dnn.quads import COMPACT_BYTES, SHARED_BYTES, Tiling, cut, defines, fits, plan, scratch
from mini_dnn.variant import ConvShape, Variant, ceil_div

MAX_BAND = 20  # output rows of a unit where a quad is several pixels


def tiling(s: ConvShape, block_bytes: int) -> Tiling | None:
    """How the work is cut; None: the shape is for conv_direct.

    Whole images leave in one copy each; bands do where an image would be too large, or has few channels.
    """
    if not fits(s):
        return None
    for bands in range(1 if s.C > 2 else ceil_div(s.P, MAX_BAND), s.P + 1):
        t = cut(s, bands, 6, 2, 1, 1) if s.C > 2 else cut(s, bands, 5, 3, 1, 2)
        if t.within(block_bytes):
            return t
    return None


def make(block_bytes: int) -> Variant:
    """The kernel in blocks of at most so many bytes of shared memory."""
    return Variant(
        op="conv2d",
        plan=lambda s: plan(s, tiling(s, block_bytes)),
        scratch=lambda s: scratch(s, tiling(s, block_bytes)),
        defines=lambda s: defines(s, tiling(s, block_bytes)),
        parent="m3/sliding_window",
        precision="fp16",
        idea="the image in quads is the tensor cores' operand; weights stay in registers, copies run beside",
    )


VARIANT = replace(make(SHARED_BYTES), compact=make(COMPACT_BYTES))
