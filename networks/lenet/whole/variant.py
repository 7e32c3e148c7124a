"""networks/lenet/whole: the whole network in two kernels."""

from mini_dnn.variant import CopyToSymbol, Launch, LenetBatch, Step, Variant, ceil_div

THREADS = 256  # per block, in both kernels
SHARED_BYTES = 4 * (86 * 86 + 4 * 40 * 40)  # an image and its first pooled maps
IMAGES = 32  # per block of classify, as in the kernel


def scratch(s: LenetBatch) -> dict[str, tuple[int, ...]]:
    """The results that the first kernel leaves for the second."""
    return {"features": (s.N, 1296)}


def defines(s: LenetBatch) -> dict[str, int]:
    """The type of a pixel and the size of an image: see `Pixel` and `load` in the kernel."""
    return ({"BYTES": 1} if s.is_bytes else {}) | ({"RESIZE": 1} if s.side == 28 else {})


def setup(s: LenetBatch) -> list[Step]:
    """The copy of the filters to constant memory."""
    return [CopyToSymbol("w1", "conv1.weight"), CopyToSymbol("w2", "conv2.weight")]


def plan(s: LenetBatch) -> list[Step]:
    """A block per image, then a block per 32 images."""
    weights = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
    return [
        Launch("features", (s.N,), (THREADS,), ("images", "features"), SHARED_BYTES),
        Launch(
            "classify", (ceil_div(s.N, IMAGES),), (THREADS,), ("features", *weights, "probabilities", s.N)
        ),
    ]


VARIANT = Variant(
    op="lenet",
    plan=plan,
    setup=setup,
    scratch=scratch,
    defines=defines,
    parent="networks/lenet/fused_pool",
    idea="an image and its pooled maps stay in shared memory: only 1,296 features leave the block",
)
