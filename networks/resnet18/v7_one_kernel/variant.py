"""networks/resnet18/v7_one_kernel: one launch, in which tiles wait for the tiles that they need."""

from typing import Any

from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.plans import residual
from mini_dnn.plans.implicit import STEP, Layer
from mini_dnn.variant import Array, Launch, TensorMap, Variant, ceil_div

CLUSTER, TILE = 8, 64  # blocks per cluster; windows and channels per tile
BLOCKS = 16 * CLUSTER  # blocks of the kernel
THREADS, MOST_LAYERS, MOST_IMAGES, FEW_STEPS = 160, 16, 8, 64
SHARED_BYTES = 5 * 2 * TILE * STEP * 2 + 7 * TILE * TILE * 4 // 8
STEM = residual.Stem(2, 14, 1, 2)


def refuses(s: ResNetShape) -> str:
    """The text of the limits: shapes that the kernel has no parameters for, or is too slow for."""
    if fault := residual.refuses(s):
        return fault
    if s.stem != "imagenet" or any(width % STEP for width in s.sizes.widths):
        return f"its stem is ImageNet's, and {STEP} divides its widths; networks/resnet18/v6 takes others"
    if 2 * sum(s.sizes.blocks) > MOST_LAYERS:
        return f"it has room for {MOST_LAYERS} layers behind the stem, and this network has more"
    if s.N > MOST_IMAGES:
        return f"its tiles are for few images, at most {MOST_IMAGES}; networks/resnet18/v6 takes more"
    return ""


def stage_layers(s: ResNetShape) -> list[list[Layer]]:
    """The convolutions after the stem, stage by stage."""
    layers = [layer for layer, _ in residual.layers(s)]
    ends = [2 * sum(s.sizes.blocks[: i + 1]) for i in range(len(s.sizes.blocks))]
    return [layers[end - 2 * count : end] for end, count in zip(ends, s.sizes.blocks, strict=True)]


def tiles(layer: Layer) -> int:
    """The number of tiles of a layer."""
    return ceil_div(layer.windows, TILE) * (layer.shape.K // TILE)


def blocks(s: ResNetShape) -> int:
    """The number of blocks of the kernel.

    All of them must be resident at once. A network of a few steps is computed by a single cluster.
    """
    work = max(tiles(layer) * layer.steps for layer, _ in residual.layers(s))
    return CLUSTER if work < FEW_STEPS else BLOCKS


def split(s: ResNetShape, layers: list[Layer]) -> int:
    """The number of blocks that share a tile, limited by the number of blocks and by the number of steps."""
    most, steps = max(map(tiles, layers)), min(layer.steps for layer in layers)
    return next(n for n in (8, 4, 2, 1) if n == 1 or (most * n <= blocks(s) and steps >= n))


def flags(s: ResNetShape) -> int:
    """The number of flags: one per two rows of the stem's output, and one per 64 windows of each layer."""
    layers = [layer for layer, _ in residual.layers(s)]
    return s.N * ceil_div(s.sizes.pooled, 2) + sum(ceil_div(layer.windows, TILE) for layer in layers)


def outputs(s: ResNetShape) -> list[str]:
    """The names of the buffers of the layers' outputs."""
    convolutions = [conv for block in s.sizes.all_blocks for conv in (block.conv1, block.conv2)]
    return [f"{conv.name.replace('.', '_')}_y" for conv in convolutions]


def scratch(s: ResNetShape) -> dict[str, Any]:
    """The output of each layer, the weights in the kernel's format, and flags."""
    found = {name: array for name, array in residual.scratch(s).items() if name not in residual.SLOTS}
    found["stem_y"] = Array((s.N, s.sizes.pooled, s.sizes.pooled, s.sizes.widths[0]), "float16")
    for name, (layer, _) in zip(outputs(s), residual.layers(s), strict=True):
        p = layer.shape
        found[name] = Array((s.N, p.P, p.Q, p.K), "float16")
    return {**found, "flags": Array((flags(s) + 1,), "int32")}


def setup(s: ResNetShape) -> list[Launch]:
    """The weights are converted to the kernel's format, and all flags are cleared."""
    count = flags(s) + 1
    return [*residual.setup(s), Launch("clear", (ceil_div(count, 256),), (256,), ("flags", count))]


def defines(s: ResNetShape) -> dict[str, int]:
    """The network's sizes, and the number of blocks that share a tile, stage by stage."""
    sizes, found = s.sizes, {"IMAGES": residual.BITS[s.dtype]}
    for i, layers in enumerate(stage_layers(s)):
        found |= {f"WIDTH_{i + 1}": sizes.widths[i], f"BLOCKS_{i + 1}": sizes.blocks[i]}
        found |= {f"STRIDE_{i + 1}": sizes.strides[i], f"SPLIT_{i + 1}": split(s, layers)}
    return found


def plan(s: ResNetShape) -> list[Launch]:
    """One launch. Parameters of layers that do not exist are those of the first layer."""
    sizes, box = s.sizes, (TILE, STEP)
    made, maps, arrays, more = ["stem_y", *outputs(s)], [], [], []
    for i, (layer, block) in enumerate(residual.layers(s)):
        p, conv = layer.shape, (block.conv1, block.conv2)[i % 2]
        w, bias = residual.packed(conv)
        maps.append(TensorMap(made[i], box, (p.N, p.H, p.W, p.C), windows=(p.R, p.stride, p.padding)))
        maps.append(TensorMap(w, box, (p.K, layer.line)))
        arrays += [made[i + 1], bias]
    for i, stage in enumerate(stage_layers(s)):
        second, x = stage[1], 2 * sum(sizes.blocks[:i])
        shape = stage[0].shape
        sides = (s.N, shape.H, shape.W, shape.C)
        shortcut = TensorMap(made[x], box, sides, windows=(1, second.more_stride, 0))
        more.append(shortcut if second.more_C else maps[0])
    missing = MOST_LAYERS - len(maps) // 2
    maps, arrays = maps + maps[:2] * missing, arrays + arrays[:2] * missing
    conv1, (w, bias) = sizes.conv1, residual.packed(sizes.conv1)
    # For float pixels any buffers will do: they are not read
    norm = ("mean", "deviation") if s.dtype == "uint8" else (bias, bias)
    given = ("stem_y", "images", *norm, w, bias, "fc.weight", "fc.bias", "scores", "flags")
    numbers = (s.N, s.channels, s.image, conv1.P, sizes.pooled, flags(s), s.classes)
    args = (*maps, *more, *arrays, *given, *numbers)
    shared = max(SHARED_BYTES, STEM.shared_bytes, sizes.widths[-1] * 4)
    return [Launch("whole", (blocks(s),), (THREADS,), args, shared, cluster=CLUSTER)]


VARIANT = Variant(
    op="resnet",
    plan=plan,
    setup=setup,
    scratch=scratch,
    defines=defines,
    refuses=refuses,
    parent="networks/resnet18/v6_graph",
    precision="fp16",
    min_arch=90,
    idea="one kernel: a tile waits only for the tiles that it depends on, and loads its weights before that",
)
