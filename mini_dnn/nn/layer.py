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
    """A trained array, and the gradient of the loss by it after a backward pass."""

    value: np.ndarray
    grad: np.ndarray

    @classmethod
    def of(cls, value: np.ndarray) -> Parameter:
        """Wrap a value, with a gradient of zero."""
        return cls(value, np.zeros_like(value))


class Running(Parameter):
    """A mean of what batches show, such as a batch norm's: no loss trains it.

    After a pass in training ``grad`` is the value less the batch's own, so that the sum over the parts of a
    batch, each with its share, is that of the batch; `follow` moves the value.
    """

    MOMENTUM = 0.1  # share of the newest batch

    def follow(self) -> None:
        """Move toward what the last batch showed."""
        self.value -= self.value.dtype.type(self.MOMENTUM) * self.grad


class Layer:
    """Base of all layers; one without parameters overrides the first three methods.

    A layer that is made of others names them in `inner`, and has their parameters.
    """

    _saved: Any = None  # what the next backward pass needs

    def output_shape(self, shape: Shape) -> Shape:
        """Shape of the output for an input of that shape.

        Raises
        ------
        ShapeError
            The layer cannot take such an input.
        """
        raise NotImplementedError

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """Compute the output; keep what `backward` needs if ``training``.

        With ``overwrite`` the caller gives x away: the layer may put its output there.
        """
        raise NotImplementedError

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the gradients of the parameters and return dx, of the input's shape."""
        raise NotImplementedError

    def backward_parameters(self, dy: np.ndarray) -> None:
        """Store the gradients of the parameters only: all that a network's first layer owes."""

    def inner(self) -> Mapping[str, Layer]:
        """The layers that it is made of, by name."""
        return {}

    def parameters(self) -> dict[str, Parameter]:
        """Trained arrays by name."""
        return {
            f"{name}.{key}": parameter
            for name, layer in self.inner().items()
            for key, parameter in layer.parameters().items()
        }

    def _take_saved(self) -> Any:
        saved, self._saved = self._saved, None
        if saved is None:
            raise MiniDnnError(f"{self!r}: backward() must follow a call of forward(x, training=True)")
        return saved


def walk(layers: Mapping[str, Layer], prefix: str = "") -> Iterator[tuple[str, Layer]]:
    """All layers and those that they are made of, by name: ``attention1``, ``attention1.norm`` and so on."""
    for name, layer in layers.items():
        yield f"{prefix}{name}", layer
        yield from walk(layer.inner(), f"{prefix}{name}.")


def he_normal(rng: np.random.Generator, shape: Shape, dtype: npt.DTypeLike, gain: float = 2.0) -> Parameter:
    """Normal values of variance gain / (inputs of an output); ReLU keeps 2 (He et al., arXiv:1502.01852)."""
    return Parameter.of((rng.standard_normal(shape) * np.sqrt(gain / np.prod(shape[1:]))).astype(dtype))
