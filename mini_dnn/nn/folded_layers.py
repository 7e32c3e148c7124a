"""Convolutions of `mini_dnn.nn.folded`.

Bias, residual and ReLU are applied while a result is in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mini_dnn.nn import winograd
from mini_dnn.nn.models.resnet import Arrays, Convolution
from mini_dnn.nn.numpy_conv import cores
from mini_dnn.nn.winograd import IN, INTO, OUT, OUT_OF

TILE_BYTES = 2048 << 10  # windows that a thread processes at a time: about the L2 cache and its share of L3
FEW_PIXELS = 128  # pixels of an image: up to this number, threads share channels
BLOCK = 64  # channels of Winograd's products
SMALL = 10**6  # multiply-adds of a product for which OpenBLAS does not copy its matrices first

Work = Callable[[], None]
Block = tuple[np.ndarray, slice]  # weights (36, C, 64), and their channels
Tile = tuple[slice, slice]  # images, and rows of pixels or of Winograd's tiles


@dataclass(frozen=True, eq=False)
class Filters:
    """The filters of a convolution as a matrix, with its bias."""

    conv: Convolution
    matrix: np.ndarray  # (R S C, K)
    bias: np.ndarray  # (K,)

    @classmethod
    def of(cls, conv: Convolution, folded: Arrays) -> Filters:
        """Create the filters of a convolution from all arrays with folded norms."""
        weight = folded[f"{conv.name}.weight"].astype(np.float32)
        matrix = np.ascontiguousarray(weight.transpose(2, 3, 1, 0)).reshape(-1, conv.K)
        return cls(conv, matrix, folded[f"{conv.name}.bias"].astype(np.float32))

    @property
    def winograd(self) -> bool:
        """Whether Winograd's algorithm can be used."""
        return (self.conv.R, self.conv.stride, self.conv.padding) == (3, 1, 1)

    @cached_property
    def blocks(self) -> list[Block]:
        """The filters for Winograd's algorithm, (36, C, 64), with their channels; computed on first use."""
        R, C, K = self.conv.R, self.conv.C, self.conv.K
        w = self.matrix.reshape(R, R, C, K).transpose(3, 2, 0, 1)
        cuts = [slice(k, min(k + BLOCK, K)) for k in range(0, K, BLOCK)]
        return [(winograd.transformed(w[cut]), cut) for cut in cuts]


@dataclass(frozen=True, eq=False)
class Image:
    """Images (N, H, W, C) within a border."""

    whole: np.ndarray
    inner: np.ndarray
    border: int

    @classmethod
    def empty(cls, N: int, side: int, C: int, border: int, fill: float = 0.0) -> Image:
        """Allocate images. The lower and right borders have room for whole tiles of Winograd's algorithm."""
        length = -(-side // OUT) * OUT + 2 * border
        whole = np.full((N, length, length, C), fill, np.float32)
        return cls(whole, whole[:, border : border + side, border : border + side], border)


class Crew:
    """Threads that share the work, with memory for each of them that all layers use.

    Parameters
    ----------
    threads
        The number of threads; by default one per core.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or cores()
        self.shares = True  # whether BLAS leaves the threads to us
        self._memory = [np.empty(0, np.float32) for _ in range(3 * self.threads + 1)]
        self._pool = ThreadPoolExecutor(max(1, self.threads - 1))

    def run(self, works: Sequence[Work]) -> None:
        """Run all of these functions, each in its own thread."""
        if not self.shares or len(works) == 1:
            for work in works:
                work()
            return
        others = [self._pool.submit(work) for work in works[1:]]
        works[0]()
        for other in others:
            other.result()

    def share(self, work: Callable[[int], None], count: int) -> None:
        """Call ``work`` with the index of each thread, in as many threads as there are pieces of work."""
        self.run([partial(work, thread) for thread in range(min(self.threads, count))])

    def memory(self, number: int, size: int) -> np.ndarray:
        """Return uninitialised numbers in the memory with this index."""
        if self._memory[number].size < size:
            self._memory[number] = np.empty(size, np.float32)
        return self._memory[number][:size]


@dataclass(frozen=True, eq=False)
class Direct:
    """Compute y = relu(conv(x) + bias + residual) with windows; without ``finish``, only the convolution."""

    crew: Crew
    filters: Filters
    x: Image
    y: Image
    residual: np.ndarray | None = None
    relu: bool = True
    finish: bool = True

    @cached_property
    def windows(self) -> np.ndarray:
        """A view (N, P, P, R, S C) of all windows."""
        conv, x = self.filters.conv, self.x
        border = x.border - conv.padding
        start = x.whole[:, border:, border:]
        n, row, column, channel = start.strides
        shape = len(x.whole), conv.P, conv.P, conv.R, conv.R * conv.C
        strides = n, conv.stride * row, conv.stride * column, row, channel
        return as_strided(start, shape, strides, writeable=False)

    def run(self) -> None:
        """Compute the output. Threads take tiles, or channels if there are few pixels and many channels."""
        conv, crew = self.filters.conv, self.crew
        if conv.P * conv.P <= FEW_PIXELS and crew.threads > 1 and crew.shares:
            self._by_channels()
            return
        row_bytes = conv.P * conv.R * conv.R * conv.C * 4
        tiles = tiles_of(len(self.x.whole), conv.P, row_bytes, crew.threads)

        def some(thread: int) -> None:
            for tile in tiles[thread :: crew.threads]:
                self._product(self._filled(tile, thread), tile, crew.threads + thread, slice(0, conv.K))

        crew.share(some, len(tiles))

    def _by_channels(self) -> None:
        conv, crew = self.filters.conv, self.crew
        tile = slice(0, len(self.x.whole)), slice(0, conv.P)
        matrix = self._filled(tile, 0)
        step = -(-conv.K // crew.threads)
        cuts = [slice(k, min(k + step, conv.K)) for k in range(0, conv.K, step)]
        crew.run([partial(self._product, matrix, tile, crew.threads + i, cut) for i, cut in enumerate(cuts)])

    def _filled(self, tile: Tile, memory: int) -> np.ndarray:
        """Copy a tile's windows to a matrix."""
        part = self.windows[tile]
        matrix = self.crew.memory(memory, part.size).reshape(part.shape)
        np.copyto(matrix, part)
        return matrix.reshape(-1, part.shape[-2] * part.shape[-1])

    def _product(self, matrix: np.ndarray, tile: Tile, memory: int, channels: slice) -> None:
        """Compute some channels of a tile."""
        some, bias = self.filters.matrix[:, channels], self.filters.bias[channels]
        found = self.crew.memory(memory, len(matrix) * some.shape[1]).reshape(len(matrix), -1)
        np.matmul(matrix, some, out=found)
        out = self.y.inner[(*tile, slice(None), channels)]
        if self.finish:
            P = self.filters.conv.P
            lines = found.reshape(-1, P * some.shape[1])
            lines += np.tile(bias, P)
        sums = found.reshape(out.shape)
        if self.residual is not None:
            sums += self.residual[(*tile, slice(None), channels)]
        if self.finish and self.relu:
            np.maximum(sums, 0, out=out)
        else:
            out[...] = sums


@dataclass(frozen=True, eq=False)
class ByWinograd:
    """Compute y = relu(conv(x) + bias + residual) for 3×3 filters: see `mini_dnn.nn.winograd`."""

    crew: Crew
    filters: Filters
    x: Image
    y: Image
    residual: np.ndarray | None = None

    @property
    def tiles_of_a_row(self) -> int:
        """The number of tiles in a row, all of which are whole."""
        return -(-self.filters.conv.P // OUT)

    @cached_property
    def windows(self) -> np.ndarray:
        """A view (6, 6, N, T, T, C) of the windows of all T x T tiles."""
        x, T = self.x, self.tiles_of_a_row
        start = x.whole[:, x.border - 1 :, x.border - 1 :]
        n, row, column, channel = start.strides
        shape = IN, IN, len(x.whole), T, T, self.filters.conv.C
        return as_strided(start, shape, (row, column, n, OUT * row, OUT * column, channel), writeable=False)

    def run(self) -> None:
        """Compute the output.

        Threads take tiles, or blocks of channels if there are fewer tiles than channels.
        """
        conv, T, N, threads = self.filters.conv, self.tiles_of_a_row, len(self.x.whole), self.crew.threads
        tiles = tiles_of(N, T, IN * IN * T * max(conv.C, conv.K) * 4, threads)
        blocks = self.filters.blocks  # computed here, so that threads do not repeat it
        if N * T * T < conv.K:
            self._by_blocks(tiles, blocks)
            return

        def some(thread: int) -> None:
            for tile in tiles[thread::threads]:
                count = (tile[0].stop - tile[0].start) * (tile[1].stop - tile[1].start) * T
                v = self.crew.memory(threads + thread, IN * IN * count * conv.C).reshape(IN * IN, -1)
                self._inputs(tile, thread, v)
                for block in blocks:
                    self._outputs(v.reshape(IN * IN, -1, conv.C), tile, block, thread)

        self.crew.share(some, len(tiles))

    def _by_blocks(self, tiles: Sequence[Tile], blocks: Sequence[Block]) -> None:
        """Transform all windows first; then each weight is read once."""
        C, T, N, threads = self.filters.conv.C, self.tiles_of_a_row, len(self.x.whole), self.crew.threads
        v = self.crew.memory(3 * threads, IN * IN * N * T * T * C).reshape(IN * IN, -1)

        def some_inputs(thread: int) -> None:
            for images, rows in tiles[thread::threads]:
                first = (images.start * T + rows.start) * T * C
                last = ((images.stop - 1) * T + rows.stop) * T * C
                self._inputs((images, rows), thread, v[:, first:last])

        def some_channels(thread: int) -> None:
            for block in blocks[thread::threads]:
                self._outputs(v.reshape(IN * IN, -1, C), (slice(0, N), slice(0, T)), block, thread)

        self.crew.share(some_inputs, len(tiles))
        self.crew.share(some_channels, len(blocks))

    def _inputs(self, tile: Tile, thread: int, out: np.ndarray) -> None:
        """Transform the windows of some rows of tiles."""
        part = self.windows[(slice(None), slice(None), *tile)]
        d = self.crew.memory(thread, part.size).reshape(part.shape)
        np.copyto(d, part)
        np.matmul(INTO, d.reshape(IN * IN, -1), out=out)

    def _outputs(self, v: np.ndarray, tile: Tile, block: Block, thread: int) -> None:
        """Compute some channels of some rows of tiles from their transformed windows (36, tiles, C)."""
        weights, channels = block
        images, tiles = tile
        crew, P, T = self.crew, self.filters.conv.P, self.tiles_of_a_row
        count, width = v.shape[1], weights.shape[2]
        m = crew.memory(thread, IN * IN * count * width).reshape(IN * IN, count, width)
        groups = -(-count * v.shape[2] * width // SMALL)
        for first, last in pairwise(count * i // groups for i in range(groups + 1)):
            np.matmul(v[:, first:last], weights, out=m[:, first:last])
        s = crew.memory(2 * crew.threads + thread, OUT * OUT * count * width).reshape(OUT, OUT, -1)
        np.matmul(OUT_OF, m.reshape(IN * IN, -1), out=s.reshape(OUT * OUT, -1))
        rows, few = slice(tiles.start * OUT, min(tiles.stop * OUT, P)), tiles.stop - tiles.start
        pixels = crew.memory(thread, s.size).reshape(-1, few, OUT, T, OUT, width)
        given = s.reshape(OUT, OUT, -1, few, T, width).transpose(2, 3, 0, 4, 1, 5)
        np.add(given, self.filters.bias[channels], out=pixels)
        sums = pixels.reshape(-1, few * OUT, T * OUT, width)[:, : rows.stop - rows.start, :P]
        if self.residual is not None:
            sums += self.residual[images, rows, :, channels]
        np.maximum(sums, 0, out=self.y.inner[images, rows, :, channels])


def tiles_of(N: int, P: int, row_bytes: int, threads: int) -> list[Tile]:
    """Divide images and rows into tiles whose windows take about `TILE_BYTES`, at least one per thread."""
    rows = min(P, max(1, TILE_BYTES // row_bytes))
    if rows < P or threads > N:
        cuts = min(P, max(-(-P // rows), -(-threads // N)))  # at least one row each
        edges = [P * i // cuts for i in range(cuts + 1)]
        return [(slice(n, n + 1), slice(first, last)) for n in range(N) for first, last in pairwise(edges)]
    images = max(1, min(TILE_BYTES // (row_bytes * P), -(-N // threads)))
    groups = min(N, -(-N // (images * threads)) * threads)  # the same number for each thread
    edges = [N * i // groups for i in range(groups + 1)]
    return [(slice(first, last), slice(0, P)) for first, last in pairwise(edges)]
