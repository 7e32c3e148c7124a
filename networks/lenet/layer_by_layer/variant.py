"""networks/lenet/layer_by_layer: each layer is a kernel, and all of them run on the GPU."""

from mini_dnn.plans.elements import THREADS, each
from mini_dnn.variant import Launch, LenetBatch, Variant, ceil_div


def scratch(s: LenetBatch) -> dict[str, tuple[int, ...]]:
    """The output of each layer, except for layers that work in place."""
    sizes = {
        "conv1": (4, 80, 80),
        "pool1": (4, 40, 40),
        "conv2": (16, 34, 34),
        "pool2": (16, 9, 9),
        "fc1": (32,),
    }
    outputs = {name: (s.N, *size) for name, size in sizes.items()}
    return outputs | ({"x": (s.N, 1, 86, 86)} if s.is_bytes else {})


def plan(s: LenetBatch) -> list[Launch]:
    """One launch per layer, in the order of the network."""
    N = s.N

    steps = [each("normalise", N * 86 * 86, "images", "x", at=2)] if s.is_bytes else []
    x = "x" if s.is_bytes else "images"
    return [
        *steps,
        each("convolve", N * 4 * 80 * 80, x, "conv1.weight", "conv1", 1, 86, 86, 4, 7, 7, at=3),
        each("relu", N * 4 * 80 * 80, "conv1"),
        each("max_pool", N * 4 * 40 * 40, "conv1", "pool1", 80, 80, 40, 40, 2, at=2),
        each("convolve", N * 16 * 34 * 34, "pool1", "conv2.weight", "conv2", 4, 40, 40, 16, 7, 7, at=3),
        each("relu", N * 16 * 34 * 34, "conv2"),
        each("max_pool", N * 16 * 9 * 9, "conv2", "pool2", 34, 34, 9, 9, 4, at=2),
        each("linear", N * 32, "pool2", "fc1.weight", "fc1.bias", "fc1", 1296, 32, at=4),
        each("relu", N * 32, "fc1"),
        each("linear", N * 10, "fc1", "fc2.weight", "fc2.bias", "probabilities", 32, 10, at=4),
        Launch("softmax", (ceil_div(N, THREADS),), (THREADS,), ("probabilities", N, 10)),
    ]


def refuses(s: LenetBatch) -> str:
    """The text of the limit: this variant does not resize images."""
    return "" if s.side == 86 else f"images of side {s.side} are resized by lenet/whole only"


VARIANT = Variant(
    op="lenet",
    parent="m1/direct",
    plan=plan,
    scratch=scratch,
    refuses=refuses,
    idea="one kernel per layer, from images to probabilities",
)
