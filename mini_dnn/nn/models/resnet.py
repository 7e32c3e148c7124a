"""Residual networks of basic blocks, such as ResNet-18 and -34, of any width and number of classes.

K. He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385. Trained arrays carry
torchvision's names, so that its state dicts fit: ``conv1.weight``, ``bn1.running_mean``,
``layer2.0.downsample.0.weight``, ``fc.bias``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mini_dnn.errors import ShapeError, UsageError
from mini_dnn.nn.layer import Layer
from mini_dnn.nn.layers import Conv2d, Flatten, Linear, ReLU, Softmax
from mini_dnn.nn.network import Network
from mini_dnn.nn.pooling import AdaptiveAvgPool2d, MaxPool2d
from mini_dnn.nn.residual import BasicBlock, BatchNorm2d
from mini_dnn.paths import read_regular

STAGES = 4
STEMS = ("imagenet", "small")
NORM_ARRAYS = ("weight", "bias", "running_mean", "running_var")  # of a batch norm, one number a channel
FORMAT = "mini_dnn.resnet/1"  # of a description
MOST_BYTES = 1 << 16  # of a file with one

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Convolution:
    """One convolution, the batch norm after it, and what it is applied to.

    Parameters
    ----------
    name, norm
        Of its trained arrays: ``layer2.0.conv1`` and ``layer2.0.bn1``.
    C, K
        Channels of input and output.
    R
        Rows and columns of a filter.
    stride, padding
        In rows and columns alike.
    H, P
        Rows and columns of input and output.
    """

    name: str
    norm: str
    C: int
    K: int
    R: int
    stride: int
    padding: int
    H: int

    @property
    def P(self) -> int:
        """Rows and columns of the output."""
        return (self.H + 2 * self.padding - self.R) // self.stride + 1


@dataclass(frozen=True)
class Block:
    """A basic block: relu(conv2(relu(conv1(x))) + x), or + downsample(x) where the shape changes."""

    name: str
    conv1: Convolution
    conv2: Convolution
    downsample: Convolution | None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


@dataclass(frozen=True)
class ResNetSizes:
    """What a residual network is made of.

    Parameters
    ----------
    image
        Rows and columns of an image.
    channels
        Of an image.
    stem
        ``"imagenet"``: 7×7 convolution of stride 2, then 3×3 maximum of stride 2 with padding 1;
        ``"small"``: 3×3 convolution of stride 1, for images of some 32 pixels.
    widths
        Channels of the four stages; the first is the stem's, too.
    blocks
        How many basic blocks a stage has: 2, 2, 2, 2 in ResNet-18 and 3, 4, 6, 3 in ResNet-34.
    classes
        That there are.
    strides
        Of the first block of each stage.

    Raises
    ------
    ShapeError
        They do not fit together.
    """

    image: int = 224
    channels: int = 3
    stem: str = "imagenet"
    widths: tuple[int, ...] = (64, 128, 256, 512)
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    classes: int = 1000
    strides: tuple[int, ...] = (1, 2, 2, 2)

    def __post_init__(self) -> None:
        for name in ("widths", "blocks", "strides"):
            numbers = getattr(self, name)
            if not isinstance(numbers, tuple) or len(numbers) != STAGES or not all(map(_is_count, numbers)):
                raise ShapeError(f"{name} must be {STAGES} integers of 1 or more; found {numbers!r}")
        for name in ("image", "channels", "classes"):
            if not _is_count(getattr(self, name)):
                raise ShapeError(f"{name} must be an integer of 1 or more; found {getattr(self, name)!r}")
        if self.stem not in STEMS:
            raise ShapeError(f"stem is one of {', '.join(STEMS)}; found {self.stem!r}")

    @property
    def title(self) -> str:
        """The usual name: ResNet-18 has 17 convolutions, without those of shortcuts, and a linear layer."""
        return f"ResNet-{2 + 2 * sum(self.blocks)}"

    @property
    def conv1(self) -> Convolution:
        """The stem's."""
        R, stride, padding = (7, 2, 3) if self.stem == "imagenet" else (3, 1, 1)
        return Convolution("conv1", "bn1", self.channels, self.widths[0], R, stride, padding, self.image)

    @property
    def pooled(self) -> int:
        """Rows and columns of what the first block takes."""
        return (self.conv1.P - 1) // 2 + 1 if self.stem == "imagenet" else self.conv1.P

    @property
    def all_blocks(self) -> list[Block]:
        """All basic blocks, in order."""
        found, C, H = [], self.widths[0], self.pooled
        for stage in range(STAGES):
            K = self.widths[stage]
            for i in range(self.blocks[stage]):
                name, stride = f"layer{stage + 1}.{i}", self.strides[stage] if i == 0 else 1
                conv1 = Convolution(f"{name}.conv1", f"{name}.bn1", C, K, 3, stride, 1, H)
                conv2 = Convolution(f"{name}.conv2", f"{name}.bn2", K, K, 3, 1, 1, conv1.P)
                down = Convolution(f"{name}.downsample.0", f"{name}.downsample.1", C, K, 1, stride, 0, H)
                found.append(Block(name, conv1, conv2, down if stride != 1 or C != K else None))
                C, H = K, conv1.P
        return found

    @property
    def convolutions(self) -> list[Convolution]:
        """All of them in the order of torchvision's arrays: a block's downsample comes last."""
        found = [self.conv1]
        for block in self.all_blocks:
            found += [block.conv1, block.conv2, *([block.downsample] if block.downsample else [])]
        return found

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the trained arrays, by name."""
        found: dict[str, tuple[int, ...]] = {}
        for conv in self.convolutions:
            found[f"{conv.name}.weight"] = (conv.K, conv.C, conv.R, conv.R)
            found |= {f"{conv.norm}.{array}": (conv.K,) for array in NORM_ARRAYS}
        return found | {"fc.weight": (self.classes, self.widths[-1]), "fc.bias": (self.classes,)}

    @property
    def folded_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what `fold` makes, by name."""
        found: dict[str, tuple[int, ...]] = {}
        for conv in self.convolutions:
            found[f"{conv.name}.weight"] = (conv.K, conv.C, conv.R, conv.R)
            found[f"{conv.name}.bias"] = (conv.K,)
        return found | {"fc.weight": (self.classes, self.widths[-1]), "fc.bias": (self.classes,)}

    @property
    def flops(self) -> int:
        """Of one image, in convolutions and the linear layer: two a product."""
        products = sum(c.P**2 * c.K * c.C * c.R**2 for c in self.convolutions)
        return 2 * (products + self.classes * self.widths[-1])

    def to_json(self) -> str:
        """Describe the network: a JSON object with these fields and the format's name."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)})

    @classmethod
    def from_file(cls, path: Path) -> ResNetSizes:
        """Read a file that holds a description.

        Raises
        ------
        UsageError
            It cannot be read, or holds none.
        """
        try:
            return cls.from_json(read_regular(path, MOST_BYTES))
        except OSError as error:
            raise UsageError(f"the description {path} cannot be read: {error}") from error
        except ShapeError as error:
            raise UsageError(f"{path}: {error}") from error

    @classmethod
    def from_json(cls, text: str | bytes) -> ResNetSizes:
        """Read a description; fields that are left out are ResNet-18's.

        Raises
        ------
        ShapeError
            It is no description, or its numbers do not fit together.
        """
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ShapeError(f"the description of the network is not valid JSON: {error}") from None
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ShapeError(f'a description of a network is an object with "format": "{FORMAT}"')
        fields = [field.name for field in dataclasses.fields(cls)]
        if surplus := sorted(set(found) - set(fields)):
            raise ShapeError(
                f"no field {', '.join(surplus)} in a description; expected one of {', '.join(fields)}"
            )
        lists: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
        }
        return cls(**lists)


RESNET18 = ResNetSizes()
RESNET34 = ResNetSizes(blocks=(3, 4, 6, 3))
FASHION = ResNetSizes(28, 1, "small", (16, 32, 32, 64), classes=10)  # multiples of 16, as tensor cores take
CIFAR10 = ResNetSizes(32, 3, "small", (16, 32, 64, 128), classes=10)
PRESETS: Mapping[str, ResNetSizes] = {
    "resnet18": RESNET18,
    "resnet34": RESNET34,
    "fashion-mnist": FASHION,
    "cifar10": CIFAR10,
}


def build(sizes: ResNetSizes, rng: np.random.Generator, dtype: npt.DTypeLike = np.float32) -> Network:
    """Build the network, (N, channels, image, image) to (N, classes) probabilities, drawn from ``rng``."""
    stem = sizes.conv1
    kernel = (stem.R, stem.R)
    layers: dict[str, Layer] = {
        "conv1": Conv2d(stem.C, stem.K, kernel, rng, dtype, stem.stride, stem.padding),
        "bn1": BatchNorm2d(stem.K, dtype),
        "relu": ReLU(),
    }
    if sizes.stem == "imagenet":
        layers["maxpool"] = MaxPool2d(3, stride=2, padding=1)
    for block in sizes.all_blocks:
        layers[block.name] = BasicBlock(block.conv1.C, block.conv1.K, block.conv1.stride, rng, dtype)
    layers |= {
        "avgpool": AdaptiveAvgPool2d(1),
        "flatten": Flatten(),
        "fc": Linear(sizes.widths[-1], sizes.classes, rng, dtype, gain=1),
        "softmax": Softmax(),
    }
    return Network(layers)
