"""Ten kinds of garments, drawn: a data set that needs no files and no network.

An image depends on its seed, split and index alone, so the first 50 of a draw of 10,000 are a draw of 50.
Every random number is a uniform or integer draw of PCG64.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mini_dnn.datasets import storage
from mini_dnn.datasets.garments import GARMENTS, Garment
from mini_dnn.datasets.pen import OVERSAMPLING, Pen
from mini_dnn.datasets.storage import BAR_STEP, DATA, SIDE, SPLITS, Pixels
from mini_dnn.errors import UsageError
from mini_dnn.progress import Bar

NAME = "synthetic"
SEED = 0
COUNT = 10_000  # images in a split
VERSION = 1  # of the drawings: a new number invalidates every cache


def draw(n: int, seed: int = SEED, split: str = "test") -> Pixels:
    """Draw garments.

    Parameters
    ----------
    n : int
        The number of garments.
    seed : int
        At least 0.
    split : {"train", "test"}
        Each split uses different seeds.

    Returns
    -------
    images : (n, 1, 86, 86) uint8
    labels : (n,) uint8
        Uniform over the ten classes.

    Raises
    ------
    UsageError
        Negative `n` or `seed`, or an unknown `split`.
    """
    if n < 0 or seed < 0 or split not in SPLITS:
        raise UsageError(
            f"cannot draw n={n} garments with seed={seed} for split='{split}'; n and seed must be at "
            f"least 0, and the split one of {', '.join(SPLITS)}"
        )
    images, labels = np.empty((n, 1, SIDE, SIDE), np.uint8), np.empty(n, np.uint8)
    with Bar("drawing garments", n) as bar:
        for i in range(n):
            rng = np.random.Generator(np.random.PCG64((seed, SPLITS.index(split), i)))
            labels[i] = rng.integers(len(GARMENTS))
            images[i, 0] = _photograph(GARMENTS[labels[i]], rng)
            if i % BAR_STEP == 0:
                bar.update(i)
    return images, labels


def load(split: str, root: Path = DATA) -> tuple[np.ndarray, np.ndarray, str]:
    """Load the drawn set of one split from its cache, or draw it.

    Parameters
    ----------
    split : {"train", "test"}
    root : Path
        The cache lies in its folder ``cache/``.

    Returns
    -------
    images : (10000, 1, 86, 86) uint8
    labels : (10000,) uint8
    origin : str
        A description with the seed.
    """
    path = root / "cache" / f"{NAME}-{SIDE}-{split}.h5"
    recipe = {"version": str(VERSION), "seed": str(SEED), "count": str(COUNT)}
    if (pixels := storage.read(path, recipe)) is None:
        pixels = draw(COUNT, SEED, split)
        storage.write(path, recipe, pixels)
    return *pixels, f"drawn from seed {SEED}"


def _photograph(garment: Garment, rng: np.random.Generator) -> np.ndarray:
    """Draw a garment in a cloth of its own, under uneven light and with noise; (86, 86) uint8."""
    pen = Pen(rng)
    garment(pen)
    image = np.asarray(pen.canvas.reduce(OVERSAMPLING), np.float32)
    x = np.arange(SIDE, dtype=np.float32) - SIDE / 2
    y = x[:, None]
    image = image * pen.between(0.35, 1.3) * _cloth(pen, x, y) * _light(pen, x, y)
    image = image + pen.between(5, 70) * (rng.random(image.shape, np.float32) - 0.5)
    return np.clip(image, 0, 255).astype(np.uint8)


def _cloth(pen: Pen, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pattern of the cloth around 1: plain (every second one), stripes, checks or dots."""
    depth, turn, pitch = pen.between(0.1, 0.35), pen.between(-0.3, 0.3), pen.between(0.6, 1.6)
    u, v = np.sin(pitch * (x + turn * y)), np.sin(pitch * (y - turn * x))
    waves = (0 * u, 0 * u, 0 * u, 0 * u, u, v, u * v, 0.5 * (u + v))
    return 1 + depth * waves[pen.count(0, len(waves))]


def _light(pen: Pen, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Light that falls off by up to 15 % to either side, across and down."""
    return 1 + pen.between(-0.3, 0.3) / SIDE * x + pen.between(-0.3, 0.3) / SIDE * y
