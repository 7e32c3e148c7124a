"""The NumPy convolution: float64 einsum, the adjoint identities of its gradients, and its memory."""

import tracemalloc

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from mini_dnn.nn import numpy_conv
from mini_dnn.nn.numpy_conv import conv2d_backward_input, conv2d_backward_weight, conv2d_forward

# N, C, H, W, M, R, S
SHAPES = [
    pytest.param((1, 1, 1, 1, 1, 1, 1), id="all-ones"),
    pytest.param((1, 1, 5, 7, 1, 5, 7), id="filter-as-large-as-image"),
    pytest.param((3, 2, 9, 8, 4, 3, 5), id="R!=S,H!=W"),
    pytest.param((2, 3, 6, 11, 5, 5, 2), id="tall-filter"),
    pytest.param((5, 4, 4, 9, 3, 1, 1), id="1x1"),
    pytest.param((2, 3, 7, 3, 2, 2, 3), id="one-column-out"),
    pytest.param((2, 3, 3, 7, 2, 3, 2), id="one-row-out"),
    pytest.param((7, 1, 12, 10, 4, 7, 7), id="C=1"),
    pytest.param((2, 6, 10, 9, 1, 3, 3), id="M=1"),
    pytest.param((11, 4, 40, 40, 16, 7, 7), id="course-conv2"),
    pytest.param((2, 1, 86, 86, 4, 7, 7), id="course-conv1"),
]


def arrays(shape: tuple[int, ...], dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, w and dy with standard normal values."""
    N, C, H, W, M, R, S = shape
    rng = np.random.default_rng(sum(shape))
    sizes = (N, C, H, W), (M, C, R, S), (N, M, H - R + 1, W - S + 1)
    x, w, dy = (rng.standard_normal(size).astype(dtype) for size in sizes)
    return x, w, dy


def expected(x: np.ndarray, w: np.ndarray, dy: np.ndarray) -> dict[str, np.ndarray]:
    """The three results in float64, by their definitions."""
    x, w, dy = (a.astype(np.float64) for a in (x, w, dy))
    R, S = w.shape[2:]
    windows = sliding_window_view(x, (R, S), axis=(2, 3))
    dx = np.zeros_like(x)
    for r, s in np.ndindex(R, S):
        dx[:, :, r : r + dy.shape[2], s : s + dy.shape[3]] += np.einsum("nmpq,mc->ncpq", dy, w[:, :, r, s])
    return {
        "y": np.einsum("ncpqrs,mcrs->nmpq", windows, w, optimize=True),
        "dw": np.einsum("ncpqrs,nmpq->mcrs", windows, dy, optimize=True),
        "dx": dx,
    }


def computed(x: np.ndarray, w: np.ndarray, dy: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "y": conv2d_forward(x, w),
        "dw": conv2d_backward_weight(x, dy, *w.shape[2:]),
        "dx": conv2d_backward_input(w, dy, *x.shape[2:]),
    }


def assert_close(x: np.ndarray, w: np.ndarray, dy: np.ndarray) -> None:
    """Compare all three results with float64. The bound is that of a sum of ``length`` terms."""
    N, M, P, Q = dy.shape
    C, R, S = w.shape[1:]
    lengths = {"y": C * R * S, "dw": N * P * Q, "dx": M * R * S}
    results = computed(x, w, dy)
    for name, want in expected(x, w, dy).items():
        got = results[name]
        assert got.shape == want.shape, name
        assert got.dtype == x.dtype, name
        assert got.flags.c_contiguous, name
        bound = 4 * np.finfo(x.dtype).eps * (16 + lengths[name])
        np.testing.assert_allclose(got, want, rtol=0, atol=bound, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_with_the_definition(shape: tuple[int, ...], dtype: type) -> None:
    assert_close(*arrays(shape, dtype))


@pytest.mark.parametrize("slice_bytes", [1, 3000, 20_000])
@pytest.mark.parametrize("cores", [1, 2, 3, 50])
def test_any_cut_into_tiles_agrees(monkeypatch: pytest.MonkeyPatch, slice_bytes: int, cores: int) -> None:
    monkeypatch.setattr(numpy_conv, "SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(numpy_conv, "cores", lambda: cores)
    assert_close(*arrays((7, 2, 23, 9, 4, 3, 5)))


@pytest.mark.parametrize("macs", [1, 1000, 4000, 20_000])
@pytest.mark.parametrize("M", [7, 12, 32])
def test_any_limit_of_the_gemm_size_agrees(monkeypatch: pytest.MonkeyPatch, macs: int, M: int) -> None:
    monkeypatch.setattr(numpy_conv, "SERIAL_MACS", macs)
    monkeypatch.setattr(numpy_conv, "cores", lambda: 2)
    assert_close(*arrays((3, 2, 13, 9, M, 3, 4)))


def test_every_output_is_in_exactly_one_tile() -> None:
    for N, P, R, row_bytes, max_rows in [(1, 1, 1, 4, 1), (10_000, 80, 7, 2240, 80), (30, 34, 7, 3808, 34),
                                         (3, 200, 7, 400_000, 200), (5, 50, 3, 10_000, 11)]:  # fmt: skip
        for serial in (True, False):
            tiling = numpy_conv._tiling(N, P, R, row_bytes, max_rows, serial)
            hits = np.zeros((N, P), int)
            for thread in range(tiling.threads):
                for tile in tiling.tiles(thread):
                    assert tile.last - tile.first <= max_rows
                    hits[tile.images, tile.first : tile.last] += 1
            assert (hits == 1).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_adjoint_identities(shape: tuple[int, ...]) -> None:
    """y is linear in x and in w, so <dy, y> = <dw, w> = <dx, x>."""
    x, w, dy = arrays(shape)
    got = computed(x, w, dy)
    inner = np.vdot(dy, got["y"])
    scale = np.linalg.norm(dy) * np.linalg.norm(got["y"])
    assert abs(np.vdot(got["dw"], w) - inner) < 1e-12 * scale
    assert abs(np.vdot(got["dx"], x) - inner) < 1e-12 * scale


def test_gradients_agree_with_finite_differences() -> None:
    x, w, dy = arrays((2, 2, 6, 5, 3, 3, 2))
    got = computed(x, w, dy)

    def loss() -> float:
        return float((np.sin(conv2d_forward(x, w)) * dy).sum())

    chained = dy * np.cos(got["y"])
    gradients = ((x, conv2d_backward_input(w, chained, 6, 5)), (w, conv2d_backward_weight(x, chained, 3, 2)))
    step = 1e-6
    for array, gradient in gradients:
        for index in [(0, 0, 0, 0), (1, 1, 2, 1), (-1, -1, -1, -1)]:
            value = array[index]
            array[index] = value + step
            above = loss()
            array[index] = value - step
            below = loss()
            array[index] = value
            assert gradient[index] == pytest.approx((above - below) / (2 * step), abs=1e-7)


def test_inputs_of_any_layout_are_read_and_not_written() -> None:
    x, w, dy = arrays((5, 3, 9, 8, 4, 3, 2))
    x, w, dy = (
        np.asfortranarray(x),
        w[:, :, ::-1, ::-1],
        dy.transpose(1, 0, 3, 2).copy().transpose(1, 0, 3, 2),
    )
    for array in (x, w, dy):
        array.flags.writeable = False
    assert_close(x, w, dy)


def test_nan_stays_in_the_windows_that_see_it() -> None:
    x, w, _ = arrays((4, 2, 10, 9, 3, 3, 2), np.float32)
    x[2, 1, 5, 4] = np.nan
    bad = np.isnan(conv2d_forward(x, w))
    wanted = np.zeros_like(bad)
    wanted[2, :, 3:6, 3:5] = True
    np.testing.assert_array_equal(bad, wanted)


def test_results_are_the_same_in_each_run() -> None:
    x, w, dy = arrays((100, 4, 40, 40, 16, 7, 7), np.float32)
    first, second = computed(x, w, dy), computed(x, w, dy)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param((300, 4, 40, 40, 16, 7, 7), id="many-images"),  # unrolled in full: 272 MB
        pytest.param((1, 16, 240, 160, 2, 7, 7), id="large-image"),  # 16 MB when unrolled along S alone
        pytest.param((300, 4, 7, 7, 256, 7, 7), id="filter-as-large-as-image"),  # dw image by image: 60 MB
    ],
)
def test_temporary_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    """Slices need a few MB per thread, whatever the batch size."""
    monkeypatch.setattr(numpy_conv, "cores", lambda: 2)
    x, w, dy = arrays(shape, np.float32)
    calls = {
        "y": lambda: conv2d_forward(x, w),
        "dw": lambda: conv2d_backward_weight(x, dy, *w.shape[2:]),
        "dx": lambda: conv2d_backward_input(w, dy, *x.shape[2:]),
    }
    for name, call in calls.items():
        tracemalloc.start()
        try:
            result = call()
            peak = tracemalloc.get_traced_memory()[1] - result.nbytes
        finally:
            tracemalloc.stop()
        assert peak < 10 << 20, f"{name}: {peak / 2**20:.1f} MB beside the result"
