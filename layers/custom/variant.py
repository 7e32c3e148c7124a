"""layers/custom: the final kernel, on quads and tensor cores."""

from mini_dnn.quads import Tiling, cut, defines, fits, plan, scratch
from mini_dnn.variant import ConvShape, Variant, ceil_div

SHARED_BYTES = 113 * 1024  # of a block, two of which share a multiprocessor with 227 KB
MAX_BAND = 20  # output rows of a unit where a quad is several pixels


def tiling(s: ConvShape) -> Tiling | None:
    """How the work is cut; None: the shape is for conv_direct.

    Whole images leave in one copy each; bands do where an image would be too large, or has few channels.
    """
    if not fits(s):
        return None
    for bands in range(1 if s.C > 2 else ceil_div(s.P, MAX_BAND), s.P + 1):
        t = cut(s, bands, 6, 2, 1, 1) if s.C > 2 else cut(s, bands, 5, 3, 1, 2)
        if t.shared_bytes <= SHARED_BYTES:
            return t
    return None


VARIANT = Variant(
    op="conv2d",
    plan=lambda s: plan(s, tiling(s)),
    scratch=lambda s: scratch(s, tiling(s)),
    defines=lambda s: defines(s, tiling(s)),
    parent="m3/sliding_window",
    precision="fp16",
    idea="quads of the image are the tensor cores' operand, copies by the copy engine, weights in registers",
)
