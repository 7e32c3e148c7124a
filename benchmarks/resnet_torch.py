"""The residual network of `resnet.py` in PyTorch: in eager mode and with torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch._dynamo
from torch import Tensor, nn
from torch.nn import functional

from mini_dnn.nn.models.resnet import NORM_ARRAYS, Convolution, ResNetSizes
from mini_dnn.nn.models.resnet_arrays import fold
from mini_dnn.nn.residual import EPSILON

COMPILED = ("default", "max-autotune")  # modes of torch.compile

Run = Callable[[], Any]


class ResNet(nn.Module):
    """`mini_dnn.nn.models.resnet` with the same names of weights, except for dots."""

    def __init__(self, sizes: ResNetSizes, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.sizes = sizes
        self.folded = f"{sizes.conv1.norm}.weight" not in weights
        for name, value in weights.items():
            self.register_buffer(name.replace(".", "_"), value)

    def forward(self, images: Tensor) -> Tensor:
        """(N, channels, side, side) to scores (N, classes)."""
        x = functional.relu(self.layer(self.sizes.conv1, images))
        x = functional.max_pool2d(x, 3, 2, 1)
        for block in self.sizes.all_blocks:
            shortcut = self.layer(block.downsample, x) if block.downsample else x
            x = functional.relu(self.layer(block.conv1, x))
            x = functional.relu(self.layer(block.conv2, x) + shortcut)
        return functional.linear(x.mean(dim=(2, 3)), self.of("fc.weight"), self.of("fc.bias"))

    def layer(self, conv: Convolution, x: Tensor) -> Tensor:
        """Apply a convolution and its batch norm, which may be folded."""
        weight = self.of(f"{conv.name}.weight")
        if self.folded:
            return functional.conv2d(x, weight, self.of(f"{conv.name}.bias"), conv.stride, conv.padding)
        x = functional.conv2d(x, weight, None, conv.stride, conv.padding)
        gain, shift, mean, variance = (self.of(f"{conv.norm}.{name}") for name in NORM_ARRAYS)
        return functional.batch_norm(x, mean, variance, gain, shift, False, 0.0, EPSILON)

    def of(self, name: str) -> Tensor:
        """The trained array with this name."""
        found: Tensor = getattr(self, name.replace(".", "_"))
        return found


def network(sizes: ResNetSizes, arrays: Mapping[str, np.ndarray], dtype: torch.dtype) -> ResNet:
    """The network with weights on the GPU. Filters have their channels last."""
    weights = {name: torch.from_numpy(value).cuda().to(dtype) for name, value in arrays.items()}
    for name, value in weights.items():
        if value.dim() == 4:
            weights[name] = value.contiguous(memory_format=torch.channels_last)
    return ResNet(sizes, weights).eval()


def reference(sizes: ResNetSizes, images: Tensor, weights: Mapping[str, np.ndarray]) -> Tensor:
    """Scores in float64."""
    found: Tensor = network(sizes, weights, torch.float64)(images.double())
    return found


def ways(
    sizes: ResNetSizes, images: Tensor, weights: Mapping[str, np.ndarray], modes: Sequence[str]
) -> Iterator[tuple[str, Run]]:
    """Yield named ways: channels last, with a separate and with a folded batch norm."""
    images = images.contiguous(memory_format=torch.channels_last)
    for name, arrays in (("batch norm folded", fold(sizes, weights)), ("batch norm apart", weights)):
        model = network(sizes, arrays, images.dtype)
        if "eager" in modes:
            yield f"PyTorch eager, {name}", partial(model, images)
        if name != "batch norm folded":
            continue
        for mode in COMPILED:
            if mode in modes:
                torch._dynamo.reset()
                torch._dynamo.mark_static_address(images)  # otherwise, its CUDA graph would first copy them
                compiled = torch.compile(model, mode=mode, dynamic=False)
                yield f"torch.compile {mode}, {name}", partial(compiled, images)
