"""Geometry, FLOPs and bytes of a convolution: the only place where they are computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from mini_dnn.errors import ShapeError

FLOAT_BYTES = 4

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ConvShape:
    """A valid convolution with stride 1: ``x (N,C,H,W) * w (M,C,R,S) -> y (N,M,P,Q)``.

    As a matrix product it is ``w (M,K) @ col (K,cols)``, ``col`` being the unrolled input.
    """

    N: int
    C: int
    H: int
    W: int
    M: int
    R: int
    S: int

    def __post_init__(self) -> None:
        small = [f"{name} = {value}" for name, value in vars(self).items() if value < 1]
        if small:
            raise ShapeError(f"a convolution needs every size to be at least 1, but {', '.join(small)}")
        if self.R > self.H or self.S > self.W:
            raise ShapeError(
                f"the filter {self.R} x {self.S} is larger than the image {self.H} x {self.W}; "
                "a valid convolution needs R <= H and S <= W: pad the image or take a smaller filter"
            )

    @classmethod
    def of(cls, x: np.ndarray, w: np.ndarray) -> ConvShape:
        """The shape of convolving these arrays, ``(N,C,H,W)`` and ``(M,C,R,S)``."""
        N, C, H, W = x.shape
        M, _, R, S = w.shape
        return cls(N, C, H, W, M, R, S)

    @property
    def P(self) -> int:
        """Output height."""
        return self.H - self.R + 1

    @property
    def Q(self) -> int:
        """Output width."""
        return self.W - self.S + 1

    @property
    def K(self) -> int:
        """Length of the reduction, C R S."""
        return self.C * self.R * self.S

    @property
    def cols(self) -> int:
        """Columns of the unrolled matrix, N P Q."""
        return self.N * self.P * self.Q

    @property
    def x(self) -> tuple[int, int, int, int]:
        """Shape of the input."""
        return (self.N, self.C, self.H, self.W)

    @property
    def w(self) -> tuple[int, int, int, int]:
        """Shape of the filters."""
        return (self.M, self.C, self.R, self.S)

    @property
    def y(self) -> tuple[int, int, int, int]:
        """Shape of the output."""
        return (self.N, self.M, self.P, self.Q)

    @property
    def buffers(self) -> dict[str, Shape]:
        """Arrays that every plan for it works on."""
        return {"x": self.x, "w": self.w, "y": self.y}

    @property
    def dtypes(self) -> dict[str, str]:
        """Those of arrays that are not float32."""
        return {}

    @property
    def flops(self) -> int:
        """Floating-point operations: a multiplication and an addition for each of the M K cols products."""
        return 2 * self.M * self.K * self.cols

    @property
    def x_bytes(self) -> int:
        """Bytes of the input, in float32."""
        return FLOAT_BYTES * self.N * self.C * self.H * self.W

    @property
    def y_bytes(self) -> int:
        """Bytes of the output, in float32."""
        return FLOAT_BYTES * self.N * self.M * self.P * self.Q

    @property
    def min_bytes(self) -> int:
        """Bytes that must cross the memory bus: input, filters and output once each, in fp32."""
        return self.x_bytes + FLOAT_BYTES * self.M * self.K + self.y_bytes

    def with_batch(self, n: int) -> ConvShape:
        """The same convolution of ``n`` images."""
        return replace(self, N=n)

    def __str__(self) -> str:
        """As people write it: ``(N,C,H,W) * (M,C,R,S) -> (N,M,P,Q)``."""
        return f"{self.x} * {self.w} -> {self.y}"


@dataclass(frozen=True)
class LenetBatch:
    """A batch through all of LeNet on one device: images in, probabilities out.

    Parameters
    ----------
    N
        Images.
    is_bytes
        Whether they come as uint8 (to be divided by 255 there) or as float32.
    side
        Of an image: 86, or 28 for bytes that are to be resized there.
    """

    N: int
    is_bytes: bool = False
    side: int = 86

    def __post_init__(self) -> None:
        if self.N < 1:
            raise ShapeError(f"a batch has one image or more; found N = {self.N}")
        if self.side != 86 and not (self.side == 28 and self.is_bytes):
            raise ShapeError(f"images have a side of 86, or are bytes of side 28; found side {self.side}")

    @classmethod
    def of(cls, images: np.ndarray) -> LenetBatch:
        """The batch that these images ``(N, 1, side, side)``, uint8 or float32, are."""
        return cls(len(images), images.dtype == np.uint8, images.shape[-1])

    @property
    def weights(self) -> dict[str, Shape]:
        """Trained arrays, as `mini_dnn.nn.models.lenet` names them."""
        return {
            "conv1.weight": (4, 1, 7, 7),
            "conv2.weight": (16, 4, 7, 7),
            "fc1.weight": (32, 1296),
            "fc1.bias": (32,),
            "fc2.weight": (10, 32),
            "fc2.bias": (10,),
        }

    @property
    def buffers(self) -> dict[str, Shape]:
        """Arrays that every plan for it works on."""
        return {"images": (self.N, 1, self.side, self.side), **self.weights, "probabilities": (self.N, 10)}

    @property
    def dtypes(self) -> dict[str, str]:
        """Those of arrays that are not float32."""
        return {"images": "uint8"} if self.is_bytes else {}

    @property
    def flops(self) -> int:
        """Floating-point operations of its convolutions and linear layers."""
        linear = 2 * self.N * (1296 * 32 + 32 * 10)
        return sum(layer.flops for layer in self.convolutions) + linear

    @property
    def convolutions(self) -> tuple[ConvShape, ConvShape]:
        """conv1 and conv2."""
        return ConvShape(self.N, 1, 86, 86, 4, 7, 7), ConvShape(self.N, 4, 40, 40, 16, 7, 7)

    @property
    def min_bytes(self) -> int:
        """Bytes that must cross the memory bus: images, weights and probabilities once each."""
        image = self.side**2 * (1 if self.is_bytes else FLOAT_BYTES)
        weights = sum(prod(shape) for shape in self.weights.values())
        return self.N * image + FLOAT_BYTES * (weights + self.N * 10)

    def with_batch(self, n: int) -> LenetBatch:
        """The same with ``n`` images."""
        return replace(self, N=n)

    def __str__(self) -> str:
        """Input and output, as people write them."""
        kind = "uint8" if self.is_bytes else "float32"
        return f"({self.N},1,{self.side},{self.side}) {kind} -> ({self.N},10)"


def as_float32(name: str, array: np.ndarray, axes: str) -> np.ndarray:
    """The array as C-contiguous float32, converted where that loses nothing.

    Parameters
    ----------
    name, axes
        What messages call the array and its axes, such as ``"x"`` and ``"N,C,H,W"``.

    Raises
    ------
    ShapeError
        Wrong rank, an empty axis, or a dtype that float32 cannot hold exactly.
    """
    array = np.asarray(array)
    rank = axes.count(",") + 1
    if array.ndim != rank:
        raise ShapeError(
            f"{name} has {array.ndim} axes, shape {array.shape}; expected {rank}: ({axes}). "
            f"Use {name}.reshape or {name}[None] to add an axis"
        )
    if array.size == 0:
        raise ShapeError(f"{name} is empty, shape {array.shape}; expected at least 1 along each of ({axes})")
    if not np.can_cast(array.dtype, np.float32, "safe"):
        raise ShapeError(
            f"{name} is {array.dtype}, which float32 cannot hold exactly; "
            f"pass {name}.astype(np.float32) if the loss is meant"
        )
    return np.ascontiguousarray(array, dtype=np.float32)


def conv_arrays(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, ConvShape]:
    """Check an input and its filters; return both as contiguous float32, and the shape.

    Raises
    ------
    ShapeError
        Wrong rank or dtype, an empty array, unequal channels, a filter larger than the image.
    """
    x, w = as_float32("x", x, "N,C,H,W"), as_float32("w", w, "M,C,R,S")
    if x.shape[1] != w.shape[1]:
        raise ShapeError(
            f"x {x.shape} has {x.shape[1]} channels and w {w.shape} expects {w.shape[1]}; "
            "axis 1 of both must be equal"
        )
    return x, w, ConvShape.of(x, w)
