"""A network: a sequence of named layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.nn.layer import walk
from mini_dnn.nn.layers import Conv2d, Layer, Linear, Parameter, Shape
from mini_dnn.nn.transformer import MultiHeadAttention

NamedConvolve = Callable[[np.ndarray, np.ndarray, str], np.ndarray]  # (x, w, layer's name) -> y, a new array
NamedPadded = Callable[[np.ndarray, np.ndarray, int, int, str], np.ndarray]  # and stride, padding before it
NamedMultiply = Callable[[np.ndarray, np.ndarray, str], np.ndarray]  # (x, w, layer's name) -> x wᵀ
NamedAttend = Callable[[np.ndarray, float, str], np.ndarray]  # (qkv, scale, layer's name) -> o, a new array


@dataclass(frozen=True)
class LayerTime:
    """Wall time of one layer's forward pass."""

    name: str
    shape: Shape  # of the output
    ms: float


class Network:
    """A sequence of layers.

    Parameters
    ----------
    layers
        The layers by name, in the order in which they run.
    """

    def __init__(self, layers: Mapping[str, Layer]) -> None:
        self.layers = dict(layers)

    @property
    def architecture(self) -> str:
        """All layers in readable form: ``conv1 Conv2d(1 -> 4, 7x7), relu1 ReLU, ...``."""
        return ", ".join(f"{name} {layer!r}" for name, layer in self.layers.items())

    def parameters(self) -> dict[str, Parameter]:
        """Trained arrays, named ``conv1.weight`` and so on."""
        return {
            f"{name}.{key}": parameter
            for name, layer in self.layers.items()
            for key, parameter in layer.parameters().items()
        }

    def convolve_with(self, convolve: NamedConvolve) -> None:
        """Let ``convolve(x, w, name)`` run every convolution of stride 1 without padding from now on.

        Its result must be a new array: the layer after it may work in place.
        """
        for name, layer in walk(self.layers):
            if isinstance(layer, Conv2d) and layer.is_plain:
                layer.convolve = partial(_named, convolve, name)

    def convolve_padded_with(self, convolve: NamedPadded) -> None:
        """Let ``convolve(x, w, stride, padding, name)`` run every other convolution from now on.

        Its result must be a new array, without the layer's bias.
        """
        for name, layer in walk(self.layers):
            if isinstance(layer, Conv2d) and not layer.is_plain:
                layer.convolve = partial(_padded, convolve, layer.stride, layer.padding, name)

    def multiply_with(self, multiply: NamedMultiply) -> None:
        """Let ``multiply(x, w, name)`` compute x wᵀ in the forward pass of every linear layer from now on."""
        for name, layer in walk(self.layers):
            if isinstance(layer, Linear):
                layer.multiply = partial(_named, multiply, name)

    def attend_with(self, attend: NamedAttend) -> None:
        """Let ``attend(qkv, scale, name)`` compute each layer's attention from now on, except in training."""
        for name, layer in walk(self.layers):
            if isinstance(layer, MultiHeadAttention):
                layer.attend = partial(_named, attend, name)

    def check_input(self, x: np.ndarray) -> None:
        """Check x against every layer, before any of them computes.

        Raises
        ------
        ShapeError
            Names the first layer that does not fit, what it accepts and what it would get.
        """
        if not np.issubdtype(x.dtype, np.floating):
            raise ShapeError(
                f"a network takes floating-point input; found {x.dtype}. Next: convert it with "
                "datasets.to_float"
            )
        if x.shape[:1] == (0,):
            raise ShapeError(f"a network takes a batch of one or more; found {x.shape}")
        shape = x.shape
        for name, layer in self.layers.items():
            try:
                shape = layer.output_shape(shape)
            except ShapeError as error:
                raise ShapeError(f"layer '{name}' does not fit an input of {x.shape}: {error}") from None

    def forward(
        self, x: np.ndarray, training: bool = False, on_layer: Callable[[LayerTime], None] | None = None
    ) -> np.ndarray:
        """Run all layers.

        Outside training, layers work in place where they can and each intermediate array is freed as
        soon as the next one is complete, so that a batch of 10,000 needs little more than its largest two.

        Parameters
        ----------
        x
            (N, ...) in floating point; never changed.
        training
            Keep what `backward` needs.
        on_layer
            Called after each layer with its `LayerTime`.

        Raises
        ------
        ShapeError
            x does not fit; nothing was computed.
        """
        self.check_input(x)
        y = x
        for name, layer in self.layers.items():
            # A layer that returns a view (Flatten) can leave the caller's own memory in y.
            overwrite = not training and not np.may_share_memory(x, y)
            start = perf_counter()
            y = layer.forward(y, training, overwrite)
            if on_layer:
                on_layer(LayerTime(name, y.shape, (perf_counter() - start) * 1e3))
        return y

    def backward(self, dy: np.ndarray) -> None:
        """Store the gradients of all parameters, given the gradient of the loss by the output.

        The input's own gradient is not computed: nothing needs it.
        """
        first, *others = self.layers.values()
        for layer in reversed(others):
            dy = layer.backward(dy)
        first.backward_parameters(dy)

    def predict(self, x: np.ndarray, on_layer: Callable[[LayerTime], None] | None = None) -> np.ndarray:
        """The most likely classes, (N,) int64."""
        return self.forward(x, on_layer=on_layer).argmax(axis=1)


def _padded(
    convolve: NamedPadded, stride: int, padding: int, name: str, x: np.ndarray, w: np.ndarray
) -> np.ndarray:
    return convolve(x, w, stride, padding, name)


def _named(compute: Callable[[Any, Any, str], np.ndarray], name: str, first: Any, second: Any) -> np.ndarray:
    return compute(first, second, name)
