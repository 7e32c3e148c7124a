"""Run and measure the heavy layers of a network in a variant of their operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, sqrt
from typing import Any, ClassVar

import numpy as np

from mini_dnn import ops
from mini_dnn.errors import CheckError, VariantError
from mini_dnn.measuring.measure import Measured, Setting, joined, measure
from mini_dnn.nn.network import Network
from mini_dnn.nn.numpy_attention import attention_forward
from mini_dnn.nn.numpy_padded import channels_last, channels_second, padded_forward
from mini_dnn.ops import Arrays
from mini_dnn.ops.problem import TYPES
from mini_dnn.paths import program
from mini_dnn.variant import Variant

# Operations of single layers
LAYER, LINEAR, ATTENTION, PADDED = "conv2d", "gemm", "attention", "conv2d_padded"
HALF_TYPES = ("float32", "float16")  # of attention, and of convolutions with padding
TOLERANCE = 1e-4  # for a probability if all operands are fp32
HALF_TOLERANCE = 2e-2  # if some are not
ALIKE = 1_000  # one of this many images may change its class


@dataclass
class Layerwise:
    """Runs all layers of one kind in one variant.

    Parameters
    ----------
    variant
        The variant.
    setting
        Where and how it is measured.
    on_layer
        Called with each layer as soon as it is complete.
    """

    words: ClassVar[tuple[str, str]]  # such a layer, singular and plural

    variant: Variant
    setting: Setting
    on_layer: Callable[[Measured], None] = lambda layer: None
    layers: list[Measured] = field(default_factory=list)

    def attach(self, network: Network) -> None:
        """Make the network's layers of this kind run here from now on."""
        raise NotImplementedError

    def _measure(self, name: str, problem: Any, arrays: Arrays, variant: Variant | None = None) -> np.ndarray:
        layer = measure(variant or self.variant, name, problem, arrays, self.setting)
        self.layers.append(replace(layer, result=replace(layer.result, outputs={})))  # the outputs are large
        self.on_layer(self.layers[-1])
        return layer.result.y

    def _first_taken(self, ways: Iterator[tuple[str, Any, Arrays]]) -> tuple[Any, Arrays]:
        """Return the first problem that the variant accepts, with its arrays in the matching type."""
        limits = []
        for dtype, problem, arrays in ways:
            limits.append(self.variant.limit_for(problem))
            if limits[-1]:
                continue
            if not all(np.isfinite(array).all() for array in arrays.values()):
                raise VariantError(
                    f"{self.variant.name} uses {self.words[1]} in {dtype}, whose range some numbers exceed"
                )
            return problem, arrays
        raise VariantError(f"{self.variant.name} does not support {self.words[0]}: {limits[0]}")


@dataclass
class Convolutions(Layerwise):
    """Runs a network's convolutions in one variant."""

    words = ("a convolution", "convolutions")

    def attach(self, network: Network) -> None:
        """Make the network's convolutions run here from now on."""
        network.convolve_with(self)

    def __call__(self, x: np.ndarray, w: np.ndarray, name: str) -> np.ndarray:
        """Convolve for the layer of this name.

        Raises
        ------
        CheckError
            See `measure`.
        """
        return self._measure(name, *ops.find(LAYER).of(x, w))


@dataclass
class PaddedConvolutions(Layerwise):
    """Runs a network's convolutions with stride or padding in one variant."""

    words = ("this convolution", "convolutions")

    def attach(self, network: Network) -> None:
        """Make the network's convolutions with stride or padding run here from now on."""
        network.convolve_padded_with(self)

    def __call__(self, x: np.ndarray, w: np.ndarray, stride: int, padding: int, name: str) -> np.ndarray:
        """Convolve x (N, C, H, W) for the layer of this name. The result is (N, K, P, Q) in the type of x.

        The type is chosen as in `Products`, and the layout is the first one that the variant accepts:
        channels second or last. ReLU, residual and bias are left to other layers.

        Raises
        ------
        VariantError
            The variant accepts no type or layout, or only one that cannot represent a number in x or w.
        CheckError
            See `measure`.
        """

        def ways() -> Iterator[tuple[str, Any, Arrays]]:
            bias = np.zeros(len(w), np.float32)
            for dtype in HALF_TYPES:
                with np.errstate(over="ignore"):
                    rounded = [a.astype(dtype, copy=False) for a in (x, w)]
                for layout in ("nchw", "nhwc"):
                    given = rounded if layout == "nchw" else [a.transpose(0, 2, 3, 1) for a in rounded]
                    problem = ops.find(PADDED).of(*given, bias, stride=stride, padding=padding, layout=layout)
                    yield dtype, *problem

        problem, arrays = self._first_taken(ways())
        variant = self.variant
        if variant.host is not None:  # it only receives the arrays
            variant = replace(variant, host=partial(_convolve, stride=stride, padding=padding))
        y = self._measure(name, problem, arrays, variant)
        y = y if problem.layout == "nchw" else y.transpose(0, 3, 1, 2)
        return y.astype(x.dtype, copy=False)


def _convolve(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int = 1, padding: int = 0
) -> np.ndarray:
    y = channels_last(padded_forward(channels_second(x), channels_second(w), stride, padding))
    y += bias
    return y


def _not_numpys(problem: Any) -> str:
    """Forms of a convolution that a network's layers do not have."""
    plain = problem.dtype == "fp32" and problem.layout == "nhwc"
    return "" if plain and not problem.relu and not problem.residual else "NumPy's is fp32, nhwc and plain"


NUMPY_PADDED = Variant(
    op=PADDED,
    host=_convolve,
    refuses=_not_numpys,
    name="cpu",
    idea="NumPy: windows of some images are copied as lines of a matrix, and multiplied in BLAS",
)


@dataclass
class Products(Layerwise):
    """Runs a network's linear layers in one variant of the matrix product."""

    words = ("a linear layer", "linear layers")

    def attach(self, network: Network) -> None:
        """Make the network's linear layers run here from now on."""
        network.multiply_with(self)

    def __call__(self, x: np.ndarray, w: np.ndarray, name: str) -> np.ndarray:
        """Multiply x by the transposed w for the layer of this name.

        Operands stay in fp32 if the variant accepts that. Otherwise, they are rounded to the first type that
        it accepts.

        Raises
        ------
        VariantError
            The variant accepts no type, or only one that cannot represent a number in x or w.
        CheckError
            See `measure`.
        """

        def ways() -> Iterator[tuple[str, Any, Arrays]]:
            for dtype in TYPES.values():
                with np.errstate(over="ignore"):
                    rounded = x.astype(dtype), w.astype(dtype)
                yield dtype, *ops.find(LINEAR).of(*rounded, layout="nt")

        return np.asarray(self._measure(name, *self._first_taken(ways()))[0])


@dataclass
class Attentions(Layerwise):
    """Runs a network's attention in one variant."""

    words = ("this attention", "attention")

    def attach(self, network: Network) -> None:
        """Make the network's attention run here from now on."""
        network.attend_with(self)

    def __call__(self, qkv: np.ndarray, scale: float, name: str) -> np.ndarray:
        """Attention of ``qkv (N, T, 3, H, d)`` for the layer of this name: ``(N, T, H, d)`` in qkv's type.

        The type is chosen as in `Products`. The packed array is passed unchanged if the variant accepts that,
        and otherwise as three parts.

        Raises
        ------
        VariantError
            The variant accepts no type, or only one that cannot represent a number in qkv.
        CheckError
            See `measure`.
        """
        usual = scale == 1 / sqrt(qkv.shape[-1])

        def ways() -> Iterator[tuple[str, Any, Arrays]]:
            for dtype in HALF_TYPES:
                with np.errstate(over="ignore"):
                    rounded = qkv.astype(dtype, copy=False)
                for given in ((rounded,), tuple(np.moveaxis(rounded, 2, 0).swapaxes(2, 3))):
                    yield dtype, *ops.find(ATTENTION).of(*given, scale=0.0 if usual else scale)

        problem, arrays = self._first_taken(ways())
        o = self._measure(name, problem, arrays).astype(qkv.dtype, copy=False)
        return o if "qkv" in arrays else np.ascontiguousarray(o.swapaxes(1, 2))


def _attention(qkv: np.ndarray) -> np.ndarray:
    return attention_forward(qkv, 1 / sqrt(qkv.shape[-1]))[0]


def _unlike(problem: Any) -> str:
    """Forms of attention that a network's layers do not have."""
    plain = problem.dtype == "fp32" and problem.layout == "packed"
    return "" if plain and not problem.causal and not problem.scale else "NumPy's is fp32, packed and plain"


NUMPY_ATTENTION = Variant(
    op=ATTENTION,
    host=_attention,
    refuses=_unlike,
    name="cpu",
    idea="NumPy: heads are views, and each is multiplied in BLAS",
)


ON_HOST = {ATTENTION: NUMPY_ATTENTION, PADDED: NUMPY_PADDED}  # the variant "cpu" of networks' layers


def by_layer(measured: Sequence[Measured]) -> list[Measured]:
    """Join the records of parts to one record for each layer, in the order of the layers."""
    names = dict.fromkeys(one.name for one in measured)
    return [joined([one for one in measured if one.name == name]) for name in names]


def compare(found: np.ndarray, expected: np.ndarray, layers: list[Measured]) -> str:
    """Compare probabilities (N, classes) with those of NumPy, and describe how they agree.

    Parameters
    ----------
    layers
        The layers that ran elsewhere. If one had an operand that was not fp32, the tolerance is larger.

    Raises
    ------
    CheckError
        More than one of 1,000 images has another class, or a probability differs by more than the tolerance.
    """
    exact = all(layer.problem.dtype == "fp32" and layer.variant.precision == "fp32" for layer in layers)
    most = TOLERANCE if exact else HALF_TOLERANCE
    same = int((found.argmax(axis=1) == expected.argmax(axis=1)).sum())
    off = float(np.abs(found - expected).max())
    words = (
        f"the class of {same:,} of {len(found):,} images is NumPy's, and probabilities differ by {off:.2e} "
        f"at most (bound {most:g})"
    )
    if len(found) - same > ceil(len(found) / ALIKE) or not off <= most:
        cause = program("check", *(layer.variant.name for layer in layers[:1]))
        raise CheckError(f"the network differs from NumPy's: {words}. Find the cause with: {cause}")
    return words
