"""Problems of the operation ``resnet``, and the problem for given arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.nn.models.resnet import Convolution, ResNetSizes
from mini_dnn.ops.conv2d_padded_shape import PaddedShape
from mini_dnn.ops.images import PIXELS, check_batch, check_images, pixel_type
from mini_dnn.ops.problem import Array, Arrays, Problem, exactly


@dataclass(frozen=True)
class ResNetShape(Problem):
    """A batch through all of a residual network on one device: images in, scores out.

    Parameters
    ----------
    N
        Images.
    image, channels, stem, classes
        See `mini_dnn.nn.models.resnet.ResNetSizes`.
    widths, blocks, strides
        Four numbers each, one for each stage, such as ``"64-128-256-512"``: see there.
    dtype
        The type of the images: ``"fp32"`` or ``"fp16"``, which are already normalised, or ``"uint8"``, which
        the device converts to ``(byte / 255 - mean) / deviation``, with two more arrays.
    """

    N: int
    image: int
    channels: int
    stem: str
    widths: str
    blocks: str
    classes: int
    dtype: str = "fp32"
    strides: str = "1-2-2-2"

    def __post_init__(self) -> None:
        check_batch(self.N, self.dtype)
        self.sizes  # noqa: B018  (it refuses what does not fit together)

    @classmethod
    def like(cls, sizes: ResNetSizes, N: int, dtype: str = "fp32") -> ResNetShape:
        """A batch through a network of these sizes."""
        widths, blocks, strides = (
            "-".join(map(str, numbers)) for numbers in (sizes.widths, sizes.blocks, sizes.strides)
        )
        return cls(N, sizes.image, sizes.channels, sizes.stem, widths, blocks, sizes.classes, dtype, strides)

    @classmethod
    def of(cls, images: np.ndarray, sizes: ResNetSizes) -> ResNetShape:
        """The problem for images ``(N, channels, image, image)``."""
        return cls.like(sizes, len(images), pixel_type(images))

    @cached_property
    def sizes(self) -> ResNetSizes:
        """The sizes of the network."""
        widths, blocks, strides = (
            _numbers(name, self.fields[name]) for name in ("widths", "blocks", "strides")
        )
        return ResNetSizes(self.image, self.channels, self.stem, widths, blocks, self.classes, strides)

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the trained arrays, with torchvision's names."""
        return self.sizes.shapes

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Images, their mean and deviation if they are bytes, trained arrays, scores."""
        shape = (self.N, self.channels, self.image, self.image)
        given = {
            name: (self.channels,) for name in ("mean", "deviation") if self.dtype == "uint8"
        } | self.weights
        return {
            "images": Array(shape, PIXELS[self.dtype], axes="nchw"),
            **{name: Array(sides, role="weight", split=False) for name, sides in given.items()},
            "scores": Array((self.N, self.classes), role="out", axes="nk"),
        }

    def layer(
        self,
        conv: Convolution,
        dtype: str = "fp32",
        layout: str = "nchw",
        relu: bool = False,
        residual: bool = False,
    ) -> PaddedShape:
        """Return one of its convolutions, with what follows it."""
        sizes = (conv.C, conv.H, conv.H, conv.K, conv.R, conv.stride, conv.padding)
        return PaddedShape(self.N, *sizes, relu, residual, dtype, layout)

    @property
    def flops(self) -> int:
        """FLOPs of convolutions and the last layer, including products with padding."""
        return self.N * self.sizes.flops

    def __str__(self) -> str:
        """The text that commands print: input, sizes of the network, and output."""
        side, blocks = self.image, sum(self.sizes.blocks)
        return (
            f"({self.N},{self.channels},{side},{side}) {PIXELS[self.dtype]}, {blocks} blocks of "
            f"{self.widths} channels -> ({self.N},{self.classes})"
        )


def _numbers(name: str, text: str) -> tuple[int, ...]:
    """Parse the numbers of a word such as ``"64-128-256-512"``."""
    words = text.split("-")
    if not all(word.isdecimal() for word in words):
        raise ShapeError(f"{name} is {text!r}; expected four numbers such as 64-128-256-512")
    return tuple(int(word) for word in words)


def arrays_of(
    images: np.ndarray, *weights: np.ndarray, blocks: str = "2-2-2-2", strides: str = "1-2-2-2"
) -> tuple[ResNetShape, Arrays]:
    """The problem for images ``(N, channels, side, side)`` and trained arrays in the order of its `weights`.

    If the images are bytes, mean and deviation of the channels come before the trained arrays.

    Parameters
    ----------
    images
        (N, channels, side, side) float32 or float16, which are normalised, or uint8.
    weights
        The trained arrays, float32, in the order of torchvision's state dict, without
        ``num_batches_tracked``. If images are uint8, the mean and the deviation of each channel come first.
        The output is (N, classes) float32: scores.
    blocks, strides
        For each of the four stages, the number of its blocks and the stride of its first block.

    Raises
    ------
    ShapeError
        The arrays are not those of a residual network, or not of one for such images.
    """
    images = np.asarray(images)
    check_images(images)
    first = 2 if images.dtype == np.uint8 else 0
    found = [np.shape(weight) for weight in weights]
    filters = [shape for shape in found[first:] if len(shape) == 4 and shape[2] > 1]
    counts = _numbers("blocks", blocks)
    starts = [1 + 2 * sum(counts[:stage]) for stage in range(len(counts))]  # a block has two convolutions
    if 0 in counts or len(filters) != 1 + 2 * sum(counts) or len(found[-2]) != 2:
        raise ShapeError(
            f"found {len(found)} weights, {len(filters)} of them filters larger than a pixel; expected the "
            f"arrays of a residual network of {blocks} blocks, in the order of mini_dnn.nn.models.resnet"
        )
    widths = "-".join(str(filters[start][0]) for start in starts)
    stem = "small" if filters[0][2] == 3 else "imagenet"
    sizes = (
        images.shape[2],
        images.shape[1],
        stem,
        widths,
        blocks,
        found[-2][0],
        pixel_type(images),
        strides,
    )
    problem = ResNetShape(len(images), *sizes)
    named = problem.named("weight")
    if found != [array.shape for array in named.values()]:
        expected = {name: array.shape for name, array in named.items()}
        raise ShapeError(f"weights have the shapes {found}; expected {expected}")
    trained = {name: exactly(name, w, "float32") for name, w in zip(named, weights, strict=True)}
    return problem, {"images": np.ascontiguousarray(images), **trained}
