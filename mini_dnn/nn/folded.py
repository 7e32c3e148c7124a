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
- A 3×3 filter of stride 1 gives 4×4 outputs at once from 6×6 inputs: once both are transformed, 36 products
  take the place of 144 (Winograd's F(4×4, 3×3); A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural
  Networks", arXiv:1509.09308). All three steps are matrix products. Four times as many weights have to be
  read, so they lie in blocks of 64 channels, which are read in order. OpenBLAS multiplies matrices as small
  as these without copying them first where the processor has AVX-512.
- Where there are fewer tiles than channels, threads take blocks instead of tiles, and each weight is read
  once.
- The stem's bias and ReLU wait until its pool has left a quarter of the pixels: both keep the order of
  numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mini_dnn.errors import ShapeError
from mini_dnn.nn import winograd
from mini_dnn.nn.blas import one_thread
from mini_dnn.nn.models.resnet import Arrays, Block, Convolution, ResNetSizes
from mini_dnn.nn.models.resnet_arrays import fold
from mini_dnn.nn.winograd import IN, INTO, OUT, OUT_OF

TILE_BYTES = 2048 << 10  # of windows that a thread has at a time: about the L2 cache and its share of L3
FEW_PIXELS = 128  # of an image: from here on threads share channels
MAP_BYTES, IMAGES = 32 << 20, 32  # most of the first layer's output, and of images, that go through together

BLOCK = 64  # channels of Winograd's products
SMALL = 10**6  # multiply-adds of a product that OpenBLAS does without copying its matrices first
Work = Callable[[], None]


@dataclass(frozen=True, eq=False)
class _Filters:
    """A convolution as a matrix, and its bias."""

    conv: Convolution
    matrix: np.ndarray  # (R S C, K)
    bias: np.ndarray  # (K,)

    @property
    def winograd(self) -> bool:
        """Whether Winograd's way can be taken."""
        return (self.conv.R, self.conv.stride, self.conv.padding) == (3, 1, 1)

    @cached_property
    def blocks(self) -> list[tuple[np.ndarray, slice]]:
        """Filters for Winograd's way, (36, C, 64), and their channels: made when they are needed first."""
        R, C, K = self.conv.R, self.conv.C, self.conv.K
        w = self.matrix.reshape(R, R, C, K).transpose(3, 2, 0, 1)
        cuts = [slice(k, min(k + BLOCK, K)) for k in range(0, K, BLOCK)]
        return [(winograd.transformed(w[cut]), cut) for cut in cuts]


@dataclass(frozen=True, eq=False)
class _Image:
    """Images (N, H, W, C) within a border."""

    whole: np.ndarray
    inner: np.ndarray
    border: int

    @classmethod
    def empty(cls, N: int, side: int, C: int, border: int, fill: float = 0.0) -> _Image:
        """Below and to the right, the border is so wide that whole tiles of Winograd's fit."""
        length = -(-side // OUT) * OUT + 2 * border
        whole = np.full((N, length, length, C), fill, np.float32)
        return cls(whole, whole[:, border : border + side, border : border + side], border)


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
        self._images: dict[str, _Image] = {}
        first = sizes.conv1
        self._together = min(IMAGES, max(1, MAP_BYTES // (first.P**2 * first.K * 4)))
        self._tiles = [np.empty(0, np.float32) for _ in range(3 * self.threads + 1)]
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
        weight, bias = self._last
        step = self._together
        with one_thread() as self._shared:
            parts = [self._features(x[n : n + step]) @ weight.T for n in range(0, len(x), step)]
        return np.concatenate(parts) + bias

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

        P = self.sizes.pooled

        def pool(n: int, first: int, last: int) -> None:
            a = wide.whole[n, 2 * first : 2 * last + 1]
            rows = np.maximum(a[:-1:2], a[1::2])
            np.maximum(rows, a[2::2], out=rows)
            found = np.maximum(rows[:, 0 : 2 * P : 2], rows[:, 1 : 2 * P + 1 : 2])
            np.maximum(found, rows[:, 2 : 2 * P + 2 : 2], out=found)
            lines = found.reshape(last - first, -1)
            lines += bias
            np.maximum(found, 0, out=y.inner[n, first:last])

        edges = [P * i // self.threads for i in range(self.threads + 1)]

        def some(first: int, last: int) -> None:
            for n in range(N):
                pool(n, first, last)

        self._run([partial(some, first, last) for first, last in pairwise(edges) if first < last])
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
        if filters.winograd:
            self._by_winograd(x, filters, y, residual)
            return
        conv = filters.conv
        N, P, width = len(x.whole), conv.P, conv.R * conv.C
        K = conv.R * width
        border = x.border - conv.padding
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

    def _by_winograd(self, x: _Image, filters: _Filters, y: _Image, residual: np.ndarray | None) -> None:
        """Let y be relu(conv(x) + bias + residual): see `mini_dnn.nn.winograd`."""
        conv, blocks, threads = filters.conv, filters.blocks, self.threads
        N, P, C = len(x.whole), conv.P, conv.C
        T = -(-P // OUT)  # tiles of a row
        start = x.whole[:, x.border - 1 :, x.border - 1 :]
        n, row, column, channel = start.strides
        windows = as_strided(
            start, (IN, IN, N, T, T, C), (row, column, n, OUT * row, OUT * column, channel), writeable=False
        )

        def inputs(images: slice, tiles: slice, thread: int, out: np.ndarray) -> None:
            """Transformed windows of some rows of tiles."""
            part = windows[:, :, images, tiles]
            d = self._scratch(thread, part.size).reshape(part.shape)
            np.copyto(d, part)
            np.matmul(INTO, d.reshape(IN * IN, -1), out=out)

        def outputs(
            v: np.ndarray, images: slice, tiles: slice, block: tuple[np.ndarray, slice], thread: int
        ) -> None:
            """Some channels of some rows of tiles, from their transformed windows (36, tiles, C)."""
            weights, channels = block
            count, width = v.shape[1], weights.shape[2]
            m = self._scratch(thread, IN * IN * count * width).reshape(IN * IN, count, width)
            groups = -(-count * C * width // SMALL)
            for first, last in pairwise(count * i // groups for i in range(groups + 1)):
                np.matmul(v[:, first:last], weights, out=m[:, first:last])
            s = self._scratch(2 * threads + thread, OUT * OUT * count * width).reshape(OUT, OUT, -1)
            np.matmul(OUT_OF, m.reshape(IN * IN, -1), out=s.reshape(OUT * OUT, -1))
            rows, few = slice(tiles.start * OUT, min(tiles.stop * OUT, P)), tiles.stop - tiles.start
            pixels = self._scratch(thread, s.size).reshape(-1, few, OUT, T, OUT, width)
            given = s.reshape(OUT, OUT, -1, few, T, width).transpose(2, 3, 0, 4, 1, 5)
            np.add(given, filters.bias[channels], out=pixels)
            sums = pixels.reshape(-1, few * OUT, T * OUT, width)[:, : rows.stop - rows.start, :P]
            if residual is not None:
                sums += residual[images, rows, :, channels]
            np.maximum(sums, 0, out=y.inner[images, rows, :, channels])

        parts = _tiles(N, T, IN * IN * T * max(C, conv.K) * 4, threads)
        if N * T * T < conv.K:
            v = self._scratch(3 * threads, IN * IN * N * T * T * C).reshape(IN * IN, -1)

            def some_inputs(thread: int) -> None:
                for images, tiles in parts[thread::threads]:
                    first = (images.start * T + tiles.start) * T * C
                    last = ((images.stop - 1) * T + tiles.stop) * T * C
                    inputs(images, tiles, thread, v[:, first:last])

            def some_channels(thread: int) -> None:
                for block in blocks[thread::threads]:
                    outputs(v.reshape(IN * IN, -1, C), slice(0, N), slice(0, T), block, thread)

            self._run([partial(some_inputs, thread) for thread in range(min(threads, len(parts)))])
            self._run([partial(some_channels, thread) for thread in range(min(threads, len(blocks)))])
            return

        def some_tiles(thread: int) -> None:
            for images, tiles in parts[thread::threads]:
                count = (images.stop - images.start) * (tiles.stop - tiles.start) * T
                v = self._scratch(threads + thread, IN * IN * count * C).reshape(IN * IN, -1)
                inputs(images, tiles, thread, v)
                for block in blocks:
                    outputs(v.reshape(IN * IN, -1, C), images, tiles, block, thread)

        self._run([partial(some_tiles, thread) for thread in range(min(threads, len(parts)))])

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
        held = self._images.get(name)
        if held is None or len(held.whole) < N:
            held = self._images[name] = _Image.empty(N, side, C, border, fill)
        return _Image(held.whole[:N], held.inner[:N], border)


def _filters(conv: Convolution, folded: Arrays) -> _Filters:
    weight = folded[f"{conv.name}.weight"].astype(np.float32)
    matrix = np.ascontiguousarray(weight.transpose(2, 3, 1, 0)).reshape(-1, conv.K)
    return _Filters(conv, matrix, folded[f"{conv.name}.bias"].astype(np.float32))


def _tiles(N: int, P: int, row_bytes: int, threads: int) -> list[tuple[slice, slice]]:
    """Images and rows of each tile, whose windows take about `TILE_BYTES`; at least one for each thread."""
    rows = min(P, max(1, TILE_BYTES // row_bytes))
    if rows < P or threads > N:
        cuts = min(P, max(-(-P // rows), -(-threads // N)))  # a row or more each
        edges = [P * i // cuts for i in range(cuts + 1)]
        return [(slice(n, n + 1), slice(first, last)) for n in range(N) for first, last in pairwise(edges)]
    images = max(1, min(TILE_BYTES // (row_bytes * P), -(-N // threads)))
    groups = min(N, -(-N // (images * threads)) * threads)  # as many for each thread
    edges = [N * i // groups for i in range(groups + 1)]
    return [(slice(first, last), slice(0, P)) for first, last in pairwise(edges)]
