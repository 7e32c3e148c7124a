"""A trained residual network on the CPU, optimised for speed: folded batch norms, reused memory.

`mini_dnn.nn.residual` computes the same layer by layer. Here, less is done around the matrix products, which
take most of the time:

- Batch norm is folded into weights and biases. Bias, residual and ReLU are applied to the result of a product
  while it is in the cache.
- Images are stored as (N, H, W, C) with borders of zeros, so that padding needs no work. A window of a 3x3
  filter consists of three runs of 3 C numbers, which are copied to a row of a matrix (K = R S C).
- The output is divided into tiles whose windows stay in the cache. Each of our threads takes a tile, with a
  BLAS that starts no threads (`mini_dnn.nn.blas`). In the last stage, which has few pixels and many channels,
  each thread takes some of the channels, because most of the memory traffic is for weights.
- A 3×3 filter of stride 1 computes 4×4 outputs at once from 6×6 inputs: after both are transformed, 36
  products replace 144 (Winograd's F(4×4, 3×3); A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural
  Networks", arXiv:1509.09308). All three steps are matrix products. Four times as many weights must be read,
  so they are stored in blocks of 64 channels, which are read in order. On processors with AVX-512, OpenBLAS
  multiplies such small matrices without copying them first.
- If there are fewer tiles than channels, threads take blocks instead of tiles, and each weight is read once.
- The stem's bias and ReLU are applied after its pooling, which leaves a quarter of the pixels. This is
  correct because both preserve the order of numbers.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.nn.blas import one_thread
from mini_dnn.nn.folded_layers import ByWinograd, Crew, Direct, Filters, Image
from mini_dnn.nn.models.resnet import Arrays, Block, ResNetSizes
from mini_dnn.nn.models.resnet_arrays import fold

# Limits for a group of images: bytes of the first layer's output, and the number of images
MAP_BYTES, IMAGES = 32 << 20, 32


class FoldedResNet:
    """A residual network for inference only, in float32.

    Only one call may run at a time, because all calls use the same memory.

    Parameters
    ----------
    sizes
        The sizes of the network.
    arrays
        The trained arrays, as described by `ResNetSizes.shapes`.
    threads
        The number of threads that share the work; by default one per core.
    """

    def __init__(self, sizes: ResNetSizes, arrays: Arrays, threads: int | None = None) -> None:
        self.sizes = sizes
        self._crew = Crew(threads)
        folded = fold(sizes, arrays)
        self._filters = {conv.name: Filters.of(conv, folded) for conv in sizes.convolutions}
        self._last = folded["fc.weight"].astype(np.float32), folded["fc.bias"].astype(np.float32)
        self._images: dict[str, Image] = {}
        first = sizes.conv1
        self._together = min(IMAGES, max(1, MAP_BYTES // (first.P**2 * first.K * 4)))

    def scores(self, x: np.ndarray) -> np.ndarray:
        """Compute scores (N, classes) of images (N, channels, image, image) float32, before the softmax.

        Raises
        ------
        ShapeError
            The array does not contain such images.
        """
        expected = (self.sizes.channels, self.sizes.image, self.sizes.image)
        if x.ndim != 4 or x.shape[1:] != expected or x.dtype != np.float32 or not len(x):
            raise ShapeError(
                f"images are {x.shape} {x.dtype}; expected (N, {', '.join(map(str, expected))}) float32"
            )
        weight, bias = self._last
        step = self._together
        with one_thread() as self._crew.shares:
            parts = [self._features(x[n : n + step]) @ weight.T for n in range(0, len(x), step)]
        return np.concatenate(parts) + bias

    def _features(self, x: np.ndarray) -> np.ndarray:
        """Compute the means over the last block's pixels, (N, width)."""
        N, first = len(x), self.sizes.conv1
        given = self._image(N, "images", first.H, first.C, first.padding)
        given.inner[...] = x.transpose(0, 2, 3, 1)
        y = self._stem(given)
        for number, block in enumerate(self.sizes.all_blocks):
            y = self._block(y, block, number % 2)
        return y.inner.mean(axis=(1, 2))

    def _stem(self, x: Image) -> Image:
        filters, N = self._filters["conv1"], len(x.whole)
        conv = filters.conv
        y = self._image(N, "stem", self.sizes.pooled, conv.K, 1)
        if self.sizes.stem != "imagenet":
            self._convolve(x, filters, y)
            return y
        wide = self._image(N, "wide", conv.P, conv.K, 1, -np.inf)
        Direct(self._crew, filters, x, wide, finish=False).run()
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

        edges = [P * i // self._crew.threads for i in range(self._crew.threads + 1)]

        def some(first: int, last: int) -> None:
            for n in range(N):
                pool(n, first, last)

        self._crew.run([partial(some, first, last) for first, last in pairwise(edges) if first < last])
        return y

    def _block(self, x: Image, block: Block, parity: int) -> Image:
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
        self, x: Image, filters: Filters, y: Image, residual: np.ndarray | None = None, relu: bool = True
    ) -> None:
        """Compute y = relu(conv(x) + bias + residual)."""
        if filters.winograd:
            ByWinograd(self._crew, filters, x, y, residual).run()
        else:
            Direct(self._crew, filters, x, y, residual, relu).run()

    def _image(self, N: int, name: str, side: int, C: int, border: int, fill: float = 0.0) -> Image:
        """Return memory for images by its name. The border is filled when the memory is allocated."""
        held = self._images.get(name)
        if held is None or len(held.whole) < N:
            held = self._images[name] = Image.empty(N, side, C, border, fill)
        return Image(held.whole[:N], held.inner[:N], border)
