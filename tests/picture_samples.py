"""Pictures, recipes and files that tests of pictures use."""

import io

import numpy as np
from PIL import Image

from mini_dnn.pictures.recipe import Recipe

SMALL = Recipe(16, 12, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
GREY = Recipe(16, 12, (0.5,), (0.25,))


def noise(H: int, W: int, C: int = 3, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).integers(0, 256, (H, W, C), np.uint8)
    return x if C > 1 else x[..., 0]


def saved(picture: Image.Image | np.ndarray, format: str = "PNG", **more: object) -> bytes:
    if isinstance(picture, np.ndarray):
        picture = Image.fromarray(picture)
    file = io.BytesIO()
    picture.save(file, format, **more)
    return file.getvalue()


PNG = saved(noise(64, 64))
