"""The host code: splitting of batches, arguments, timing, and the messages for wrong plans."""

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from clocked import Clocked
from convolutions import planned

import mini_dnn
from mini_dnn import conv2d, open_device
from mini_dnn.device import Device
from mini_dnn.errors import CompileError, DeviceError, LaunchError, ShapeError, UsageError, VariantError
from mini_dnn.ops.compare import compare_all
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.ops.conv2d_padded import PaddedShape
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.ops.resnet_shape import ResNetShape
from mini_dnn.running.parts import largest_part
from mini_dnn.running.runner import Result, run
from mini_dnn.running.timing import Timing
from mini_dnn.variant import Array, Launch, Planned, Variant, find

COPY = """
extern "C" __global__ void copy(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
"""


def copies(folder: Path, *args: Any, kernel: str = "copy", source: str = COPY, **more: Any) -> Variant:
    """A variant whose kernel copies x to y, which is the convolution with a 1 x 1 filter of 1."""
    (folder / "kernel.cu").write_text(source)

    def plan(s: ConvShape) -> Sequence[Launch]:
        n = s.N * s.H * s.W
        return [Launch(kernel, (-(-n // 64),), (64,), args or ("x", "y", n))]

    return Variant(op="conv2d", idea="a copy", plan=plan, name="copies", folder=folder, **more)


X = np.arange(2 * 5 * 7, dtype=np.float32).reshape(2, 1, 5, 7)
ONE = np.ones((1, 1, 1, 1), np.float32)


def convolve(x: np.ndarray, w: np.ndarray, variant: Variant, device: Device | None, **more: Any) -> Result:
    return run(variant, ConvShape.of(x, w), {"x": x, "w": w}, device, **more)


def test_result_of_a_plan(tmp_path: Path, device: Device) -> None:
    result = convolve(X, ONE, copies(tmp_path), device, timing=Timing(repeats=3, max_repeats=3))
    assert np.array_equal(result.y, X)
    assert result.layer_ms > 0
    assert result.compile_ms > 0
    if device.has_clock:
        assert len(result.op_samples_ms) == 3
        assert 0 < result.op_ms < result.layer_ms
    else:
        assert result.op_ms is None


def test_unwritten_output_is_nan(tmp_path: Path, device: Device) -> None:
    variant = copies(tmp_path, "x", "y", X.size - 1)
    y = convolve(X, ONE, variant, device).y
    assert np.isnan(y.flat[-1])
    assert not np.isnan(y.flat[:-1]).any()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("x", "out", 3), "names a buffer 'out'; expected one of x, w, y"),
        (("x", "y", 2**31), "passes 2147483648, which does not fit in C's int; pass np.int64"),
    ],
)
def test_arguments_that_cannot_be(tmp_path: Path, emulator: Device, args: tuple, message: str) -> None:
    with pytest.raises(VariantError, match=re.escape(message)):
        convolve(X, ONE, copies(tmp_path, *args), emulator)


def test_kernel_that_is_not_there(tmp_path: Path, device: Device) -> None:
    with pytest.raises(LaunchError, match="no kernel 'cpoy'"):
        convolve(X, ONE, copies(tmp_path, kernel="cpoy"), device)


def test_compile_error_names_file_and_line(tmp_path: Path, device: Device) -> None:
    source = COPY.replace("y[i] = x[i];", "y[i] = z[i];")
    with pytest.raises(CompileError, match=r"(?s)kernel\.cu.*4.*z.*y\[i\] = z\[i\]"):
        convolve(X, ONE, copies(tmp_path, source=source), device)


def test_refused_shape(tmp_path: Path, emulator: Device) -> None:
    variant = copies(tmp_path, refuses=lambda s: "R must be odd" if s.R % 2 == 0 else "")
    with pytest.raises(VariantError, match=r"copies does not support \(2, 1, 5, 7\).*: R must be odd"):
        convolve(X, np.ones((1, 1, 2, 1), np.float32), variant, emulator)


def test_a_batch_that_a_variant_refuses_is_split(tmp_path: Path, device: Device) -> None:
    """Like one that does not fit in memory. A limit of each image names the whole problem, as above."""
    x = np.concatenate([X, X + 100, X + 200])[:5]
    variant = copies(tmp_path, refuses=lambda s: "at most 2 images" if s.N > 2 else "")
    result = convolve(x, ONE, variant, device)
    assert result.steps == 3
    assert np.array_equal(result.y, x)


def plans(variant: Variant, problem: Any) -> Callable[[int], Planned]:
    return lambda n: planned(variant, problem.with_batch(n))


def test_largest_part_fits_memory_exactly() -> None:
    shape = ConvShape(1000, 1, 10, 10, 2, 3, 3)
    per_image = 4 * (100 + 2 * 64)
    filters = 4 * 18
    variant = replace(find("m1"), scratch=lambda s: {})
    for images in (1, 7, 999, 1000):
        assert largest_part(plans(variant, shape), shape, filters + images * per_image) == images
        assert largest_part(plans(variant, shape), shape, filters + (images + 1) * per_image - 1) == images
    assert largest_part(plans(variant, shape), shape, 10**12, most=30) == 30
    with pytest.raises(DeviceError, match=r"needs 0\.0 MB for one entry of the batch"):
        largest_part(plans(variant, shape), shape, filters + per_image - 1)


@pytest.mark.parametrize(("dtype", "itemsize"), [("uint8", 1), ("float16", 2), ("int64", 8)])
def test_largest_part_counts_bytes(dtype: str, itemsize: int) -> None:
    """The bytes of scratch buffers count, and those of a batch of images in bytes."""
    shape = ConvShape(1000, 1, 2, 2, 1, 1, 1)
    launch = Launch("k", (1,), (1,), ())
    one = Variant("conv2d", "", lambda s: [launch], scratch=lambda s: {"a": Array((s.N, 9), dtype)})
    per_image = 4 * (4 + 4) + 9 * itemsize
    for images in (1, 7, 999):
        assert largest_part(plans(one, shape), shape, 4 + images * per_image) == images
        assert largest_part(plans(one, shape), shape, 4 + (images + 1) * per_image - 1) == images
    batch = LenetBatch(1000, is_bytes=True)
    network = Variant("lenet", "", lambda s: [launch])
    weights = sum(array.nbytes for array in batch.named("weight").values())
    for images in (1, 7, 999):
        assert largest_part(plans(network, batch), batch, weights + images * (86 * 86 + 40)) == images
        free = weights + (images + 1) * (86 * 86 + 40) - 1
        assert largest_part(plans(network, batch), batch, free) == images


@pytest.mark.parametrize(
    ("name", "problem", "most"),
    [
        ("conv2d_padded/v1", PaddedShape(2**20, 8, 64, 64, 8, 3, padding=1), 2**19 - 1),
        (
            "conv2d_padded/v2",
            PaddedShape(2**20, 8, 64, 64, 8, 3, padding=1, dtype="fp16", layout="nhwc"),
            2**19 - 1,
        ),
        (
            "networks/resnet18/v4",
            ResNetShape(2**17, 224, 3, "small", "64-128-256-512", "2-2-2-2", 10, "fp16"),
            42_799,
        ),
    ],
)
def test_largest_part_keeps_within_the_limits_of_a_variant(name: str, problem: Any, most: int) -> None:
    """Pixels that are counted in ints, by the variant itself or by one that it calls."""
    assert largest_part(plans(find(name), problem), problem, 10**15) == most


def test_largest_part_keeps_within_the_grid() -> None:
    shape = ConvShape(100_000, 1, 2, 2, 1, 1, 1)  # m1 has one image per block along z, so at most 65,535
    assert largest_part(plans(find("m1"), shape), shape, 10**12) == 65_535


def test_host_variant_takes_parts_and_reports() -> None:
    seen: list[int] = []
    result = convolve(np.repeat(X, 3, axis=0), ONE, find("cpu"), None, most=4, progress=seen.append)
    assert np.array_equal(result.y, np.repeat(X, 3, axis=0))
    assert seen == [3, 6]
    assert result.op_ms == result.layer_ms > 0


def test_api_has_a_function_for_each_operation(tmp_path: Path) -> None:
    y = mini_dnn.conv2d(X, ONE, copies(tmp_path), "emulator")
    assert np.array_equal(y, X)
    assert np.array_equal(mini_dnn.conv2d(X, ONE, device="emulator", impl="cpu"), X)
    pooled = mini_dnn.conv2d_relu_pool(X, ONE, pool=2, device="emulator")
    assert pooled.shape == (2, 1, 3, 4)
    for name in ("operation", "compare", "nothing"):  # not every file in mini_dnn/ops is an operation
        assert not hasattr(mini_dnn, name)


def test_api_refuses_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match="float64"):
        conv2d(X.astype(np.float64), ONE, "cpu")
    with pytest.raises(UsageError, match="no device 'gpu'; expected one of auto, cuda, emulator"):
        conv2d(X, ONE, "m1", device="gpu")


def test_auto_says_why_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise DeviceError("PyCUDA cannot be imported")

    monkeypatch.setattr("mini_dnn.device.cuda.load_pycuda", missing)
    assert "no GPU: PyCUDA cannot be imported" in open_device("auto").description
    with pytest.raises(DeviceError, match="PyCUDA"):
        open_device("cuda")


def test_gpu_needs_the_bindings_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.device.cuda.load_pycuda", SimpleNamespace)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(DeviceError, match=r"cuda-bindings cannot be imported .* pip install -e '\.\[gpu\]'"):
        open_device("cuda")


def test_gpu_errors_become_device_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the driver finds no device, no traceback of PyCUDA is shown."""

    class Error(Exception):
        pass

    class OutOfMemory(Error):
        pass

    def init() -> None:
        raise Error("cuInit failed: no CUDA-capable device is detected")

    driver = SimpleNamespace(init=init, Error=Error, MemoryError=OutOfMemory)
    monkeypatch.setattr("mini_dnn.device.cuda.load_pycuda", lambda: driver)
    monkeypatch.setattr("mini_dnn.device.cuda.load_driver", lambda: None)
    with pytest.raises(DeviceError, match="the GPU cannot be opened: cuInit failed: no CUDA-capable device"):
        open_device("cuda")


@pytest.mark.parametrize(("name", "graphs"), [("networks/resnet18/v2_layers", 1), ("softmax/v0_naive", 0)])
def test_many_launches_are_timed_as_a_graph(name: str, graphs: int) -> None:
    """Python needs ten microseconds or more per launch, during which a GPU would wait."""
    variant = find(name)
    text = "1,8,1,small,4-4-4-4,1-1-1-1,3,fp32" if graphs else "3,5"
    problem = variant.operation.parse(text)
    arrays = variant.operation.inputs(problem, seed=0)
    with closing(Clocked()) as device:
        found = run(variant, problem, arrays, device, Timing(warm_up=0, repeats=1, max_repeats=1))
        assert device.graphs == graphs
    launches = len([step for step in variant.planned(problem, 227 * 1024).steps if isinstance(step, Launch)])
    assert found.op_samples_ms == (launches,), "each launch takes a millisecond on this clock"
    expected = variant.operation.answer(problem, arrays)
    bound = variant.operation.bound(problem, arrays, variant.precision)
    assert compare_all(found.outputs, expected, bound).ok
