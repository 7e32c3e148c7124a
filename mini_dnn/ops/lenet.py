"""LeNet, the course's network, as one operation: images in, probabilities out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.nn.models import lenet
from mini_dnn.ops.conv2d import LAYERS, ConvShape
from mini_dnn.ops.operation import Operation
from mini_dnn.ops.problem import Array, Arrays, Problem, exactly

SIDE, SMALL_SIDE, CLASSES = 86, 28, 10
WEIGHTS = {
    "conv1.weight": (4, 1, 7, 7),
    "conv2.weight": (16, 4, 7, 7),
    "fc1.weight": (32, 1296),
    "fc1.bias": (32,),
    "fc2.weight": (10, 32),
    "fc2.bias": (10,),
}
# tolerances of a probability: fp32 sums stay below 1e-5, halves have 11 bits, and sums in half lose as many
# again
TOLERANCE = {"fp32": 1e-4, "tf32": 2e-2, "fp16": 2e-2, "fp16_sum": 5e-2}


@dataclass(frozen=True)
class LenetBatch(Problem):
    """A batch through all of LeNet on one device: images in, probabilities out.

    Parameters
    ----------
    N
        Images.
    is_bytes
        Whether images are uint8, which the device divides by 255, or float32.
    side
        The side of an image: 86, or 28 for bytes that the device resizes.
    """

    N: int
    is_bytes: bool = False
    side: int = SIDE

    def __post_init__(self) -> None:
        if self.N < 1:
            raise ShapeError(f"a batch has one image or more; found N = {self.N}")
        if self.side != SIDE and not (self.side == SMALL_SIDE and self.is_bytes):
            raise ShapeError(f"images have a side of 86, or are bytes of side 28; found side {self.side}")

    @classmethod
    def of(cls, images: np.ndarray) -> LenetBatch:
        """The problem for images ``(N, 1, side, side)``, uint8 or float32."""
        return cls(len(images), images.dtype == np.uint8, images.shape[-1])

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Images, trained arrays as `mini_dnn.nn.models.lenet` names them, probabilities."""
        kind = "uint8" if self.is_bytes else "float32"
        return {
            "images": Array((self.N, 1, self.side, self.side), kind, axes="nchw"),
            **{name: Array(shape, role="weight", split=False) for name, shape in WEIGHTS.items()},
            "probabilities": Array((self.N, CLASSES), role="out", axes="nk"),
        }

    @property
    def convolutions(self) -> tuple[ConvShape, ...]:
        """conv1 and conv2."""
        return tuple(layer.with_batch(self.N) for layer in LAYERS.values())

    @property
    def flops(self) -> int:
        """Floating-point operations of its convolutions and linear layers."""
        linear = 2 * self.N * (1296 * 32 + 32 * CLASSES)
        return sum(layer.flops for layer in self.convolutions) + linear

    def __str__(self) -> str:
        """Input and output, as text."""
        kind = "uint8" if self.is_bytes else "float32"
        return f"({self.N},1,{self.side},{self.side}) {kind} -> ({self.N},{CLASSES})"


def arrays_of(images: np.ndarray, *weights: np.ndarray) -> tuple[LenetBatch, Arrays]:
    """The problem for images ``(N, 1, side, side)`` and the weights in the order of `WEIGHTS`.

    Parameters
    ----------
    images
        (N, 1, 86, 86) float32 or uint8, or (N, 1, 28, 28) uint8. Bytes are divided by 255.
    weights
        The six arrays of `mini_dnn.ops.lenet.WEIGHTS`, float32, in its order. The output is
        (N, 10) float32: probabilities.

    Raises
    ------
    ShapeError
        The shape or type of an array does not fit LeNet.
    """
    images = np.asarray(images)
    is_square = images.ndim == 4 and images.shape[1] == 1 and images.shape[2] == images.shape[3]
    if not is_square or images.dtype not in (np.uint8, np.float32):
        raise ShapeError(
            f"images are {images.shape} {images.dtype}; expected (N, 1, 86, 86) float32 or uint8, or "
            "(N, 1, 28, 28) uint8"
        )
    found = [np.shape(weight) for weight in weights]
    if found != list(WEIGHTS.values()):
        raise ShapeError(f"weights have the shapes {found}; expected {WEIGHTS}")
    trained = {name: exactly(name, w, "float32") for name, w in zip(WEIGHTS, weights, strict=True)}
    return LenetBatch.of(images), {"images": np.ascontiguousarray(images), **trained}


def answer(problem: LenetBatch, arrays: Arrays) -> Arrays:
    """The probabilities in float64."""
    network = lenet.build(np.random.default_rng(0), np.float64)
    for name, parameter in network.parameters().items():
        parameter.value[:] = arrays[name]
    images = arrays["images"]
    if problem.side != SIDE:
        # Imported here, because it needs Pillow, h5py and others, which no plan needs
        from mini_dnn.datasets import resize

        images = resize(images[:, 0])
    scale = 255.0 if problem.is_bytes else 1.0
    return {"probabilities": network.forward(images / np.float64(scale))}


def bound(problem: LenetBatch, arrays: Arrays, precision: str) -> Arrays:
    """The same for every probability: see `TOLERANCE`."""
    return {"probabilities": np.full((problem.N, CLASSES), TOLERANCE[precision])}


def draw(problem: LenetBatch, rng: np.random.Generator) -> Arrays:
    """Noise, and the initial weights of a training, except for biases that are not zero."""
    pixels = rng.integers(0, 256, problem.arrays["images"].shape, np.uint8)
    network = lenet.build(rng)
    weights = {name: parameter.value for name, parameter in network.parameters().items()}
    for name, value in weights.items():
        if name.endswith("bias"):
            value[:] = rng.standard_normal(value.shape)
    return {"images": pixels if problem.is_bytes else pixels / np.float32(255), **weights}


OPERATION = Operation(
    name="lenet",
    about="LeNet, the course's network: images in, probabilities out",
    problem=LenetBatch,
    answer=answer,
    bound=bound,
    check=(LenetBatch(1), LenetBatch(3), LenetBatch(2, True), LenetBatch(2, True, SMALL_SIDE)),
    course={
        "float32": LenetBatch(10_000),
        "uint8": LenetBatch(10_000, True),
        "uint8-28": LenetBatch(10_000, True, SMALL_SIDE),
    },
    of=arrays_of,
    draw=draw,
    axes={"n": "image", "k": "class"},
    cure="compare layer by layer with mini_dnn.nn.models.lenet, which runs in float64",
    default="networks/lenet/tensor_cores",
    baseline="networks/lenet/whole",
)
