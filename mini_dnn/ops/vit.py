"""Vision transformers, each as one operation: images in, probabilities out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.nn.models import vit
from mini_dnn.nn.network import Network
from mini_dnn.ops.attention import AttentionShape
from mini_dnn.ops.compare import CONFIDENCE, ROUND_OFF
from mini_dnn.ops.images import PIXELS, check_batch, check_images, pixel_type
from mini_dnn.ops.operation import Operation
from mini_dnn.ops.problem import Array, Arrays, Problem, exactly

ROUNDINGS = 8  # of a token in a block: what two norms, four products, attention and GELU leave
SPREAD = 0.3  # standard deviation of what is drawn for biases, class token and positions


@dataclass(frozen=True)
class VitShape(Problem):
    """A batch through all of a vision transformer on one device: images in, probabilities out.

    Parameters
    ----------
    N
        Images.
    image, patch, channels, width, depth, heads, mlp_ratio, classes
        See `mini_dnn.nn.models.vit.VitSizes`.
    dtype
        The type of the images: ``"fp32"``, ``"fp16"``, or ``"uint8"``, which the device divides by 255.
    """

    N: int
    image: int
    patch: int
    channels: int
    width: int
    depth: int
    heads: int
    mlp_ratio: int
    classes: int
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        check_batch(self.N, self.dtype)
        self.sizes  # noqa: B018  (it refuses what does not fit together)

    @classmethod
    def of(cls, images: np.ndarray, sizes: vit.VitSizes) -> VitShape:
        """The problem for images ``(N, channels, side, side)``."""
        return cls(len(images), **vars(sizes), dtype=pixel_type(images))

    @property
    def sizes(self) -> vit.VitSizes:
        """The network's."""
        return vit.VitSizes(*self.numbers[1:-1])  # all but N and dtype

    @property
    def T(self) -> int:
        """Tokens of an image: patches, and the class token before them."""
        return self.sizes.tokens

    @property
    def pixels(self) -> int:
        """The number of pixels of a patch in all channels."""
        return self.channels * self.patch**2

    @property
    def inner(self) -> int:
        """Width between a block's two linear layers."""
        return self.mlp_ratio * self.width

    @property
    def blocks(self) -> range:
        """Numbers of the blocks, from 1 on, as weights are named."""
        return range(1, self.depth + 1)

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the trained arrays, named as `mini_dnn.nn.models.vit` names them."""
        D = self.width
        found: dict[str, tuple[int, ...]] = {
            **_linear("patches.linear", D, self.pixels),
            "positions.class": (D,),
            "positions.position": (self.T, D),
        }
        for block in self.blocks:
            found |= _norm(f"attention{block}.norm", D)
            found |= _linear(f"attention{block}.heads.qkv", 3 * D, D)
            found |= _linear(f"attention{block}.heads.out", D, D)
            found |= _norm(f"mlp{block}.norm", D)
            found |= _linear(f"mlp{block}.up", self.inner, D)
            found |= _linear(f"mlp{block}.down", D, self.inner)
        return found | _norm("norm", D) | _linear("head", self.classes, D)

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Images, trained arrays, probabilities."""
        shape = (self.N, self.channels, self.image, self.image)
        return {
            "images": Array(shape, PIXELS[self.dtype], axes="nchw"),
            **{name: Array(shape, role="weight", split=False) for name, shape in self.weights.items()},
            "probabilities": Array((self.N, self.classes), role="out", axes="nk"),
        }

    def attention(self, dtype: str) -> AttentionShape:
        """The attention of a block, whose input is the packed result of the block's first linear layer."""
        return AttentionShape(self.N, self.heads, self.T, self.width // self.heads, dtype, "packed")

    @property
    def flops(self) -> int:
        """FLOPs of all products of the network as it is defined, including those of attention."""
        D, T = self.width, self.T
        block = T * (4 * D * D + 2 * D * self.inner) + 2 * T * T * D
        return 2 * self.N * ((T - 1) * self.pixels * D + self.depth * block + D * self.classes)

    def __str__(self) -> str:
        """The text that commands print: input, sizes of the network, and output."""
        side = self.image
        return (
            f"({self.N},{self.channels},{side},{side}) {PIXELS[self.dtype]}, {self.T} tokens of "
            f"{self.width}, {self.depth} blocks of {self.heads} heads -> ({self.N},{self.classes})"
        )


def _linear(name: str, outputs: int, inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def arrays_of(images: np.ndarray, *weights: np.ndarray, heads: int) -> tuple[VitShape, Arrays]:
    """The problem for images ``(N, channels, side, side)`` and weights in the order of `VitShape.weights`.

    Parameters
    ----------
    images
        (N, channels, side, side) float32, float16 or uint8. Bytes are divided by 255.
    weights
        The trained arrays, float32, in the order of `mini_dnn.ops.vit.VitShape.weights`. The output is
        (N, classes) float32: probabilities.
    heads
        The number of heads of each block, which the weights do not determine.

    Raises
    ------
    ShapeError
        The arrays are not those of a transformer, or not of one for such images.
    """
    images = np.asarray(images)
    check_images(images)
    found = [np.shape(weight) for weight in weights]
    depth, rest = divmod(len(found) - 8, 12)
    if depth < 1 or rest or any(len(found[i]) != 2 or not found[i][0] for i in (0, 3, 12, -2)):
        raise ShapeError(
            f"found {len(found)} weights; expected 4 of patches and positions, 12 of each block and 4 of norm"
            " and head, in the order of mini_dnn.nn.models.vit"
        )
    width, pixels = found[0]
    channels = images.shape[1]
    sizes = {"image": images.shape[2], "patch": round((pixels / channels) ** 0.5), "channels": channels}
    sizes |= {"width": width, "depth": depth, "heads": heads, "mlp_ratio": found[12][0] // width}
    problem = VitShape(len(images), **sizes, classes=found[-2][0], dtype=pixel_type(images))
    if found != list(problem.weights.values()):
        raise ShapeError(f"weights have the shapes {found}; expected {problem.weights}")
    trained = {name: exactly(name, w, "float32") for name, w in zip(problem.weights, weights, strict=True)}
    return problem, {"images": np.ascontiguousarray(images), **trained}


def network(problem: VitShape, arrays: Arrays) -> Network:
    """The network with these weights, in float64."""
    found = vit.build(problem.sizes, np.random.default_rng(0), np.float64)
    for name, parameter in found.parameters().items():
        parameter.value[:] = arrays[name]
    return found


def answer(problem: VitShape, arrays: Arrays) -> Arrays:
    """The probabilities in float64."""
    scale = 255.0 if problem.dtype == "uint8" else 1.0
    return {"probabilities": network(problem, arrays).forward(arrays["images"] / np.float64(scale))}


def score_bound(problem: VitShape, arrays: Arrays, precision: str) -> float:
    """The error bound of a class's score, before the softmax.

    Each step of a block leaves an error of about its unit round-off in every element of a token, and these
    add up like a random walk over all steps. After the last norm a token's elements are of the size 1, so
    that a score is off by that error times the length of its row of weights.
    """
    operand, accumulate = ROUND_OFF[precision]
    step = operand + np.sqrt(problem.width) * accumulate
    rows = arrays["head.weight"].astype(np.float64) * arrays["norm.weight"]
    longest = np.sqrt((rows**2).sum(axis=1)).max()
    return float(CONFIDENCE * step * np.sqrt(1 + ROUNDINGS * problem.depth) * longest)


def bound(problem: VitShape, arrays: Arrays, precision: str) -> Arrays:
    """A probability is off by twice as much of itself as scores are: see `score_bound`.

    Below the normal range of fp32, it may also be zero.
    """
    off = answer(problem, arrays)["probabilities"] * np.expm1(2 * score_bound(problem, arrays, precision))
    return {"probabilities": off + np.finfo(np.float32).tiny}


def draw(problem: VitShape, rng: np.random.Generator) -> Arrays:
    """Noise, and initial weights of a training, except for those that would be zero, one, or very small."""
    images = rng.integers(0, 256, problem.arrays["images"].shape, np.uint8)
    weights = {
        name: parameter.value for name, parameter in vit.build(problem.sizes, rng).parameters().items()
    }
    for name, value in weights.items():
        if value.ndim == 1 or name == "positions.position":
            value[:] = SPREAD * rng.standard_normal(value.shape)
        if name.endswith("norm.weight"):
            value += 1
    weights["head.weight"] *= 3
    if problem.dtype != "uint8":
        return {"images": (images / np.float32(255)).astype(PIXELS[problem.dtype]), **weights}
    return {"images": images, **weights}


def mistakes(problem: VitShape, arrays: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Results of typical mistakes."""

    def without(*names: str) -> Arrays:
        zeros = {name: np.zeros_like(arrays[name]) for name in names}
        return answer(problem, {**arrays, **zeros})

    yield "the positions are left out", without("positions.position")
    yield "the class token is left out", without("positions.class")
    biases = [name for name in problem.weights if name.endswith(("qkv.bias", "out.bias"))]
    yield "the biases of attention are left out", without(*biases)
    yield (
        "the biases of the linear layers after attention are left out",
        without(*(name for name in problem.weights if name.endswith(("up.bias", "down.bias")))),
    )
    yield (
        "the last block is left out",
        without(
            *(f"attention{problem.depth}.heads.out.{kind}" for kind in ("weight", "bias")),
            *(f"mlp{problem.depth}.down.{kind}" for kind in ("weight", "bias")),
        ),
    )


OPERATION = Operation(
    name="vit",
    about="a vision transformer: images in, probabilities out",
    problem=VitShape,
    answer=answer,
    bound=bound,
    check=(  # tokens and widths that no tile divides
        VitShape(1, 8, 4, 1, 32, 1, 1, 2, 10),
        VitShape(3, 12, 4, 3, 64, 2, 2, 2, 7),
        VitShape(2, 15, 5, 1, 64, 1, 1, 3, 10, "uint8"),
        VitShape(2, 16, 4, 1, 96, 2, 3, 2, 11, "fp16"),
    ),
    course={
        "fashion-mnist": VitShape(10_000, **vars(vit.PRESETS["fashion-mnist"])),
        "tiny": VitShape(32, **vars(vit.TINY)),
        "base": VitShape(32, **vars(vit.BASE)),
    },
    of=arrays_of,
    traits={
        "several blocks": lambda p: p.depth > 1,
        "several heads": lambda p: p.heads > 1,
        "images of bytes": lambda p: p.dtype == "uint8",
    },
    draw=draw,
    mistakes=mistakes,
    axes={"n": "image", "k": "class"},
    cure="compare layer by layer with mini_dnn.nn.models.vit, which runs in float64",
    default="networks/vit/layer_by_layer",
    preferred=("networks/vit/fused",),
    baseline="networks/vit/layer_by_layer",
)
