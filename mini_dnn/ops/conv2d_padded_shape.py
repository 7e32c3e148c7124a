"""Problems of the operation ``conv2d_padded``, and the problem for given arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.ops.problem import TYPES, Array, Arrays, Problem, check_pixels, check_weights

DTYPES, LAYOUTS = ("fp32", "fp16"), ("nchw", "nhwc")
AXES = {"nchw": "nkpq", "nhwc": "npqk"}  # of the output


@dataclass(frozen=True)
class PaddedShape(Problem):
    """A convolution with stride and zero padding, and the operations that follow it in a network.

    Parameters
    ----------
    N, C, H, W
        Images, and the channels, rows and columns of each.
    K
        Output channels.
    R
        Rows and columns of a filter.
    stride
        The distance between windows, in rows and in columns.
    padding
        Zeros on each side of an image; less than R.
    relu
        Whether negative sums become 0 at the end.
    residual
        Whether an array like the output is added before ReLU.
    dtype
        Of x, w, the residual and y: ``"fp32"`` or ``"fp16"``. The bias is fp32.
    layout
        ``"nchw"``: x is (N,C,H,W), w (K,C,R,R), y (N,K,P,Q). ``"nhwc"``: x is (N,H,W,C), w (K,R,R,C), y
        (N,P,Q,K).
    """

    N: int
    C: int
    H: int
    W: int
    K: int
    R: int
    stride: int = 1
    padding: int = 0
    relu: bool = False
    residual: bool = False
    dtype: str = "fp32"
    layout: str = "nchw"

    def __post_init__(self) -> None:
        self._check_fields("a convolution", (*"NCHWKR", "stride"), dtype=DTYPES, layout=LAYOUTS)
        if not 0 <= self.padding < self.R:
            raise ShapeError(
                f"padding is {self.padding} with a filter of {self.R} x {self.R}; expected 0 to "
                f"{self.R - 1}: with more, some windows have no pixel at all"
            )
        if min(self.H, self.W) + 2 * self.padding < self.R:
            raise ShapeError(
                f"the filter {self.R} x {self.R} is larger than the image {self.H} x {self.W} with padding "
                f"{self.padding}; use a smaller filter or more padding"
            )
        check_pixels(max(self.H, self.P), max(self.W, self.Q))
        check_weights(self.K, self.taps)

    @property
    def P(self) -> int:
        """Output height."""
        return (self.H + 2 * self.padding - self.R) // self.stride + 1

    @property
    def Q(self) -> int:
        """Output width."""
        return (self.W + 2 * self.padding - self.R) // self.stride + 1

    @property
    def taps(self) -> int:
        """Products of a sum: C R R."""
        return self.C * self.R**2

    def lying(self, channels: int, rows: int, columns: int) -> tuple[int, int, int]:
        """The sides of an image of this layout."""
        return (channels, rows, columns) if self.layout == "nchw" else (rows, columns, channels)

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Input, residual if there is one, filters, bias, output."""
        kind, axes = TYPES[self.dtype], AXES[self.layout]
        y = (self.N, *self.lying(self.K, self.P, self.Q))
        found = {"x": Array((self.N, *self.lying(self.C, self.H, self.W)), kind, axes=self.layout)}
        if self.residual:
            found["residual"] = Array(y, kind, axes=axes)
        w = (self.K, *self.lying(self.C, self.R, self.R))
        found["w"] = Array(w, kind, "weight", "kcrs" if self.layout == "nchw" else "krsc", split=False)
        found["bias"] = Array((self.K,), role="weight", axes="k", split=False)
        found["y"] = Array(y, kind, "out", axes)
        return found

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each product, including those with padding."""
        return 2 * self.N * self.K * self.P * self.Q * self.taps

    def __str__(self) -> str:
        """The printed text: ``64 x (64,56,56) * 128 of 3 x 3 / 2, padding 1, relu, fp16 nhwc``."""
        words = [f"{self.N} x ({self.C},{self.H},{self.W}) * {self.K} of {self.R} x {self.R} / {self.stride}"]
        words += [f"padding {self.padding}"] if self.padding else []
        words += [name for name in ("residual", "relu") if self.fields[name]]
        return ", ".join([*words, f"{self.dtype} {self.layout}"])


def layers(batch: int) -> dict[str, PaddedShape]:
    """The distinct convolutions of ResNet-18 at 224 x 224, each with torchvision's name of the first one.

    Batch norm is folded into filters and bias. ReLU and residual are those of the layer.
    """
    found = {"conv1": PaddedShape(batch, 3, 224, 224, 64, 7, 2, 3, True)}
    channels, side = 64, 56
    for stage, width in enumerate((64, 128, 256, 512), 1):
        whole = PaddedShape(batch, width, side // (2 if stage > 1 else 1), side, width, 3, 1, 1, True)
        if stage > 1:
            entry = PaddedShape(batch, channels, side, side, width, 3, 2, 1, True)
            found[f"layer{stage}.0.conv1"] = entry
            found[f"layer{stage}.0.downsample"] = replace(entry, R=1, padding=0, relu=False)
            side //= 2
        whole = replace(whole, H=side, W=side)
        found[f"layer{stage}.{1 if stage > 1 else 0}.conv1"] = whole
        found[f"layer{stage}.0.conv2"] = replace(whole, residual=True)
        channels = width
    return {name: replace(shape, dtype="fp16", layout="nhwc") for name, shape in found.items()}


def arrays_of(
    x: np.ndarray,
    *others: np.ndarray,
    stride: int = 1,
    padding: int = 0,
    relu: bool = False,
    residual: bool = False,
    layout: str = "nchw",
) -> tuple[PaddedShape, Arrays]:
    """The problem for x, the residual if there is one, w and bias: the arrays of a `PaddedShape`.

    Parameters
    ----------
    x
        Images, (N, C, H, W) float32 or float16; (N, H, W, C) with ``layout="nhwc"``.
    others
        With ``residual=True``, an array like the output, which is added to it. Then filters, (K, C, R, R), or
        (K, R, R, C) with ``layout="nhwc"``, and the bias, (K,) float32.
    stride, padding
        Rows and columns between windows, and zeros on each side of an image, fewer than R.
    relu
        Whether negative results become 0.
    residual
        Whether an array is added, before ReLU.
    layout
        ``"nchw"`` or ``"nhwc"``. The output is (N, K, P, Q) or (N, P, Q, K), in the type of x.

    Raises
    ------
    ShapeError
        The number, the shapes or the types of the arrays are wrong.
    """
    found = [np.asarray(array) for array in (x, *others)]
    shapes = ", ".join(f"{array.shape} {array.dtype}" for array in found)
    names = {name: short for short, name in TYPES.items() if short in DTYPES}
    if len(found) != 3 + bool(residual):
        expected = "x, the residual, w and bias" if residual else "x, w and bias"
        raise ShapeError(
            f"found {len(found)} arrays, {shapes}; expected {expected}. Without a bias, pass zeros, (K,) "
            "float32"
        )
    if layout not in LAYOUTS or found[0].ndim != 4 or found[-2].ndim != 4 or found[0].dtype.name not in names:
        raise ShapeError(
            f"found {shapes}, layout {layout!r}; expected x and w of four axes, float32 or float16, with "
            "layout 'nchw' or 'nhwc': x, the residual with residual=True, w, bias"
        )
    order = (1, 2, 3) if layout == "nchw" else (3, 1, 2)
    C, H, W = (found[0].shape[axis] for axis in order)
    sizes = (len(found[0]), C, H, W, len(found[-2]), found[-2].shape[2], stride, padding)
    problem = PaddedShape(*sizes, bool(relu), bool(residual), names[found[0].dtype.name], layout)
    given = {}
    for (name, array), value in zip(problem.named("in", "weight").items(), found, strict=True):
        if value.shape != array.shape or value.dtype != array.dtype:
            raise ShapeError(f"{name} is {value.shape} {value.dtype}; expected {array.shape} {array.dtype}")
        given[name] = np.ascontiguousarray(value)
    return problem, given
