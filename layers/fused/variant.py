"""layers/fused: convolution, ReLU and max-pool in one kernel, on the tensor cores."""

from mini_dnn.fused import ConvPoolShape
from mini_dnn.quads import Tiling, cut, defines, fits, plan, scratch
from mini_dnn.variant import Variant

SHARED_BYTES = 113 * 1024  # of a block, two of which share a multiprocessor with 227 KB
MAX_ROWS = {True: 12, False: 20}  # of quads in a strip, where a quad is one pixel or several
POOLS = (1, 2, 4)  # windows that lie within four pixels


def tiling(s: ConvPoolShape) -> Tiling | None:
    """How the work is cut: whole images if they fit; None: the shape is for conv_direct."""
    if not fits(s):
        return None
    for bands in range(1, s.P + 1):
        if s.C > 2:
            t = cut(s, bands, 4, 4, 1, 2, pool=s.pool, max_rows=MAX_ROWS[True])
        else:
            t = cut(s, bands, 5, 2, 1, 1, pool=s.pool, max_rows=MAX_ROWS[False])
        if t.shared_bytes <= SHARED_BYTES:
            return t
    return None


VARIANT = Variant(
    op="conv2d_relu_pool",
    plan=lambda s: plan(s, tiling(s)),
    scratch=lambda s: scratch(s, tiling(s)),
    defines=lambda s: defines(s, tiling(s), s.pool),
    refuses=lambda s: (
        "" if s.pool in POOLS else f"it pools by {POOLS}, not by {s.pool}: windows lie within four pixels"
    ),
    parent="layers/custom",
    precision="fp16",
    idea="a window of the pool lies in a few lanes: the convolution's output never leaves registers",
)
