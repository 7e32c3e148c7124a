"""Residual networks of basic blocks, such as ResNet-18 and -34, of any width and number of classes.

K. He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385. Trained arrays have
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

from mini_dnn.errors import ShapeError, UsageError, meant_file, reason
from mini_dnn.nn.layer import Layer
from mini_dnn.nn.layers import Conv2d, Flatten, Linear, ReLU, Softmax
from mini_dnn.nn.network import Network
from mini_dnn.nn.pooling import AdaptiveAvgPool2d, MaxPool2d
from mini_dnn.nn.residual import BasicBlock, BatchNorm2d
from mini_dnn.paths import read_regular

STAGES = 4
STEMS = ("imagenet", "small")
# Arrays of a batch norm, one number per channel
NORM_ARRAYS = ("weight", "bias", "running_mean", "running_var")
FORMAT = "mini_dnn.resnet/1"  # of a description
MOST_BYTES = 1 << 16  # of a file with a description
MOST = 1 << 16  # of each size: larger ones could not be allocated

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Convolution:
    """A convolution, its position in the network, and the batch norm after it.

    Parameters
    ----------
    name, norm
        The names of its trained arrays: ``layer2.0.conv1`` and ``layer2.0.bn1``.
    C, K
        The channels of input and output.
    R
        The rows and columns of a filter.
    stride, padding
        The same for rows and columns.
    H, P
        The rows and columns of input and output.
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
        """The rows and columns of the output."""
        return (self.H + 2 * self.padding - self.R) // self.stride + 1


@dataclass(frozen=True)
class Block:
    """A basic block: relu(conv2(relu(conv1(x))) + x), or + downsample(x) if the shape changes."""

    name: str
    conv1: Convolution
    conv2: Convolution
    downsample: Convolution | None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


@dataclass(frozen=True)
class ResNetSizes:
    """The sizes of a residual network.

    Parameters
    ----------
    image
        The rows and columns of an image.
    channels
        The channels of an image.
    stem
        ``"imagenet"``: 7×7 convolution with stride 2, then 3×3 maximum with stride 2 and padding 1.
        ``"small"``: 3×3 convolution with stride 1, for images of about 32 pixels.
    widths
        The channels of the four stages. The first one is also that of the stem.
    blocks
        The number of basic blocks in each stage: 2, 2, 2, 2 in ResNet-18 and 3, 4, 6, 3 in ResNet-34.
    classes
        The number of classes.
    strides
        The stride of the first block of each stage.

    Raises
    ------
    ShapeError
        The sizes do not match.
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
                raise ShapeError(
                    f"{name} must be {STAGES} integers of 1 or more, up to {MOST:,}; found {numbers!r}"
                )
        for name in ("image", "channels", "classes"):
            if not _is_count(getattr(self, name)):
                found = getattr(self, name)
                raise ShapeError(f"{name} must be an integer of 1 or more, up to {MOST:,}; found {found!r}")
        if self.stem not in STEMS:
            raise ShapeError(f"stem is one of {', '.join(STEMS)}; found {self.stem!r}")

    @property
    def title(self) -> str:
        """The usual name. ResNet-18 has 17 convolutions, without those of shortcuts, and a linear layer."""
        return f"ResNet-{2 + 2 * sum(self.blocks)}"

    @property
    def conv1(self) -> Convolution:
        """The convolution of the stem."""
        R, stride, padding = (7, 2, 3) if self.stem == "imagenet" else (3, 1, 1)
        return Convolution("conv1", "bn1", self.channels, self.widths[0], R, stride, padding, self.image)

    @property
    def pooled(self) -> int:
        """The rows and columns of the first block's input."""
        return (self.conv1.P - 1) // 2 + 1 if self.stem == "imagenet" else self.conv1.P

    @property
    def all_blocks(self) -> list[Block]:
        """All basic blocks in order."""
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
        """All convolutions in the order of torchvision's arrays, in which a block's downsample comes last."""
        found = [self.conv1]
        for block in self.all_blocks:
            found += [block.conv1, block.conv2, *([block.downsample] if block.downsample else [])]
        return found

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the trained arrays, by name."""
        found: dict[str, tuple[int, ...]] = {}
        for conv in self.convolutions:
            found[f"{conv.name}.weight"] = (conv.K, conv.C, conv.R, conv.R)
            found |= {f"{conv.norm}.{array}": (conv.K,) for array in NORM_ARRAYS}
        return found | {"fc.weight": (self.classes, self.widths[-1]), "fc.bias": (self.classes,)}

    @property
    def folded_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the arrays that `fold` returns, by name."""
        found: dict[str, tuple[int, ...]] = {}
        for conv in self.convolutions:
            found[f"{conv.name}.weight"] = (conv.K, conv.C, conv.R, conv.R)
            found[f"{conv.name}.bias"] = (conv.K,)
        return found | {"fc.weight": (self.classes, self.widths[-1]), "fc.bias": (self.classes,)}

    @property
    def flops(self) -> int:
        """FLOPs of one image in convolutions and the linear layer, two per product."""
        products = sum(c.P**2 * c.K * c.C * c.R**2 for c in self.convolutions)
        return 2 * (products + self.classes * self.widths[-1])

    def to_json(self) -> str:
        """Return a description of the network: a JSON object with these fields and the format's name."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)})

    @classmethod
    def from_file(cls, path: Path) -> ResNetSizes:
        """Read a description from a file.

        Raises
        ------
        UsageError
            The file cannot be read, or contains no description.
        """
        try:
            return cls.from_json(read_regular(path, MOST_BYTES))
        except OSError as error:
            why = f"{reason(error)}{meant_file(path)}"
            raise UsageError(f"the description {path} cannot be read: {why}") from error
        except ShapeError as error:
            raise UsageError(f"{path}: {error}") from error

    @classmethod
    def from_json(cls, text: str | bytes) -> ResNetSizes:
        """Parse a description. Omitted fields are those of ResNet-18.

        Raises
        ------
        ShapeError
            The text is not a description, or its numbers do not match.
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
FASHION = ResNetSizes(28, 1, "small", (16, 32, 32, 64), classes=10)  # multiples of 16, for tensor cores
CIFAR10 = ResNetSizes(32, 3, "small", (16, 32, 64, 128), classes=10)
PRESETS: Mapping[str, ResNetSizes] = {
    "resnet18": RESNET18,
    "resnet34": RESNET34,
    "fashion-mnist": FASHION,
    "cifar10": CIFAR10,
}


def build(sizes: ResNetSizes, rng: np.random.Generator, dtype: npt.DTypeLike = np.float32) -> Network:
    """Build the network, (N, channels, image, image) to (N, classes) probabilities.

    ``rng`` initialises it.
    """
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
