"""A trained residual network on the CPU, made for speed: batch norms folded, all memory reused.

What `mini_dnn.nn.residual` computes layer by layer is done here with less around the matrix products, which
are the only part that takes long:

- Batch norm is folded into weights and biases. Bias, residual and ReLU follow a product while it is in the
  cache.
- Images lie as (N, H, W, C) within borders of zeros, so that nothing has to be padded. A window of a 3x3
  filter is three stretches of 3 C numbers; windows are copied as such into a matrix (K = R S C).
- The output is cut into tiles whose windows stay in the cache, and threads of ours take a tile each, with a
  BLAS that starts none (`mini_dnn.nn.blas`). Where few pixels meet many channels, in the last stage, threads
  take some of the channels each, as weights are most of what has to be read there.
- The stem's bias and ReLU wait until its pool has left a quarter of the pixels: both keep the order of
  numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mini_dnn.errors import ShapeError
from mini_dnn.nn.blas import one_thread
from mini_dnn.nn.models.resnet import Arrays, Block, Convolution, ResNetSizes, fold

TILE_BYTES = 512 << 10  # of windows that a thread has at a time: half of an L2 cache
FEW_PIXELS = 128  # of an image: from here on threads share channels
IMAGES = 8  # that go through all layers together

Work = Callable[[], None]


@dataclass(frozen=True, eq=False)
class _Filters:
    """A convolution as a matrix, and its bias."""

    conv: Convolution
    matrix: np.ndarray  # (R S C, K)
    bias: np.ndarray  # (K,)


@dataclass(frozen=True, eq=False)
class _Image:
    """Images (N, H, W, C) within a border."""

    whole: np.ndarray
    inner: np.ndarray

    @classmethod
    def empty(cls, N: int, side: int, C: int, border: int, fill: float = 0.0) -> _Image:
        whole = np.full((N, side + 2 * border, side + 2 * border, C), fill, np.float32)
        return cls(whole, whole[:, border : border + side, border : border + side])


class FoldedResNet:
    """A residual network that only infers, in float32.

    One call at a time: all of them work in the same memory.

    Parameters
    ----------
    sizes
        The network's.
    arrays
        Trained ones, as `ResNetSizes.shapes` says.
    threads
        That share the work; by default one a core.
    """

    def __init__(self, sizes: ResNetSizes, arrays: Arrays, threads: int | None = None) -> None:
        self.sizes = sizes
        self.threads = threads or len(os.sched_getaffinity(0))
        folded = fold(sizes, arrays)
        self._filters = {conv.name: _filters(conv, folded) for conv in sizes.convolutions}
        self._last = folded["fc.weight"].astype(np.float32), folded["fc.bias"].astype(np.float32)
        self._images: dict[tuple[int, str], _Image] = {}
        self._tiles = [np.empty(0, np.float32) for _ in range(2 * self.threads)]
        self._pool = ThreadPoolExecutor(max(1, self.threads - 1))
        self._shared = True

    def scores(self, x: np.ndarray) -> np.ndarray:
        """Scores (N, classes) of images (N, channels, image, image) float32, before the softmax.

        Raises
        ------
        ShapeError
            They are no such images.
        """
        expected = (self.sizes.channels, self.sizes.image, self.sizes.image)
        if x.ndim != 4 or x.shape[1:] != expected or x.dtype != np.float32:
            raise ShapeError(
                f"images are {x.shape} {x.dtype}; expected (N, {', '.join(map(str, expected))}) float32"
            )
        with one_thread() as self._shared:
            parts = [self._features(x[n : n + IMAGES]) for n in range(0, len(x), IMAGES)]
        weight, bias = self._last
        found: np.ndarray = np.concatenate(parts) @ weight.T + bias
        return found

    def _features(self, x: np.ndarray) -> np.ndarray:
        """Means over the last block's pixels, (N, width)."""
        N, first = len(x), self.sizes.conv1
        given = self._image(N, "images", first.H, first.C, first.padding)
        given.inner[...] = x.transpose(0, 2, 3, 1)
        y = self._stem(given)
        for number, block in enumerate(self.sizes.all_blocks):
            y = self._block(y, block, number % 2)
        return y.inner.mean(axis=(1, 2))

    def _stem(self, x: _Image) -> _Image:
        filters, N = self._filters["conv1"], len(x.whole)
        conv = filters.conv
        y = self._image(N, "stem", self.sizes.pooled, conv.K, 1)
        if self.sizes.stem != "imagenet":
            self._convolve(x, filters, y)
            return y
        wide = self._image(N, "wide", conv.P, conv.K, 1, -np.inf)
        self._convolve(x, filters, wide, finish=False)
        bias = np.tile(filters.bias, self.sizes.pooled)

        def pool(n: int) -> None:
            a = wide.whole[n]
            P = self.sizes.pooled
            rows = np.maximum(a[0 : 2 * P : 2], a[1 : 2 * P + 1 : 2])
            np.maximum(rows, a[2 : 2 * P + 2 : 2], out=rows)
            found = np.maximum(rows[:, 0 : 2 * P : 2], rows[:, 1 : 2 * P + 1 : 2])
            np.maximum(found, rows[:, 2 : 2 * P + 2 : 2], out=found)
            lines = found.reshape(P, -1)
            lines += bias
            np.maximum(found, 0, out=y.inner[n])

        self._run([partial(pool, n) for n in range(N)])
        return y

    def _block(self, x: _Image, block: Block, parity: int) -> _Image:
        N, conv = len(x.whole), block.conv1
        middle = self._image(N, f"middle of {conv.P}, {conv.K}", conv.P, conv.K, 1)
        self._convolve(x, self._filters[conv.name], middle)
        shortcut = x
        if block.downsample:
            shortcut = self._image(N, f"shortcut of {conv.P}, {conv.K}", conv.P, conv.K, 0)
            self._convolve(x, self._filters[block.downsample.name], shortcut, relu=False)
        y = self._image(N, f"{parity} of {conv.P}, {conv.K}", conv.P, conv.K, 1)
        self._convolve(middle, self._filters[block.conv2.name], y, residual=shortcut.inner)
        return y

    def _convolve(
        self,
        x: _Image,
        filters: _Filters,
        y: _Image,
        residual: np.ndarray | None = None,
        relu: bool = True,
        finish: bool = True,
    ) -> None:
        """Let y be relu(conv(x) + bias + residual), or the convolution alone if not to ``finish``."""
        conv = filters.conv
        N, P, width = len(x.whole), conv.P, conv.R * conv.C
        K = conv.R * width
        border = (x.whole.shape[1] - conv.H) // 2 - conv.padding
        start = x.whole[:, border:, border:]
        n, row, column, channel = start.strides
        windows = as_strided(
            start,
            (N, P, P, conv.R, width),
            (n, conv.stride * row, conv.stride * column, row, channel),
            writeable=False,
        )
        bias = np.tile(filters.bias, P)

        def fill(images: slice, rows: slice, tile: int, channels: slice = slice(None)) -> np.ndarray:
            part = windows[images, rows]
            matrix = self._scratch(tile, part.size).reshape(part.shape)
            np.copyto(matrix, part)
            return matrix.reshape(-1, K)

        def product(matrix: np.ndarray, images: slice, rows: slice, tile: int, channels: slice) -> None:
            some = filters.matrix[:, channels]
            found = self._scratch(tile, len(matrix) * some.shape[1]).reshape(len(matrix), -1)
            np.matmul(matrix, some, out=found)
            out = y.inner[images, rows, :, channels]
            if finish:
                lines = found.reshape(-1, P * some.shape[1])
                lines += bias if some.shape[1] == conv.K else np.tile(filters.bias[channels], P)
            sums = found.reshape(out.shape)
            if residual is not None:
                sums += residual[images, rows, :, channels]
            if finish and relu:
                np.maximum(sums, 0, out=out)
            else:
                out[...] = sums

        everything = slice(0, conv.K)
        if P * P <= FEW_PIXELS and self.threads > 1 and self._shared:
            images, rows = slice(0, N), slice(0, P)
            matrix = fill(images, rows, 0)
            step = -(-conv.K // self.threads)
            cuts = [slice(k, min(k + step, conv.K)) for k in range(0, conv.K, step)]
            self._run(
                [partial(product, matrix, images, rows, self.threads + i, cut) for i, cut in enumerate(cuts)]
            )
            return
        tiles = _tiles(N, P, K * P * 4, self.threads)

        def tile(images: slice, rows: slice, thread: int) -> None:
            product(fill(images, rows, thread), images, rows, self.threads + thread, everything)

        def some(thread: int) -> None:
            for images, rows in tiles[thread :: self.threads]:
                tile(images, rows, thread)

        self._run([partial(some, thread) for thread in range(min(self.threads, len(tiles)))])

    def _run(self, works: Sequence[Work]) -> None:
        """Do all of these, each on a thread of its own."""
        if not self._shared or len(works) == 1:
            for work in works:
                work()
            return
        others = [self._pool.submit(work) for work in works[1:]]
        works[0]()
        for other in others:
            other.result()

    def _scratch(self, number: int, size: int) -> np.ndarray:
        if self._tiles[number].size < size:
            self._tiles[number] = np.empty(size, np.float32)
        return self._tiles[number][:size]

    def _image(self, N: int, name: str, side: int, C: int, border: int, fill: float = 0.0) -> _Image:
        """Memory for images by its name; its border was filled when it was made."""
        if (N, name) not in self._images:
            self._images[N, name] = _Image.empty(N, side, C, border, fill)
        return self._images[N, name]


def _filters(conv: Convolution, folded: Arrays) -> _Filters:
    weight = folded[f"{conv.name}.weight"].astype(np.float32)
    matrix = np.ascontiguousarray(weight.transpose(2, 3, 1, 0)).reshape(-1, conv.K)
    return _Filters(conv, matrix, folded[f"{conv.name}.bias"].astype(np.float32))


def _tiles(N: int, P: int, row_bytes: int, threads: int) -> list[tuple[slice, slice]]:
    """Images and rows of each tile, whose windows take about `TILE_BYTES`; at least one for each thread."""
    rows = min(P, max(1, TILE_BYTES // row_bytes))
    if rows < P or threads > N:
        cuts = max(-(-P // rows), -(-threads // N))
        edges = [P * i // cuts for i in range(cuts + 1)]
        return [(slice(n, n + 1), slice(first, last)) for n in range(N) for first, last in pairwise(edges)]
    images = max(1, min(TILE_BYTES // (row_bytes * P), -(-N // threads)))
    return [(slice(n, min(n + images, N)), slice(0, P)) for n in range(0, N, images)]
