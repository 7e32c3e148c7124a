"""networks/resnet18/v4_tensor_cores: halves with channels last, and convolutions on the tensor cores."""

from mini_dnn.nn.models.resnet import NORM_ARRAYS, Convolution
from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.plans.elements import BITS, THREADS, each, each_warp
from mini_dnn.variant import Array, Call, Launch, Step, Variant, ceil_div

CONVOLUTION = "conv2d_padded/v2_wmma"  # any variant of the operation that supports fp16 nhwc


def wide(s: ResNetShape) -> int:
    """The number of channels of a pixel that a thread handles: 8 are 16 bytes."""
    return 1 if any(width % 8 for width in s.sizes.widths) else 8


def scratch(s: ResNetShape) -> dict[str, Array]:
    """Pixels and maps with channels last, filters in halves, and the input of the last layer."""

    def image(side: int, channels: int) -> Array:
        return Array((s.N, side, side, channels), "float16")

    convolutions, pooled = s.sizes.convolutions, s.sizes.pooled
    found = {"pixels": image(s.image, s.channels)}
    found |= {conv.name: image(conv.P, conv.K) for conv in convolutions}
    found |= {f"{c.name}.half": Array((c.K, c.R, c.R, c.C), "float16") for c in convolutions}
    if s.stem == "imagenet":
        found["pooled"] = image(pooled, s.sizes.conv1.K)
    return {**found, "features": Array((s.N, s.sizes.widths[-1])), "zeros": Array((max(s.sizes.widths),))}


def setup(s: ResNetShape) -> list[Step]:
    """Filters are converted to halves with channels last.

    A convolution's bias is zero, because its norm has one.
    """
    steps: list[Step] = [each("clear", max(s.sizes.widths), "zeros")]
    for conv in s.sizes.convolutions:
        count, names = conv.K * conv.C * conv.R**2, (f"{conv.name}.weight", f"{conv.name}.half")
        steps.append(each("turn", count, *names, conv.C, conv.R**2, at=2))
    return steps


def layer(
    s: ResNetShape, conv: Convolution, x: str, shortcut: str = "", relu: bool = True
) -> list[Step | Call]:
    """A convolution of the buffer ``x``, its norm, and the operations that follow the norm."""
    arrays = {"x": x, "w": f"{conv.name}.half", "bias": "zeros", "y": conv.name}
    norm = [f"{conv.norm}.{name}" for name in NORM_ARRAYS]
    # Without a shortcut any buffer will do: it is not read
    more = (shortcut or conv.name, conv.K, int(bool(shortcut)), int(relu))
    count = s.N * conv.P**2 * conv.K // wide(s)
    return [
        Call(CONVOLUTION, s.layer(conv, "fp16", "nhwc"), arrays),
        each("finish", count, conv.name, *norm, *more, at=6),
    ]


def plan(s: ResNetShape) -> list[Step | Call]:
    """The layers in the order of the network."""
    conv, x = s.sizes.conv1, "conv1"
    # For float pixels any buffers will do: they are not read
    moments = ("mean", "deviation") if s.dtype == "uint8" else ("zeros", "zeros")
    count = s.N * s.channels * s.image**2
    steps: list[Step | Call] = [
        each("convert", count, "images", *moments, "pixels", s.channels, s.image**2, at=4),
        *layer(s, conv, "pixels"),
    ]
    if s.stem == "imagenet":
        count = s.N * s.sizes.pooled**2 * conv.K // wide(s)
        steps.append(each("max_pool", count, x, "pooled", conv.K, conv.P, s.sizes.pooled, at=2))
        x = "pooled"
    for block in s.sizes.all_blocks:
        steps += layer(s, block.conv1, x)
        if block.downsample:
            steps += layer(s, block.downsample, x, relu=False)
        shortcut = block.downsample.name if block.downsample else x
        steps += layer(s, block.conv2, block.conv1.name, shortcut)
        x = block.conv2.name
    width, pixels = s.sizes.widths[-1], s.sizes.all_blocks[-1].conv2.P ** 2
    features = (x, "features", s.N * width, width, pixels)
    scores = ("features", "fc.weight", "fc.bias", "scores", s.N * s.classes, width, s.classes)
    return [
        *steps,
        Launch("average_pool", (ceil_div(s.N * width, THREADS),), (THREADS,), features),
        each_warp("linear", s.N * s.classes, *scores),
    ]


VARIANT = Variant(
    op="resnet",
    plan=plan,
    setup=setup,
    scratch=scratch,
    defines=lambda s: {"IMAGES": BITS[s.dtype], "WIDE": wide(s)},
    parent="networks/resnet18/v3_shared",
    precision="fp16",
    idea="halves with channels last: convolutions on the tensor cores, and one kernel between two of them",
)
