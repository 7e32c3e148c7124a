"""Convolution, valid and with stride 1: ``y[n,m,p,q] = sum over c,r,s of x[n,c,p+r,q+s] w[m,c,r,s]``.

The default variant rounds operands to halves: 11 significant bits from 6.1e-05 to 65,504. Smaller operands
lose digits (1e-7 has an error of 19 %), and larger ones give infinity or NaN. ``impl="m3/fp32_split"`` has
the digits and the range of fp32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.ops.compare import compare
from mini_dnn.ops.conv2d_numpy import conv2d_bound, conv2d_float64, less_exact, mistakes_of
from mini_dnn.ops.operation import Operation, Trial
from mini_dnn.ops.problem import Array, Arrays, Problem, as_float32, check_pixels, check_weights

PART_IMAGES = 250  # of an audit: limits its memory
FEW = 4  # products in a sum, so that the rounding of operands is visible
PROBE_IMAGES = 4
ROUNDED_OPERANDS = ("tf32", "fp16")  # precisions with exact sums
COURSE_BATCH = 10_000  # the largest batch size of the course


@dataclass(frozen=True)
class ConvShape(Problem):
    """A valid convolution with stride 1: ``x (N,C,H,W) * w (M,C,R,S) -> y (N,M,P,Q)``.

    As a matrix product, it is ``w (M,K) @ col (K,cols)``, where ``col`` is the unrolled input.
    """

    N: int
    C: int
    H: int
    W: int
    M: int
    R: int
    S: int

    def __post_init__(self) -> None:
        self._check_fields("a convolution", self.fields)
        if self.R > self.H or self.S > self.W:
            raise ShapeError(
                f"the filter {self.R} x {self.S} is larger than the image {self.H} x {self.W}; "
                "a valid convolution needs R <= H and S <= W: pad the image or use a smaller filter"
            )
        check_pixels(self.H, self.W)
        check_weights(self.M, self.K)

    @classmethod
    def of(cls, x: np.ndarray, w: np.ndarray) -> ConvShape:
        """The shape of convolving these arrays, ``(N,C,H,W)`` and ``(M,C,R,S)``."""
        N, C, H, W = x.shape
        M, _, R, S = w.shape
        return ConvShape(N, C, H, W, M, R, S)

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
    def arrays(self) -> Mapping[str, Array]:
        """Input, filters, output."""
        return {
            "x": Array(self.x, axes="nchw"),
            "w": Array(self.w, axes="mcrs", split=False),
            "y": Array(self.y, axes="nmpq", role="out"),
        }

    @property
    def flops(self) -> int:
        """Floating-point operations: a multiplication and an addition for each of the M K cols products."""
        return 2 * self.M * self.K * self.cols

    def __str__(self) -> str:
        """The text that commands print: ``(N,C,H,W) * (M,C,R,S) -> (N,M,P,Q)``."""
        return f"{self.x} * {self.w} -> {self.y}"


LAYERS = {
    "conv1": ConvShape(COURSE_BATCH, 1, 86, 86, 4, 7, 7),
    "conv2": ConvShape(COURSE_BATCH, 4, 40, 40, 16, 7, 7),
}
LONG_SUM = ConvShape(2, 16, 12, 12, 4, 7, 7)  # K = 784
OVERFLOWS_HALF = 10.0  # values of about this size: their products fit in a half, but LONG_SUM's sums do not


def conv_arrays(x: np.ndarray, w: np.ndarray) -> tuple[ConvShape, Arrays]:
    """The shape of convolving an input with filters, and both as contiguous float32.

    Parameters
    ----------
    x
        Images, (N, C, H, W) float32, or any type that float32 holds exactly.
    w
        Filters, (M, C, R, S) float32. The output is (N, M, H - R + 1, W - S + 1) float32.

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
    return ConvShape.of(x, w), {"x": x, "w": w}


def mistakes(shape: ConvShape, arrays: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Descriptions of plausible mistakes, each with its outputs."""
    x, w = arrays["x"].astype(np.float64), arrays["w"].astype(np.float64)
    return ((sentence, {"y": y}) for sentence, y in mistakes_of(x, w))


def draw(shape: ConvShape, rng: np.random.Generator) -> Arrays:
    """Normally distributed images and filters."""
    return {"x": rng.standard_normal(shape.x, np.float32), "w": rng.standard_normal(shape.w, np.float32)}


def large_sums(shape: ConvShape, precision: str, rng: np.random.Generator) -> Arrays:
    """Non-negative values with sums beyond the largest half, if the precision supports such sums."""
    arrays = draw(shape, rng)
    if precision == "fp16_sum":
        return arrays
    return {
        name: np.float32(OVERFLOWS_HALF) + np.minimum(np.abs(a), np.float32(4)) for name, a in arrays.items()
    }


def timed(shape: ConvShape, precision: str, rng: np.random.Generator) -> Arrays:
    """Uniform images, which take a quarter of the time of normal ones to generate, and normal filters.

    All values are positive if operands are rounded and sums are exact: growing sums reveal those that are
    kept in half.
    """
    x, w = rng.random(shape.x, np.float32), rng.standard_normal(shape.w, np.float32)
    if precision in ROUNDED_OPERANDS:
        return {"x": x, "w": np.abs(w)}
    x -= np.float32(0.5)
    return {"x": x, "w": w}


def probe(shape: ConvShape, precision: str, rng: np.random.Generator) -> tuple[ConvShape, Arrays] | None:
    """Inputs that distinguish an answer in the next lower precision from one in ``precision``.

    With ordinary random inputs, an answer in FP16 may be within the bound of FP32 if the reduction is long,
    because that bound grows with the sum of all |x w|, but an error with only a few of them. These inputs
    are generated to show the difference, and each is tried first: NumPy rounds as the lower precision does,
    and only inputs that reveal it are used. The result is None if there are none: no arithmetic here is less
    exact than ``"fp16_sum"``.
    """
    if precision == "fp32":
        shape = shape.with_batch(min(shape.N, PROBE_IMAGES))
        x, w = draw(shape, rng).values()
        few = rng.random(x.shape) < FEW / shape.K  # rounding of operands is visible in short sums
        x = np.where(few, x, np.float32(0))
    elif precision in ROUNDED_OPERANDS:
        shape = LONG_SUM
        x, w = (np.abs(a) + np.float32(0.5) for a in draw(shape, rng).values())  # growing sums
    else:
        return None
    lower = less_exact(x, w, precision).astype(np.float32)
    found = compare(lower, conv2d_float64(x, w), conv2d_bound(x, w, precision))
    return None if found.ok else (shape, {"x": x, "w": w})


def audit(shape: ConvShape, arrays: Arrays, outputs: Arrays, precision: str, rng: np.random.Generator) -> str:
    """Compare a random combination of all images with the convolution of the same combination of inputs [1]_.

    References
    ----------
    .. [1] R. Freivalds, "Probabilistic machines can use less running time", IFIP Congress, 1977: a product is
       checked by a random vector.
    """
    x, w, y = arrays["x"], arrays["w"], outputs["y"]
    signs = rng.choice(np.array([-1, 1], np.float32), len(x))
    found, combined = np.zeros(y.shape[1:]), np.zeros((1, *x.shape[1:]))
    for first in range(0, len(x), PART_IMAGES):
        part = slice(first, first + PART_IMAGES)
        with np.errstate(invalid="ignore", over="ignore"):
            found += np.tensordot(signs[part], y[part], 1)
        combined[0] += np.tensordot(signs[part].astype(np.float64), x[part], 1)
    some = rng.choice(len(x), min(len(x), 8), replace=False)
    # The errors of N images with random signs add up like a random walk; then those of our own sum
    bound = 2 * np.sqrt(len(x)) * conv2d_bound(x[some], w, precision).max(axis=0)
    parts = -(-len(x) // PART_IMAGES)
    bound += 2.0**-24 * PART_IMAGES * np.sqrt(parts) * np.abs(y[some]).max(axis=0)
    expected = conv2d_float64(combined, w)[0]
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(found - expected) <= bound)
    wrong |= np.isfinite(found) != np.isfinite(expected)
    return f"{wrong.sum()} sums over its images differ from float64" if wrong.any() else ""


TRAITS = {  # properties that a kernel may not support
    "R != S (the filter is not square)": lambda s: s.R != s.S,
    "H != W (the image is not square)": lambda s: s.H != s.W,
}

OPERATION = Operation(
    name="conv2d",
    about="convolution, valid and with stride 1, fp32 in NCHW",
    notes=(
        "The default, m3, rounds x and w to FP16: 11 significant bits from 6.1e-05 to 65,504; smaller values "
        'lose digits, larger ones give infinity or NaN. impl="m3/fp32_split" has the digits and the range of '
        "fp32."
    ),
    problem=ConvShape,
    answer=lambda shape, arrays: {"y": conv2d_float64(arrays["x"], arrays["w"])},
    bound=lambda shape, arrays, precision: {"y": conv2d_bound(arrays["x"], arrays["w"], precision)},
    # Sizes that no tile divides, unequal sides, ones: aligned and square shapes hide mistakes.
    check=(
        ConvShape(1, 1, 1, 1, 1, 1, 1),
        ConvShape(2, 3, 5, 4, 2, 5, 4),
        ConvShape(2, 2, 9, 21, 3, 2, 5),
        ConvShape(1, 2, 21, 10, 9, 7, 2),
        ConvShape(3, 3, 19, 37, 17, 3, 5),
        ConvShape(1, 35, 6, 7, 20, 1, 1),
    ),
    trials=(
        # Seven images: more than four at a time, and a rest. Q and P Q are numbers whose reciprocal in fp32,
        # multiplied by one of their multiples, is less than an integer. Rows are longer than most tiles.
        Trial(ConvShape(7, 2, 5, 85, 3, 3, 3)),
        Trial(LONG_SUM, large_sums),
        # A grid has at most 65,535 blocks in y and z
        Trial(ConvShape(65_537, 1, 2, 2, 1, 1, 1), sampled=True),
    ),
    large=(ConvShape(66_000, 1, 183, 185, 2, 3, 3),),
    # The course's requirements: square filters, small images first.
    spare=(
        ConvShape(2, 3, 20, 23, 5, 3, 3),
        ConvShape(3, 2, 21, 21, 4, 5, 5),
        ConvShape(2, 4, 24, 19, 17, 7, 7),
        *(layer.with_batch(n) for n, layer in enumerate(LAYERS.values(), 2)),
    ),
    traits=TRAITS,
    course=LAYERS,
    pytorch=lambda shape: "F.conv2d(x, w)",
    of=conv_arrays,
    draw=draw,
    mistakes=mistakes,
    probe=probe,
    audit=audit,
    timed=timed,
    axes={"n": "image", "m": "output channel", "p": "output row", "q": "output column"},
    cure="compare the indices of each load and of the store with y[n,m,p,q] = sum x[n,c,p+r,q+s] w[m,c,r,s]",
    default="m3",
    baseline="m2/unroll_gemm",
    sums=True,
)
