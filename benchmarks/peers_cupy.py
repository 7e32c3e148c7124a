"""CuPy: convolutions as products with cuBLAS, as one would write them with arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from peers_common import Case, Prepared
from peers_problems import Subject

DTYPES = {"fp32": "float32", "fp16": "float16"}
UNROLLED_BYTES = 2 << 30  # of the windows of images that are multiplied at a time


def windows(xp: Any, x: Any, R: int, S: int) -> Any:
    """View all windows of a batch: (N, C, H, W) to (N, C, P, Q, R, S)."""
    N, C, H, W = x.shape
    n, c, h, w = x.strides
    shape = (N, C, H - R + 1, W - S + 1, R, S)
    return xp.lib.stride_tricks.as_strided(x, shape=shape, strides=(n, c, h, w, h, w))


def by_tensordot(xp: Any, x: Any, w: Any, y: Any) -> None:
    """Use one product for all images of a part, summed over channels and filters."""
    found = xp.tensordot(w, windows(xp, x, *w.shape[2:]), axes=((1, 2, 3), (1, 4, 5)))  # (M, N, P, Q)
    y[...] = found.transpose(1, 0, 2, 3)


def by_matmul(xp: Any, x: Any, w: Any, y: Any) -> None:
    """Use a product for each image, all in one call."""
    N, M, P, Q = y.shape
    unrolled = windows(xp, x, *w.shape[2:]).transpose(0, 1, 4, 5, 2, 3)  # (N, C, R, S, P, Q)
    xp.matmul(w.reshape(M, -1), unrolled.reshape(N, -1, P * Q), out=y.reshape(N, M, P * Q))


WAYS: dict[str, Callable[[Any, Any, Any, Any], None]] = {
    "as_strided windows, tensordot": by_tensordot,
    "as_strided windows, matmul": by_matmul,
}


def in_parts(xp: Any, way: Callable[..., None], x: Any, w: Any, y: Any, images: int) -> None:
    """Convolve ``images`` images at a time."""
    for n in range(0, len(x), images):
        way(xp, x[n : n + images], w, y[n : n + images])


def part_of(subject: Subject, itemsize: int) -> int:
    """The number of images whose windows take `UNROLLED_BYTES`."""
    shape = subject.problem
    return max(1, min(shape.N, UNROLLED_BYTES // (shape.K * shape.P * shape.Q * itemsize)))


def cases(subjects: Sequence[Subject], xp: Any) -> Iterator[Case]:
    """Yield both ways in both precisions for each convolution. ``xp`` is CuPy, or NumPy to try it."""
    for subject in subjects:
        if subject.operation.name != "conv2d":
            continue
        for precision, dtype in DTYPES.items():
            images = part_of(subject, np.dtype(dtype).itemsize)
            for setting, way in WAYS.items():
                yield Case(
                    kind="library",
                    peer="CuPy",
                    what=subject.what,
                    precision=precision,
                    order="NCHW",
                    setting=f"{setting} (cuBLAS), {images} images at a time",
                    bytes=subject.problem.min_bytes * np.dtype(dtype).itemsize // 4,
                    prepare=partial(_prepared, subject, dtype, way, images, xp),
                    check=partial(subject.check_library, precision=precision),
                    facts=subject.facts,
                )


@contextmanager
def _prepared(
    subject: Subject, dtype: str, way: Callable[..., None], images: int, xp: Any
) -> Iterator[Prepared]:
    held = {name: xp.asarray(value.astype(dtype)) for name, value in subject.arrays.items()}
    held["y"] = xp.full(subject.problem.y, np.nan, dtype)

    def result() -> np.ndarray:
        found = held["y"][xp.asarray(subject.fetched)]
        return np.asarray(found.get() if hasattr(found, "get") else found, np.float64)

    try:
        yield Prepared(lambda: in_parts(xp, way, **held, images=images), result)
    finally:
        held.clear()
        if hasattr(xp, "get_default_memory_pool"):
            xp.get_default_memory_pool().free_all_blocks()
