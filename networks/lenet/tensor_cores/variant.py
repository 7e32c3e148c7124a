"""networks/lenet/tensor_cores: the whole network in two kernels, on the tensor cores."""

from mini_dnn.variant import Launch, LenetBatch, Variant, ceil_div

WARPS = 4  # per block of features
BLOCKS = {False: 3, True: 4}  # per multiprocessor, with fp32 pixels in shared memory or without
MAX_GRID = 480  # more blocks than are resident on any GPU; those that start late find no work
FEW_WARPS = 12  # per block if each has at most one image: then its latency counts
IMAGES, THREADS = 32, 256  # per block of classify
IMAGE_BYTES = {
    86: 29696,
    28: 3328,
}  # of shared memory: fp32 pixels, or bytes before and while they are resized
OTHER_BYTES = 14848 + 15616 + 2048  # quads of the image and of pool1, fragments of the filters


def shared_bytes(s: LenetBatch) -> int:
    """Dynamic shared memory of a block of features, in bytes."""
    staged = 0 if s.is_bytes and s.side == 86 else IMAGE_BYTES[s.side]
    return staged + OTHER_BYTES


def defines(s: LenetBatch) -> dict[str, int]:
    """The type of a pixel and the size of an image, and the number of threads per block."""
    kinds = ({"BYTES": 1} if s.is_bytes else {}) | ({"RESIZE": 1} if s.side == 28 else {})
    few = s.N <= MAX_GRID
    return kinds | {
        "FEW": int(few),
        "THREADS": 32 * (FEW_WARPS if few else WARPS),
        "BLOCKS": 1 if few else BLOCKS[s.is_bytes],
        "SHARED_BYTES": shared_bytes(s),
        "SIDE_OF_INPUT": s.side,
    }


def plan(s: LenetBatch) -> list[Launch]:
    """A launch that clears the counter, one for the features, and one that classifies.

    The blocks of the second launch stay until all images are done. A block of the third has 32 images.

    If there are few images, each block has one, and no counter is needed.
    """
    linear = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
    first = ("images", "conv1.weight", "conv2.weight", "features", "next", s.N)
    count = [] if s.N <= MAX_GRID else [Launch("reset", (1,), (1,), ("next",))]
    return [
        *count,
        Launch("features", (min(s.N, MAX_GRID),), (defines(s)["THREADS"],), first, shared_bytes(s)),
        Launch("classify", (ceil_div(s.N, IMAGES),), (THREADS,), ("features", *linear, "probabilities", s.N)),
    ]


def scratch(s: LenetBatch) -> dict[str, tuple[int, ...]]:
    """1,296 halves per image in the places of 648 float32, and a counter."""
    return {"features": (s.N, 648), "next": (1,)}


VARIANT = Variant(
    op="lenet",
    plan=plan,
    scratch=scratch,
    defines=defines,
    parent="networks/lenet/whole",
    precision="fp16",
    idea="both convolutions on quads: the results of the first layer are the operands of the second layer",
)
