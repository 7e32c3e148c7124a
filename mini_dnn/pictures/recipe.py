"""The preprocessing of pictures, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_dnn.errors import ShapeError

MOST_SIDE = 4096  # pixels of what a network takes
LARGEST = float(np.finfo(np.float32).max)  # of a mean and a deviation


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


@dataclass(frozen=True)
class Recipe:
    """The preprocessing of a picture, in this order.

    1. It is rotated according to its EXIF data.
    2. Transparent parts get the tone ``background``, and the picture is converted to grey or RGB.
    3. It is resized (bilinear, antialiased) so that its shorter side has ``resize`` pixels.
    4. A square of ``crop`` pixels is cut from its centre.
    5. With ``invert``, light and dark are exchanged.
    6. Bytes are divided by 255, ``mean`` is subtracted, and the result is divided by ``deviation``.

    Steps 3, 4 and 6 are those of torchvision's ImageNet networks, pixel by pixel.

    Parameters
    ----------
    resize, crop
        In pixels; ``resize`` is at least ``crop``.
    mean, deviation
        One number each for grey, three for RGB.
    invert
        Whether pictures are dark on light, while the network was trained with light on dark.
    background
        0 is black, 255 is white.

    Raises
    ------
    ShapeError
        They do not fit together.
    """

    resize: int = 256
    crop: int = 224
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    deviation: tuple[float, ...] = (0.229, 0.224, 0.225)
    invert: bool = False
    background: int = 255

    def __post_init__(self) -> None:
        if not _is_whole(self.crop, 1, MOST_SIDE) or not _is_whole(self.resize, 1, 2 * MOST_SIDE):
            raise ShapeError(
                f"resize and crop must be integers, crop 1 to {MOST_SIDE}; found {self.resize!r} and "
                f"{self.crop!r}"
            )
        if self.resize < self.crop:
            raise ShapeError(f"a picture resized to {self.resize} pixels has no square of {self.crop}")
        for name in ("mean", "deviation"):
            numbers = getattr(self, name)
            if not isinstance(numbers, tuple) or len(numbers) not in (1, 3) or len(numbers) != len(self.mean):
                raise ShapeError(
                    "mean and deviation need lists: one number each for grey, or three for RGB; found "
                    f"{name} {numbers!r}"
                )
            if not all(isinstance(n, int | float) and abs(n) <= LARGEST for n in numbers):
                raise ShapeError(f"{name} must contain only numbers that fit fp32; found {numbers!r}")
        if np.float32(min(self.deviation)) <= 0:
            raise ShapeError(f"deviation must be larger than 0; found {self.deviation!r}")
        if not isinstance(self.invert, bool) or not _is_whole(self.background, 0, 255):
            raise ShapeError(
                "invert must be true or false, and background an integer from 0 to 255; "
                f"found {self.invert!r} and {self.background!r}"
            )

    @property
    def channels(self) -> int:
        """1 for grey, 3 for RGB."""
        return len(self.mean)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of a picture after step 5: rows, columns, channels."""
        return self.crop, self.crop, self.channels

    def __str__(self) -> str:
        """A description of the recipe."""
        kind = "RGB" if self.channels == 3 else "grey"
        tones = "inverted" if self.invert else "not inverted"
        return f"{kind}, shorter side {self.resize}, the middle {self.crop}×{self.crop}, {tones}"

    def normalised(self, pixels: np.ndarray) -> np.ndarray:
        """Step 6.

        Parameters
        ----------
        pixels
            (N, rows, columns, channels) uint8.

        Returns
        -------
        numpy.ndarray
            (N, channels, rows, columns) float32, C-contiguous: rounded as torchvision rounds.
        """
        x = np.divide(pixels.transpose(0, 3, 1, 2), np.float32(255), dtype=np.float32, order="C")
        x -= np.array(self.mean, np.float32)[:, None, None]
        x /= np.array(self.deviation, np.float32)[:, None, None]
        return x

    def to_dict(self) -> dict[str, Any]:
        """The fields, as JSON has them."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(self).items()
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Recipe:
        """The recipe from the fields of `to_dict`. Omitted fields have their values for ImageNet.

        Raises
        ------
        ShapeError
            There are unknown fields, or they do not fit together.
        """
        fields = [field.name for field in dataclasses.fields(cls)]
        if surplus := sorted(set(found) - set(fields)):
            raise ShapeError(
                f"a recipe has no field {', '.join(surplus)}; its fields are {', '.join(fields)}"
            )
        values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in found.items()}
        return cls(**values)


IMAGENET = Recipe()
FASHION = Recipe(28, 28, (0.0,), (1.0,), background=0)  # light on black, as Fashion-MNIST is published
