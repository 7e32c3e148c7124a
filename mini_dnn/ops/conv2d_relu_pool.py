"""Convolution, ReLU and max-pool as one operation, for kernels that do not store intermediate results."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mini_dnn.nn.pooling import MaxPool2d
from mini_dnn.ops import conv2d
from mini_dnn.ops.compare import compare
from mini_dnn.ops.conv2d import ConvShape, conv2d_bound, conv2d_float64, conv_arrays
from mini_dnn.ops.operation import Operation
from mini_dnn.ops.problem import Arrays

POOLS = {"conv1": 2, "conv2": 4}  # the course's


@dataclass(frozen=True)
class ConvPoolShape(ConvShape):
    """A convolution whose output is pooled by maxima: ``y (N, M, ceil(P / pool), ceil(Q / pool))``.

    P and Q are those of the convolution. Windows that are truncated by the lower and right edges count.
    """

    pool: int  # rows and columns of a window, and the stride

    @property
    def y(self) -> tuple[int, int, int, int]:
        """Shape of the output."""
        return (self.N, self.M, -(-self.P // self.pool), -(-self.Q // self.pool))

    def __str__(self) -> str:
        """The text that commands print: ``(N,C,H,W) * (M,C,R,S), pool 2 -> (N,M,40,40)``."""
        return f"{self.x} * {self.w}, pool {self.pool} -> {self.y}"


def pooled(y: np.ndarray, pool: int) -> np.ndarray:
    """ReLU, then the maximum of each window. Windows at the lower and right edges may be truncated."""
    return MaxPool2d(pool, ceil_mode=True).forward(np.maximum(y, 0))


def arrays_of(x: np.ndarray, w: np.ndarray, *, pool: int) -> tuple[ConvPoolShape, Arrays]:
    """The problem for arrays ``(N,C,H,W)`` and ``(M,C,R,S)``, and a pool.

    Parameters
    ----------
    x
        Images, (N, C, H, W) float32.
    w
        Filters, (M, C, R, S) float32.
    pool
        Rows and columns of a window of the pool. The default variant supports 1, 2 and 4. With P = H - R + 1
        and Q = W - S + 1, the output is (N, M, ceil(P / pool), ceil(Q / pool)) float32.

    Raises
    ------
    ShapeError
        See `mini_dnn.ops.conv2d.conv_arrays`.
    """
    shape, arrays = conv_arrays(x, w)
    return ConvPoolShape(**shape.fields, pool=pool), arrays


def answer(shape: ConvPoolShape, arrays: Arrays) -> Arrays:
    """The pooled convolution in float64."""
    return {"y": pooled(conv2d_float64(arrays["x"], arrays["w"]), shape.pool)}


def bound(shape: ConvPoolShape, arrays: Arrays, precision: str) -> Arrays:
    """A maximum is not farther off than the farthest of its values."""
    return {"y": pooled(conv2d_bound(arrays["x"], arrays["w"], precision), shape.pool)}


def probe(
    shape: ConvPoolShape, precision: str, rng: np.random.Generator
) -> tuple[ConvPoolShape, Arrays] | None:
    """The inputs of the convolution's probe, made positive, because ReLU hides errors of negative sums."""
    found = conv2d.probe(ConvShape(*shape.numbers[:-1]), precision, rng)
    if found is None:
        return None
    shape = _with_pool(found[0], shape.pool)
    arrays = {name: np.abs(array) for name, array in found[1].items()}
    lower = pooled(conv2d.less_exact(arrays["x"], arrays["w"], precision).astype(np.float32), shape.pool)
    betrayed = not compare(lower, answer(shape, arrays)["y"], bound(shape, arrays, precision)["y"]).ok
    return (shape, arrays) if betrayed else None


def _with_pool(shape: ConvShape, pool: int) -> ConvPoolShape:
    return ConvPoolShape(**shape.fields, pool=pool)


OPERATION = Operation(
    name="conv2d_relu_pool",
    about="convolution, ReLU and max-pool in one, fp32 in NCHW",
    notes=(
        "x and w are rounded to FP16: 11 significant bits from 6.1e-05 to 65,504; smaller values lose "
        "digits, and nothing is promised of an image with larger ones."
    ),
    problem=ConvPoolShape,
    answer=answer,
    bound=bound,
    check=(
        ConvPoolShape(3, 1, 17, 23, 5, 3, 4, pool=4),
        ConvPoolShape(3, 4, 16, 17, 17, 4, 3, pool=2),
        ConvPoolShape(2, 2, 31, 30, 9, 3, 5, pool=4),
        ConvPoolShape(2, 3, 12, 20, 6, 3, 3, pool=1),
        ConvPoolShape(2, 1, 3, 3, 2, 3, 3, pool=2),
        ConvPoolShape(1, 9, 8, 9, 3, 3, 2, pool=2),
    ),
    trials=tuple(
        replace(trial, problem=_with_pool(trial.problem, 2 if min(trial.problem.y[2:]) > 1 else 1))
        for trial in conv2d.OPERATION.trials
    ),
    large=(ConvPoolShape(66_000, 1, 183, 185, 5, 3, 3, pool=2),),
    spare=tuple(_with_pool(layer.with_batch(2), POOLS[name]) for name, layer in conv2d.LAYERS.items()),
    traits=conv2d.TRAITS,
    course={name: _with_pool(layer, POOLS[name]) for name, layer in conv2d.LAYERS.items()},
    pytorch=lambda p: f"F.max_pool2d(F.conv2d(x, w).relu(), {p.pool})",
    of=arrays_of,
    draw=conv2d.draw,
    probe=probe,
    timed=conv2d.timed,
    axes=conv2d.OPERATION.axes,
    cure="compare with the maximum of max(0, sum x[n,c,p+r,q+s] w[m,c,r,s]) over each window",
    default="layers/fused",
    baseline="layers/fused",
)
