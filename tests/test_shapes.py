"""Geometry, FLOPs, bytes, and the arrays that the convolution accepts."""

import re

import numpy as np
import pytest

from mini_dnn.errors import ShapeError
from mini_dnn.ops.conv2d import ConvShape, conv_arrays
from mini_dnn.ops.conv2d_padded import PaddedShape
from mini_dnn.ops.problem import as_float32

CONV1 = ConvShape(10000, 1, 86, 86, 4, 7, 7)
CONV2 = ConvShape(10000, 4, 40, 40, 16, 7, 7)


def test_geometry_of_the_course_layers() -> None:
    assert CONV1.y == (10000, 4, 80, 80)
    assert CONV2.y == (10000, 16, 34, 34)
    assert (CONV2.K, CONV2.cols) == (196, 11_560_000)
    assert str(CONV1) == "(10000, 1, 86, 86) * (4, 1, 7, 7) -> (10000, 4, 80, 80)"


def test_flops_and_bytes_of_the_course_layers() -> None:
    # by hand: 2 * 4 * 49 * 10000 * 80 * 80; 4 B * (10000 * 86 * 86 + 4 * 49 + 10000 * 4 * 80 * 80)
    assert CONV1.flops == 25_088_000_000
    assert CONV1.min_bytes == 1_319_840_784
    assert CONV2.flops == 72_504_320_000
    assert CONV2.min_bytes == 995_852_544


def test_filter_larger_than_the_image() -> None:
    with pytest.raises(ShapeError, match=r"filter 3 x 9 is larger than the image 8 x 8.*R <= H and S <= W"):
        ConvShape(1, 1, 8, 8, 1, 3, 9)


def test_size_of_zero() -> None:
    with pytest.raises(ShapeError, match="N = 0"):
        ConvShape(0, 1, 8, 8, 1, 3, 3)


def test_an_image_of_too_many_pixels() -> None:
    with pytest.raises(ShapeError, match=r"2,152,960,000 pixels, and kernels count up to 2,147,418,112"):
        ConvShape(1, 1, 46_400, 46_400, 1, 3, 3)
    with pytest.raises(ShapeError, match="cut it into parts"):
        PaddedShape(1, 1, 46_340, 46_340, 1, 7, padding=6)


def test_filters_of_too_many_weights() -> None:
    ConvShape(1, 2**11, 32, 32, 2**10, 32, 32)
    with pytest.raises(ShapeError, match=r"have 2,149,580,800 weights, .* some of the filters at a time"):
        ConvShape(1, 2**11, 32, 32, 1025, 32, 32)
    with pytest.raises(ShapeError, match=r"have 2,149,580,800 weights"):
        PaddedShape(1, 2**11, 32, 32, 1025, 32)


@pytest.mark.parametrize("dtype", [np.float16, np.uint8, np.int16, ">f4"])
def test_exact_dtypes_are_converted(dtype: str) -> None:
    values = np.arange(24).reshape(2, 3, 2, 2).astype(dtype)
    out = as_float32("x", values, "N,C,H,W")
    assert out.dtype == np.float32
    assert np.array_equal(out, np.arange(24).reshape(2, 3, 2, 2))


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64, np.complex64])
def test_lossy_dtypes_are_refused(dtype: type) -> None:
    with pytest.raises(ShapeError, match=r"which float32 cannot hold exactly; convert x to float32"):
        as_float32("x", np.ones((1, 1, 2, 2), dtype), "N,C,H,W")


def test_non_contiguous_input_is_converted() -> None:
    x = np.arange(2 * 3 * 8 * 8, dtype=np.float32).reshape(2, 3, 8, 8)[:, :, ::2, ::-1]
    shape, arrays = conv_arrays(x, np.ones((1, 3, 2, 2), np.float32))
    out = arrays["x"]
    assert out.flags.c_contiguous
    assert np.array_equal(out, x)
    assert shape.y == (2, 1, 3, 7)


@pytest.mark.parametrize(
    ("x", "w", "message"),
    [
        ((8, 8), (1, 1, 3, 3), "x has 2 axes, shape (8, 8); expected 4: (N,C,H,W)"),
        ((1, 1, 8, 8), (3, 3), "w has 2 axes, shape (3, 3); expected 4: (M,C,R,S)"),
        ((0, 1, 8, 8), (1, 1, 3, 3), "x is empty, shape (0, 1, 8, 8)"),
        ((1, 2, 8, 8), (1, 3, 3, 3), "has 2 channels and w (1, 3, 3, 3) expects 3"),
        ((1, 1, 2, 8), (1, 1, 3, 3), "larger than the image 2 x 8"),
    ],
)
def test_arrays_that_do_not_fit(x: tuple[int, ...], w: tuple[int, ...], message: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(message)):
        conv_arrays(np.zeros(x, np.float32), np.zeros(w, np.float32))
