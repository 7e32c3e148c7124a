"""The kernels on quads: bulk copies and older forms, bands of all kinds, and repeated runs."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from threading import Barrier

import numpy as np
import pytest
from convolutions import compare_conv2d, kernels, planned
from emulator_kernels import Kernels
from sampling import some_of
from waiting import PATIENCE_S

from mini_dnn import conv2d, quads
from mini_dnn.device import Device, open_device
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.ops.conv2d import LAYERS, ConvShape
from mini_dnn.running.execute import Execution
from mini_dnn.variant import Variant, find

CUSTOM, SPLIT = NAMES = ("layers/custom", "m3/fp32_split")
# The second value: whether bulk copies are disabled
KINDS = [(CUSTOM, False), (CUSTOM, True), (SPLIT, True), (SPLIT, False)]
# (N, C, H, W), (M, R, S): rows in units of 16 bytes or not, one band or several, several tiles of channels
SHAPES = {
    "layer 1, last band short": ((2, 1, 40, 86), (4, 7, 7)),
    "layer 2, odd rows": ((3, 4, 37, 40), (16, 7, 7)),
    "layer 2, odd columns": ((2, 4, 40, 37), (16, 7, 7)),
    "output not in units": ((2, 1, 20, 24), (3, 3, 4)),
    "input not in units": ((3, 1, 21, 23), (5, 2, 4)),
    "two channels": ((3, 2, 36, 32), (20, 3, 5)),
    "three channels": ((2, 3, 24, 28), (40, 5, 5)),
    "one row of output": ((5, 1, 7, 64), (4, 7, 7)),
    "more than one tile of columns a warp": ((1, 1, 10, 300), (4, 3, 3)),
    "not for the tensor cores": ((2, 5, 9, 8), (3, 3, 3)),
}


def random(rng: np.random.Generator, shape: ConvShape) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal(shape.x, np.float32), rng.standard_normal(shape.w, np.float32)


@pytest.mark.parametrize(("case", "kind"), some_of(SHAPES, KINDS, one_of=4))
def test_against_float64(case: str, kind: tuple[str, bool], device: Device, rng: np.random.Generator) -> None:
    (N, C, H, W), (M, R, S) = SHAPES[case]
    name, old = kind
    x, w = random(rng, ConvShape(N, C, H, W, M, R, S))
    variant = find(name)
    if old:
        variant = replace(variant, defines=lambda s: {**find(name).defines_for(s), "PTX_NO_BULK": 1})
    result = compare_conv2d(x, w, conv2d(x, w, variant, device), variant.precision)
    assert result.ok, str(result)


def cut_as(name: str, bands: int, **sizes: int | bool) -> Variant:
    """The variant with ``bands`` bands per image, and with other sizes than its own."""

    def tiling(s: ConvShape) -> quads.Tiling:
        return quads.cut(s, bands, warps=3, blocks=1, **sizes)  # type: ignore[arg-type]

    return replace(
        find(name),
        plan=lambda s: quads.plan(s, tiling(s)),
        scratch=lambda s: quads.scratch(s, tiling(s)),
        defines=lambda s: quads.defines(s, tiling(s)),
    )


SIDES = [(17, 19, 3, 3), (14, 21, 4, 2), (19, 16, 7, 5), (9, 15, 2, 6)]  # H, W, R, S


@pytest.mark.parametrize(("sides", "C", "name"), some_of(SIDES, range(1, 5), NAMES, one_of=4))
def test_odd_sizes(
    sides: tuple[int, ...], C: int, name: str, device: Device, rng: np.random.Generator
) -> None:
    """Rows and columns that no quad divides, and output channels that no product divides."""
    H, W, R, S = sides
    x, w = random(rng, ConvShape(3, C, H, W, 7, R, S))
    variant = find(name)
    result = compare_conv2d(x, w, conv2d(x, w, variant, device), variant.precision)
    assert result.ok, str(result)


@pytest.mark.parametrize(("C", "name"), some_of((1, 2, 4), NAMES, one_of=2))
def test_whole_images_or_bands(C: int, name: str, device: Device, rng: np.random.Generator) -> None:
    """Each output is the same sum in the same order, however an image is divided and buffered."""
    shape, split = ConvShape(5, C, 27, 24, 4 * C, 4, 5), name == SPLIT
    x, w = random(rng, shape)
    assert quads.cut(shape, 1, 3, 1).WHOLE
    whole = conv2d(x, w, cut_as(name, 1, split=split), device)
    precision = find(name).precision
    assert compare_conv2d(x, w, whole, precision).ok
    for bands, inputs, outputs, max_rows in ((1, 1, 1, 3), (2, 1, 2, 10), (3, 2, 1, 2), (7, 3, 2, 10)):
        t = {"inputs": inputs, "outputs": outputs, "max_rows": max_rows, "split": split}
        assert bool(quads.cut(shape, bands, 3, 1, **t).WHOLE) == (bands == 1)  # type: ignore[arg-type]
        np.testing.assert_array_equal(conv2d(x, w, cut_as(name, bands, **t), device), whole)


@pytest.mark.parametrize(("C", "sides"), some_of(range(1, 5), [(1, 1), (3, 4), (7, 7), (6, 9)], one_of=2))
def test_sizes_are_the_kernels(C: int, sides: tuple[int, int], quick_emulator: EmulatorDevice) -> None:
    """`Quads` and ``quads::Filter`` compute the same sizes for a filter."""
    R, S = sides
    found = np.zeros(5, np.int32)
    Kernels(quick_emulator, "quads.cu", C=C, M=20, R=R, S=S)("sizes", (1,), (1,), found)
    q = quads.Quads.of(ConvShape(1, C, 20, 20, 20, R, S))
    assert found.tolist() == [q.X, q.Y, q.tile_m, q.filter_rows, q.steps]


def test_jobs_are_the_kernels(quick_emulator: EmulatorDevice) -> None:
    """`jobs` and ``quads::Jobs`` count the same, and each column of each strip belongs to exactly one job."""
    kernels = Kernels(quick_emulator, "quads.cu", C=1, M=1, R=1, S=1)
    for strips in (1, 2, 3, 4, 5, 9):
        for columns in (1, 2, 3, 4, 5, 7, 8, 9, 12, 34, 40):
            count, visits = np.zeros(1, np.int32), np.zeros((strips, columns), np.int32)
            kernels("cover", (1,), (1,), count, visits, np.int32(strips), np.int32(columns))
            assert (visits == 1).all(), (strips, columns)
            assert count[0] == quads.jobs(columns, strips), (strips, columns)


@pytest.mark.parametrize("name", NAMES)
def test_the_courses_layers_take_the_tensor_cores(name: str) -> None:
    for layer in LAYERS.values():
        assert kernels(find(name), layer) == ["prepare" if name == SPLIT else "reset", "conv"]
    assert kernels(find(name), ConvShape(1, 5, 9, 9, 2, 3, 3)) == ["conv_direct"]


@pytest.mark.parametrize("name", NAMES)
def test_a_launch_that_was_killed_leaves_nothing(name: str, device: Device, rng: np.random.Generator) -> None:
    """Whatever the counters contain, the next run is right, and so is a second run directly after it."""
    shape = ConvShape(7, 1, 23, 30, 4, 3, 3)
    x, w = random(rng, shape)
    variant = find(name)
    module = device.compile(variant.source, variant.defines_for(shape))
    execution = Execution(planned(variant, shape), module, device)
    try:
        execution.fill()  # the counters too
        device.copy_in(execution.buffers["x"], x)
        device.copy_in(execution.buffers["w"], w)
        for _ in range(2):
            device.fill(execution.buffers["y"])
            execution.kernels()
            y = np.empty(shape.y, np.float32)
            device.copy_out(execution.buffers["y"], y)
            assert compare_conv2d(x, w, y, variant.precision).ok
    finally:
        execution.free()


@pytest.mark.parametrize("name", NAMES)
def test_two_at_once(name: str, device: Device, rng: np.random.Generator) -> None:
    """Two convolutions on two streams have separate counters. On a GPU their launches overlap."""
    shape = ConvShape(40, 1, 23, 30, 4, 3, 3)
    variant = find(name)
    steps = planned(variant, shape).steps
    on_stream_1 = replace(variant, plan=lambda s: [replace(step, stream=1) for step in steps])
    module = device.compile(variant.source, variant.defines_for(shape))
    runs = [Execution(planned(v, shape), module, device) for v in (variant, on_stream_1)]
    try:
        inputs = [random(rng, shape) for _ in runs]
        for execution, (x, w) in zip(runs, inputs, strict=True):
            execution.fill()
            device.copy_in(execution.buffers["x"], x)
            device.copy_in(execution.buffers["w"], w)
        for _ in range(3):
            for execution in runs:
                execution.kernels()
        for execution, (x, w) in zip(runs, inputs, strict=True):
            y = np.empty(shape.y, np.float32)
            device.copy_out(execution.buffers["y"], y)
            assert compare_conv2d(x, w, y, variant.precision).ok
    finally:
        for execution in runs:
            execution.free()


def opened(like: Device) -> Device:
    """Open another device of the same kind."""
    return open_device(like.name) if like.has_clock else EmulatorDevice(quick=True)


@pytest.mark.parametrize("name", NAMES)
def test_from_two_threads(name: str, device: Device) -> None:
    """Each thread opens the device itself, and launches at the same time as the other."""
    together = Barrier(2)
    layers = [layer.with_batch(30) for layer in LAYERS.values()]
    for layer in layers:  # compile each kernel once, because both threads would compile it
        device.compile(find(name).source, planned(find(name), layer).defines)

    def work(seed: int) -> list[bool]:
        rng = np.random.default_rng(seed)
        inputs = [random(rng, layer) for layer in layers]
        with closing(opened(device)) as own:
            found = []
            for x, w in inputs * 2:
                together.wait(PATIENCE_S)
                found.append(conv2d(x, w, find(name), own))
        return [
            compare_conv2d(x, w, y, find(name).precision).ok
            for (x, w), y in zip(inputs * 2, found, strict=True)
        ]

    with ThreadPoolExecutor(2) as pool:
        assert all(all(right) for right in pool.map(work, range(2)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("H", [20, 23])
def test_nan_stays_in_its_image(name: str, H: int, device: Device, rng: np.random.Generator) -> None:
    """Buffers are reused, and zero weights are multiplied with the data behind a band."""
    shape = ConvShape(60, 1, H, 20, 4, 5, 5)
    x, w = random(rng, shape)
    x[::2] = np.nan
    variant = find(name)
    y = conv2d(x, w, variant, device)
    result = compare_conv2d(x[1::2], w, y[1::2], variant.precision)
    assert result.ok, str(result)
    assert np.isnan(y[::2]).all()


def test_split_is_as_good_as_fp32(device: Device, rng: np.random.Generator) -> None:
    """The error is like that of an fp32 sum for values of all sizes, and far below that of halves."""
    shape = ConvShape(4, 4, 40, 40, 16, 7, 7)
    x, w = random(rng, shape)
    scale = 10.0 ** rng.uniform(-3, 3, (shape.N, 1, 1, 1)).astype(np.float32)
    x *= scale
    plain = conv2d(x, w, "m1", device)
    exact = sum(
        np.einsum("nchw,mc->nmhw", x[:, :, r : r + shape.P, s : s + shape.Q].astype(float), w[:, :, r, s])
        for r in range(shape.R)
        for s in range(shape.S)
    )
    y, halves = conv2d(x, w, "m3/fp32_split", device), conv2d(x, w, "layers/custom", device)
    for n in range(shape.N):
        error, plain_error, halves_error = (np.linalg.norm(v[n] - exact[n]) for v in (y, plain, halves))
        assert error <= 2 * plain_error
        assert halves_error > 100 * error
