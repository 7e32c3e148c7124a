"""networks/lenet/fused_pool: convolution, ReLU and max-pool in one kernel."""

import numpy as np

from mini_dnn.variant import CopyToSymbol, Launch, LenetBatch, Step, Variant, ceil_div

THREADS = 128  # per block
TILE_M1, TILE_M2 = 4, 2  # channels per thread in each layer, as in the kernel


def scratch(s: LenetBatch) -> dict[str, tuple[int, ...]]:
    """The results that one kernel leaves for the next."""
    arrays = {"pool1": (s.N, 4, 40, 40), "pool2": (s.N, 16, 9, 9), "fc1": (s.N, 32)}
    return arrays | ({"x": (s.N, 1, 86, 86)} if s.is_bytes else {})


def setup(s: LenetBatch) -> list[Step]:
    """The copy of the filters to constant memory."""
    return [CopyToSymbol("w1", "conv1.weight"), CopyToSymbol("w2", "conv2.weight")]


def plan(s: LenetBatch) -> list[Step]:
    """Two convolutions, two linear layers, softmax."""
    pixels, x = s.N * 86 * 86, "x" if s.is_bytes else "images"
    normalise = Launch("normalise", (ceil_div(pixels, 256),), (256,), ("images", "x", np.int64(pixels)))
    return [
        *([normalise] if s.is_bytes else []),
        Launch("layer1", (ceil_div(40 * 40, THREADS), 4 // TILE_M1, s.N), (THREADS,), (x, "pool1")),
        Launch("layer2", (ceil_div(9 * 9, 96), 16 // TILE_M2, s.N), (96,), ("pool1", "pool2")),
        _linear("fc1", "pool2", "fc1", s.N, 1296, 32, relu=True),
        _linear("fc2", "fc1", "probabilities", s.N, 32, 10, relu=False),
        Launch("softmax", (ceil_div(s.N, THREADS),), (THREADS,), ("probabilities", s.N, 10)),
    ]


def _linear(name: str, x: str, y: str, N: int, inputs: int, outputs: int, relu: bool) -> Launch:
    arguments = (x, f"{name}.weight", f"{name}.bias", y, N, inputs, outputs, int(relu))
    return Launch("linear", (ceil_div(N * outputs, THREADS),), (THREADS,), arguments)


def refuses(s: LenetBatch) -> str:
    """The text of the limit: this variant does not resize images."""
    return "" if s.side == 86 else f"images of side {s.side} are resized by lenet/whole only"


VARIANT = Variant(
    op="lenet",
    plan=plan,
    setup=setup,
    scratch=scratch,
    refuses=refuses,
    parent="networks/lenet/layer_by_layer",
    idea="one thread computes all convolution results of a pooled pixel, and writes only their maximum",
)
