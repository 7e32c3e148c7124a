"""What all layers have in common: shapes, passes and trained arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mini_dnn.errors import MiniDnnError

Shape = tuple[int, ...]


@dataclass
class Parameter:
    """A trained array, with the gradient of the loss with respect to it after a backward pass."""

    value: np.ndarray
    grad: np.ndarray

    @classmethod
    def of(cls, value: np.ndarray) -> Parameter:
        """Wrap a value, with a gradient of zero."""
        return cls(value, np.zeros_like(value))


class Running(Parameter):
    """A running mean of a statistic of batches, such as that of a batch norm. The loss does not train it.

    After a training pass, ``grad`` is the value minus that of the batch. The weighted sum over the parts of a
    batch is therefore the one of the whole batch. `follow` moves the value.
    """

    MOMENTUM = 0.1  # weight of the newest batch

    def follow(self) -> None:
        """Move toward the value of the last batch."""
        self.value -= self.value.dtype.type(self.MOMENTUM) * self.grad


class Layer:
    """Base class of all layers; one without parameters overrides the first three methods.

    A layer that consists of others returns them in `inner`, and has their parameters.
    """

    _saved: Any = None  # data for the next backward pass

    def output_shape(self, shape: Shape) -> Shape:
        """The shape of the output for an input of this shape.

        Raises
        ------
        ShapeError
            The layer does not accept such an input.
        """
        raise self._lacks("output_shape(shape)", "the output's shape for an input of this shape")

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """Compute the output; keep what `backward` needs if ``training``.

        With ``overwrite``, the layer may write its output to the memory of x.
        """
        raise self._lacks("forward(x, training=False, overwrite=False)", "the output")

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the gradients of the parameters and return dx, of the input's shape."""
        raise self._lacks("backward(dy)", "the gradient of the input")

    def backward_parameters(self, dy: np.ndarray) -> None:
        """Store the gradients of the parameters, which is all that the first layer of a network needs.

        A layer overrides it if that takes less work than `backward`.
        """
        self.backward(dy)

    def inner(self) -> Mapping[str, Layer]:
        """The layers that it consists of, by name."""
        return {}

    def parameters(self) -> dict[str, Parameter]:
        """The trained arrays by name."""
        return {
            f"{name}.{key}": parameter
            for name, layer in self.inner().items()
            for key, parameter in layer.parameters().items()
        }

    def _lacks(self, method: str, result: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} has no method {method}: every layer needs one; it returns {result}"
        )

    def _take_saved(self) -> Any:
        saved, self._saved = self._saved, None
        if saved is None:
            raise MiniDnnError(f"{self!r}: backward() must follow a call of forward(x, training=True)")
        return saved


def walk(layers: Mapping[str, Layer], prefix: str = "") -> Iterator[tuple[str, Layer]]:
    """All layers and their inner layers, by name: ``attention1``, ``attention1.norm`` and so on."""
    for name, layer in layers.items():
        yield f"{prefix}{name}", layer
        yield from walk(layer.inner(), f"{prefix}{name}.")


def he_normal(rng: np.random.Generator, shape: Shape, dtype: npt.DTypeLike, gain: float = 2.0) -> Parameter:
    """Normal values of variance gain / (inputs of an output); ReLU keeps 2 (He et al., arXiv:1502.01852)."""
    return Parameter.of((rng.standard_normal(shape) * np.sqrt(gain / np.prod(shape[1:]))).astype(dtype))
