"""The trained arrays of residual networks: folded batch norms, and the sizes that shapes of arrays imply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.nn.models.resnet import NORM_ARRAYS, STAGES, Arrays, ResNetSizes
from mini_dnn.nn.residual import EPSILON


def fold(sizes: ResNetSizes, arrays: Arrays) -> dict[str, np.ndarray]:
    """Fold each batch norm into the weight and bias of the convolution before it.

    Parameters
    ----------
    sizes
        The sizes of the network.
    arrays
        The trained arrays, with names and shapes as in `ResNetSizes.shapes`.

    Returns
    -------
    dict
        Arrays as described by `ResNetSizes.folded_shapes`, C-contiguous, computed in float64 and rounded to
        the type of ``arrays``.
    """
    found = {}
    for conv in sizes.convolutions:
        weight = arrays[f"{conv.name}.weight"]
        gain, shift, mean, variance = (arrays[f"{conv.norm}.{a}"].astype(np.float64) for a in NORM_ARRAYS)
        scale = gain / np.sqrt(variance + EPSILON)
        found[f"{conv.name}.weight"] = (weight * scale[:, None, None, None]).astype(weight.dtype, order="C")
        found[f"{conv.name}.bias"] = (shift - mean * scale).astype(weight.dtype)
    return found | {name: np.ascontiguousarray(arrays[name]) for name in ("fc.weight", "fc.bias")}


def sizes_of(shapes: Mapping[str, tuple[int, ...]], image: int | None = None) -> ResNetSizes:
    """Determine a network's sizes from the shapes of its trained arrays, which have torchvision's names.

    Parameters
    ----------
    image
        The rows and columns of an image, which no array reveals; by default 224, or 28 for the small stem.

    Raises
    ------
    ShapeError
        The arrays are not of such a network. The message names the array that is missing or has a wrong
        shape.
    """
    stem = _shape(shapes, "conv1.weight", 4)
    if stem[2:] not in ((7, 7), (3, 3)):
        raise ShapeError(f"'conv1.weight' is {stem}; a stem has filters of 7×7 or 3×3")
    small = stem[2] == 3
    widths = [_shape(shapes, f"layer{stage}.0.conv1.weight", 4)[0] for stage in range(1, STAGES + 1)]
    classes = _shape(shapes, "fc.weight", 2)[0]
    return ResNetSizes(
        image or (28 if small else 224),
        stem[1],
        "small" if small else "imagenet",
        tuple(widths),
        tuple(len(list(_blocks(shapes, stage))) for stage in range(1, STAGES + 1)),
        classes,
    )


def _blocks(shapes: Mapping[str, tuple[int, ...]], stage: int) -> Iterator[int]:
    i = 0
    while f"layer{stage}.{i}.conv1.weight" in shapes:
        yield i
        i += 1


def _shape(shapes: Mapping[str, tuple[int, ...]], name: str, axes: int) -> tuple[int, ...]:
    if name not in shapes:
        raise ShapeError(f"'{name}' is missing: this is not a residual network of basic blocks")
    if len(shapes[name]) != axes:
        raise ShapeError(f"'{name}' is {shapes[name]}; expected {axes} axes")
    return shapes[name]
