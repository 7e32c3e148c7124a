"""Batches of square images in several types, which are the input of whole networks."""

from __future__ import annotations

import numpy as np

from mini_dnn.errors import ShapeError

PIXELS = {"fp32": "float32", "fp16": "float16", "uint8": "uint8"}  # types: short names, and NumPy's


def check_batch(N: int, dtype: str) -> None:
    """Check the number of images of a batch, and the short name of their type.

    Raises
    ------
    ShapeError
        There is no image, or no such type.
    """
    if N < 1:
        raise ShapeError(f"a batch has one image or more; found N = {N}")
    if dtype not in PIXELS:
        raise ShapeError(f"dtype is {dtype!r}; expected one of {', '.join(PIXELS)}")


def check_images(images: np.ndarray) -> None:
    """Check that images are ``(N, channels, side, side)``, in a type of `PIXELS`.

    Raises
    ------
    ShapeError
        They have another shape or type.
    """
    is_square = images.ndim == 4 and images.shape[1] > 0 and images.shape[2] == images.shape[3]
    if not is_square or images.dtype.name not in PIXELS.values():
        raise ShapeError(
            f"images are {images.shape} {images.dtype}; expected (N, channels, side, side), one of "
            f"{', '.join(PIXELS.values())}"
        )


def pixel_type(images: np.ndarray) -> str:
    """The short name of the type of images; ``"fp32"`` for types that have none and are converted."""
    return next((short for short, name in PIXELS.items() if name == images.dtype.name), "fp32")
