"""The fast residual network on the CPU gives the same results as the layers in float64."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mini_dnn.errors import ShapeError
from mini_dnn.nn import blas, folded, folded_layers, winograd
from mini_dnn.nn.folded import FoldedResNet
from mini_dnn.nn.models import resnet
from mini_dnn.nn.models.resnet import ResNetSizes
from mini_dnn.paths import loaded_libraries

ALLOWED = 1e-5  # of the largest score
SMALL = ResNetSizes(28, 1, "small", (8, 16, 24, 32), (1, 2, 1, 1), 10)
LARGE = ResNetSizes(70, 3, "imagenet", (8, 8, 16, 24), (2, 1, 1, 1), 7)
ODD = ResNetSizes(33, 2, "imagenet", (5, 7, 9, 11), (1, 1, 1, 1), 3, (2, 1, 2, 1))


def arrays_of(sizes: ResNetSizes) -> dict[str, np.ndarray]:
    """Weights whose norms are not the identity."""
    rng = np.random.default_rng(1)
    found = {}
    for name, shape in sizes.shapes.items():
        value = rng.standard_normal(shape)
        if len(shape) > 1:
            value *= np.sqrt(2 / np.prod(shape[1:]))
        elif name.endswith("running_var"):
            value = rng.uniform(0.5, 2, shape)
        elif name.endswith(".weight"):
            value = 1 + 0.2 * value
        found[name] = value.astype(np.float32)
    return found


def probabilities(sizes: ResNetSizes, arrays: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """The results of the layers in float64."""
    network = resnet.build(sizes, np.random.default_rng(0), np.float64)
    for name, parameter in network.parameters().items():
        parameter.value[...] = arrays[name]
    return network.forward(x.astype(np.float64))


def images(sizes: ResNetSizes, count: int) -> np.ndarray:
    shape = (count, sizes.channels, sizes.image, sizes.image)
    return np.random.default_rng(2).standard_normal(shape, np.float32)


@pytest.mark.parametrize("threads", [1, 2, 3, 40])
@pytest.mark.parametrize("sizes", [SMALL, LARGE, ODD], ids=["small", "large", "odd"])
def test_scores_are_the_layers(sizes: ResNetSizes, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded_layers, "TILE_BYTES", 16 << 10)  # so that there are several tiles
    monkeypatch.setattr(folded, "IMAGES", 4)
    monkeypatch.setattr(
        folded_layers, "BLOCK", 16
    )  # so that some layers have several tiles, and others one smaller tile
    monkeypatch.setattr(folded_layers, "SMALL", 2000)
    arrays = arrays_of(sizes)
    fast = FoldedResNet(sizes, arrays, threads)
    x = images(sizes, 9)  # more images than pass through the layers at once
    expected = probabilities(sizes, arrays, x)
    for count in (1, 9, 2):
        scores = fast.scores(x[:count])
        assert scores.dtype == np.float32
        exact = np.log(expected[:count])  # scores, up to a constant for each image
        exact += (scores - exact).mean(axis=1, keepdims=True)
        assert np.abs(scores - exact).max() <= ALLOWED * np.abs(exact).max()


def test_without_a_hold_on_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this case BLAS uses its own threads, and ours are not used."""

    @contextmanager
    def unknown() -> Iterator[bool]:
        yield False

    arrays, x = arrays_of(SMALL), images(SMALL, 3)
    expected = FoldedResNet(SMALL, arrays, 2).scores(x)
    monkeypatch.setattr(folded, "one_thread", unknown)
    alone = FoldedResNet(SMALL, arrays, 2)
    np.testing.assert_allclose(alone.scores(x), expected, rtol=1e-4, atol=1e-5)
    assert not alone._crew._pool._threads


def test_images_of_another_network_are_refused() -> None:
    fast = FoldedResNet(SMALL, arrays_of(SMALL), 1)
    for wrong in (
        images(LARGE, 1),
        images(SMALL, 1).astype(np.float64),
        images(SMALL, 1)[0],
        images(SMALL, 0),
    ):
        with pytest.raises(ShapeError, match=r"expected \(N, 1, 28, 28\) float32"):
            fast.scores(wrong)


@pytest.fixture
def threads() -> Iterator[Callable[[], int]]:
    """How many threads NumPy's BLAS has, which are two at first."""
    known = blas._openblas()
    if known is None:
        pytest.skip("NumPy's BLAS is no OpenBLAS here")
    get, put = known
    before = get()
    put(2)
    yield get
    put(before)


def test_blas_has_its_threads_back(threads: Callable[[], int]) -> None:
    with blas.one_thread() as had:
        assert had
        assert threads() == 1
    assert threads() == 2


def test_blas_has_its_threads_back_after_all_who_share_it(threads: Callable[[], int]) -> None:
    """The second one to enter does not restore the number of threads that it found."""
    first, second = blas.one_thread(), blas.one_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert threads() == 1, "the second one is still running"
    second.__exit__(None, None, None)
    assert threads() == 2


def test_libraries_are_found_in_folders_with_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = b"""
7f00-7f10 r-xp 00000000 fe:00 11   /home/ann lee/lib/libopenblas-0.3.so
7f10-7f20 r--p 00010000 fe:00 11   /home/ann lee/lib/libopenblas-0.3.so
7f20-7f30 rw-p 00000000 00:00 0
7f30-7f40 r-xp 00000000 fe:00 12   /openblas/libother.so.1
7f40-7f50 r--p 00000000 fe:00 13   /openblas/notes.txt
"""
    monkeypatch.setattr(Path, "read_bytes", lambda _: maps)
    found = loaded_libraries("openblas")
    assert found == ["/home/ann lee/lib/libopenblas-0.3.so", "/openblas/libother.so.1"]


def test_winograds_products_are_the_convolution() -> None:
    """One tile and one channel, by the definition."""
    rng = np.random.default_rng(4)
    d, g = rng.standard_normal((6, 6)), rng.standard_normal((3, 3)).astype(np.float32)
    expected = [[(d[p : p + 3, q : q + 3] * g).sum() for q in range(4)] for p in range(4)]
    products = winograd.transformed(g[None, None]).reshape(6, 6) * (winograd.INPUT @ d @ winograd.INPUT.T)
    np.testing.assert_allclose(winograd.OUTPUT @ products @ winograd.OUTPUT.T, expected, rtol=1e-5, atol=1e-5)
    inputs = (winograd.INTO @ d.reshape(-1)).reshape(6, 6)
    np.testing.assert_allclose(inputs, winograd.INPUT @ d @ winograd.INPUT.T, rtol=1e-5, atol=1e-5)
