"""Arrays of other libraries that are refused, and the messages. For the stand-ins see `lent_arrays`."""

from typing import Any

import numpy as np
import pytest
from gpu_arrays import drawn
from lent_arrays import CupyArray, Interfaced, Libraries, Packed, Tensor, values
from lent_arrays import libraries as libraries

from mini_dnn import attention, conv2d, conv2d_relu_pool, gemm, lenet, softmax
from mini_dnn.device import Device
from mini_dnn.errors import DeviceError, MiniDnnError, ShapeError, UsageError, VariantError

KINDS = [CupyArray, Tensor, Interfaced, Packed]
WRITABLE = [CupyArray, Tensor, Interfaced]

pytestmark = pytest.mark.usefixtures("libraries")


A, B = drawn(2, 17, 9), drawn(2, 9, 20, seed=1)
C = A @ B


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_two_places_are_refused(kind: Any) -> None:
    message = r"numpy.ndarray in host memory.*: the arrays of one call must be of one library"
    for call in (
        lambda: gemm(kind(A), B),
        lambda: gemm(A, kind(B)),
        lambda: gemm(kind(A), kind(B), c0=C),
        lambda: gemm(A, B, c0=kind(C)),
        lambda: gemm(A, B, out=kind(C.copy())),
        lambda: gemm(kind(A), kind(B), out=C.copy()),
    ):
        with pytest.raises(ShapeError, match=message):
            call()


def test_arrays_of_two_libraries_are_refused() -> None:
    for a, b in ((CupyArray, Tensor), (Tensor, CupyArray), (Tensor, Interfaced)):
        with pytest.raises(ShapeError, match="the arrays of one call must be of one library"):
            gemm(a(A), b(B))
    with pytest.raises(ShapeError, match=r"b is lent_arrays\.Tensor on cpu"):
        gemm(Tensor(A), Tensor(B, -1))
    with pytest.raises(ShapeError, match=r"a is lent_arrays\.Tensor on cpu"):
        gemm(Tensor(A, -1), Tensor(B))


@pytest.mark.parametrize("kind", [CupyArray, Tensor, Packed])
def test_arrays_of_two_gpus_are_refused(kind: Any) -> None:
    with pytest.raises(ShapeError, match="the arrays of one call must be on one GPU"):
        gemm(kind(A, 0), kind(B, 1))


@pytest.mark.parametrize("kind", [CupyArray, Tensor, Interfaced])
def test_what_is_not_contiguous_is_refused(kind: Any) -> None:
    with pytest.raises(ShapeError, match=r"b \(2, 9, 20\) is not contiguous in C order, and arrays on a GPU"):
        gemm(kind(A), kind(np.asfortranarray(B)))
    cures = {CupyArray: r"cupy.ascontiguousarray\(a\)", Tensor: r"a.contiguous\(\)", Interfaced: "a copy"}
    with pytest.raises(ShapeError, match=f"pass {cures[kind]}"):
        gemm(kind(drawn(4, 17, 9)[::2]), kind(B))
    with pytest.raises(ShapeError, match=r"out .* is not contiguous"):
        gemm(kind(A), kind(B), out=kind(np.asfortranarray(C)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_would_be_converted_is_refused(kind: Any) -> None:
    half = B.astype("f2")
    with pytest.raises(ShapeError, match=r"b must be float32 \(2, 9, 20\) for .*; found a \(2, 17"):
        gemm(kind(A), kind(half))
    if kind in (CupyArray, Interfaced):
        for dtype in (">f4", ">f2"):  # the other byte order
            with pytest.raises(ShapeError, match=f"a must be float.*; found a .*{dtype}"):
                gemm(kind(A.astype(dtype)), kind(B.astype(dtype)))
        with pytest.raises(ShapeError, match="out is '>f4'; expected one of fp32"):
            gemm(kind(A), kind(B), out=kind(C.astype(">f4")))
    with pytest.raises(ShapeError, match="float64, which float32 cannot hold exactly"):
        conv2d(kind(drawn(1, 1, 5, 5, dtype="float64")), kind(drawn(1, 1, 2, 2)))


@pytest.mark.parametrize("kind", WRITABLE)
def test_results_that_do_not_fit_are_refused(kind: Any) -> None:
    x = drawn(3, 5)
    for out in (np.empty((5, 3), np.float32), np.empty((3, 5), np.float16)):
        with pytest.raises(ShapeError, match=r"out= is an array .*; the results of .* \(3, 5\) float32"):
            softmax(kind(x), out=kind(out))
    with pytest.raises(ShapeError, match=r"out= is an array .*, an array"):
        softmax(kind(x), out=(kind(x.copy()), kind(x.copy())))


def test_what_nobody_may_write_to_is_refused() -> None:
    out = Interfaced(np.empty(C.shape, np.float32))
    out.readonly = True
    with pytest.raises(ShapeError, match=r"out is lent_arrays\.Interfaced, which is read-only"):
        gemm(Interfaced(A), Interfaced(B), out=out)
    with pytest.raises(ShapeError, match=r"out is lent_arrays\.Packed, which is read-only"):
        gemm(Packed(A), Packed(B), out=Packed(C.copy()))


def test_places_that_kernels_cannot_load_from_are_refused() -> None:
    memory = np.empty(A.size + 1, np.float32)
    a = memory[1:].reshape(A.shape) if memory.ctypes.data % 16 == 0 else memory[:-1].reshape(A.shape)
    with pytest.raises(ShapeError, match=r"a begins \d+ bytes after a multiple of 16, .* pass a copy of it"):
        gemm(CupyArray(a), CupyArray(B))


def test_gradients_are_refused(libraries: Libraries) -> None:
    a = Tensor(A)
    a.requires_grad = True
    assert np.allclose(gemm(a, Tensor(B)).values, C, atol=1e-4)
    libraries.tracks_gradients = True
    assert np.allclose(gemm(Tensor(A), Tensor(B)).values, C, atol=1e-4)
    with pytest.raises(ShapeError, match=r"a requires a gradient, .* pass a\.detach\(\), or call within"):
        gemm(a, Tensor(B))


def test_devices_that_are_not_theirs_are_refused(quick_emulator: Device) -> None:
    for device in ("emulator", quick_emulator):
        with pytest.raises(UsageError, match="the arrays are on a GPU, and device is emulator"):
            gemm(CupyArray(A), CupyArray(B), device=device)
    with pytest.raises(UsageError, match="no device 'gpu'"):
        gemm(CupyArray(A), CupyArray(B), device="gpu")


def test_fields_that_are_no_plain_values_are_refused() -> None:
    for alpha in (np.ones(1), CupyArray(np.ones(1)), [1.0]):
        with pytest.raises(ShapeError, match=r"alpha is .*; expected a Python number or string"):
            gemm(CupyArray(A), CupyArray(B), alpha=alpha)
    with pytest.raises(ShapeError, match=r"alpha is numpy\.ndarray in host memory; expected a number$"):
        gemm(A, B, alpha=np.ones((3, 3)), device="emulator")


def test_variants_that_cannot_are_refused() -> None:
    x, w = CupyArray(drawn(1, 1, 5, 5)), CupyArray(drawn(1, 1, 2, 2))
    with pytest.raises(VariantError, match="m1/cpu runs on the host, but the arrays are on a GPU"):
        conv2d(x, w, impl="cpu")
    with pytest.raises(VariantError, match="layers/fused computes conv2d_relu_pool"):
        conv2d(x, w, impl="layers/fused")
    with pytest.raises(DeviceError, match="needs a GPU"):
        conv2d(x, w, impl="m3/cublas")


HOST: dict[str, Any] = {"device": "emulator"}
ARGUMENTS: list[tuple[Any, str]] = [
    (lambda kind, **more: gemm(kind(A), **more), r"gemm takes a, b; b is missing"),
    (lambda kind, **more: attention(**more), r"attention takes q, \*kv; q is missing"),
    (
        lambda kind, **more: gemm(kind(A), kind(B), lda=8, **more),
        r"no argument 'lda'; it takes a, b as positional arguments, and",
    ),
    (lambda kind, **more: gemm(kind(A), kind(B), alpa=2, **more), r"did you mean 'alpha'\?\)"),
    (lambda kind, **more: gemm(kind(A), kind(B), alpha="2", **more), r"alpha is '2'; expected a number"),
    (lambda kind, **more: gemm(kind(A), kind(B), alpha=None, **more), r"alpha is None; expected a number"),
    (
        lambda kind, **more: gemm(kind(A), kind(B), layout=1, **more),
        r"layout is 1; expected a word in quotes",
    ),
    (
        lambda kind, **more: gemm(kind(A), kind(B), impl=7, **more),
        r"impl is int; expected the name of a variant",
    ),
    (
        lambda kind, **more: gemm(kind(A), kind(B), kind(C), **more),
        r"impl is .*; .* Optional arrays are keyword",
    ),
    (lambda kind, **more: gemm(kind(A), kind(B), "m1", "cuda", 1), r"as positional arguments, .*; found 5"),
    (lambda kind, **more: gemm(kind(A), kind(B), a=1, **more), r"gemm got a twice"),
    (lambda kind, **more: conv2d_relu_pool(kind(X), kind(W), **more), r"needs pool=, an integer"),
    (lambda kind, **more: lenet(kind(drawn(1, 1, 50, 86)), **more), r"images are \(1, 1, 50, 86\) float32"),
    (
        lambda kind, **more: conv2d_relu_pool(kind(X), kind(W), pool=2.0, **more),
        r"pool is 2.0; expected an int",
    ),
    (
        lambda kind, **more: attention(kind(Q), kind(Q), kind(Q), causal="no", **more),
        r"causal is 'no'; expected T",
    ),
    (
        lambda kind, **more: attention(kind(Q), kind(Q), kind(Q), causal=2, **more),
        r"causal is 2; expected True",
    ),
    (
        lambda kind, **more: attention(kind(Q), kind(Q), kind(Q), out="fp32", **more),
        r"results of one type, so out",
    ),
]
X, W, Q = drawn(1, 1, 5, 5), drawn(1, 1, 2, 2), drawn(1, 2, 3, 32)


@pytest.mark.parametrize(("call", "message"), ARGUMENTS)
def test_arguments_are_refused_wherever_the_arrays_lie(call: Any, message: str) -> None:
    with pytest.raises((ShapeError, UsageError), match=message):
        call(CupyArray)
    with pytest.raises((ShapeError, UsageError), match=message):
        call(np.asarray, **HOST)


def test_what_is_no_array_is_refused() -> None:
    for kind in (CupyArray, Tensor):
        with pytest.raises(ShapeError, match=r"b is int; expected an array$"):
            gemm(kind(A), 3)
        with pytest.raises(
            ShapeError, match=r'out is the type numpy.float16; expected an array, or .* "fp16"'
        ):
            gemm(kind(A), kind(B), out=np.float16)


def test_tensors_on_other_devices_are_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"on the device 'meta'; expected an NVIDIA GPU or host memory: pass"
    ):
        gemm(Tensor(A, -2), Tensor(B, -2))


def test_views_that_are_negative_by_a_bit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "is_neg", lambda self: True)
    with pytest.raises(ShapeError, match=r"pass a\.resolve_neg\(\)\.contiguous\(\)"):
        gemm(Tensor(A), Tensor(B))


def test_arrays_may_all_be_given_by_name() -> None:
    assert np.allclose(values(gemm(a=CupyArray(A), b=CupyArray(B))), C, atol=1e-5)
    assert np.allclose(gemm(b=B, a=A, device="emulator", out=None), C, atol=1e-5)


def test_results_in_host_memory_that_cannot_be_written_are_refused() -> None:
    out = np.empty(C.shape, np.float32)
    out.flags.writeable = False
    with pytest.raises(ShapeError, match="out= is read-only; pass a writable array"):
        gemm(A, B, out=out, device="emulator")
    with pytest.raises(ShapeError, match=r'out= is the type numpy.float16; .* a type, such as "fp16"'):
        gemm(A, B, out=np.float16, device="emulator")


def test_a_call_that_is_captured_has_to_be_ready(
    quick_emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = quick_emulator.foreign_stream

    def foreign_stream(handle: int) -> Any:
        stream = real(handle)
        monkeypatch.setattr(stream, "is_captured", lambda: True)
        return stream

    monkeypatch.setattr(quick_emulator, "foreign_stream", foreign_stream)
    with pytest.raises(DeviceError, match="call it once on the stream, then capture it"):
        gemm(CupyArray(A), CupyArray(B))


def test_results_that_a_library_cannot_hold_are_refused() -> None:
    with pytest.raises(ShapeError, match="CuPy has no arrays of bfloat16 for the result"):
        gemm(CupyArray(A), CupyArray(B), out="bf16")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.ma.masked_array(np.ones((2, 3), np.float32), True)}, "x is a masked array.*x.filled"),
        ({"device": 3}, "device is int.*open_device"),
        ({"x": np.broadcast_to(np.float32(1), (1 << 20, 1 << 30))}, "softmax needs more memory than is free"),
    ],
    ids=["mask", "device", "memory"],
)
def test_what_would_be_lost_or_fail_later(change: dict[str, Any], message: str) -> None:
    given = {"x": np.ones((2, 3), np.float32), "device": "emulator", **change}
    with pytest.raises(MiniDnnError, match=message):
        softmax(**given)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[1.0, 2.0]], r"x is \(1, 2\) float64; expected \(N, L\) float32"),
        ([[1.0], [2.0, 3.0]], "x is list, which NumPy cannot read: .*inhomogeneous"),
        (None, "x is NoneType with object values; expected an array of numbers"),
        (np.ndarray, "x is the type numpy.ndarray with object values; expected an array of numbers"),
    ],
)
def test_what_is_no_array_of_numpy_is_converted_or_refused(x: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        softmax(x, device="emulator")


def test_another_byte_order_is_converted() -> None:
    assert np.array_equal(*(softmax(drawn(3, 5).astype(t), device="emulator") for t in ("<f4", ">f4")))


def test_results_of_another_number_are_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.interop.function.compute", None)
    out, more = np.zeros((1, 2), np.float32), np.zeros((1, 2), np.float32)
    with pytest.raises(
        ShapeError, match=r"out= is an array .*, an array .*; the results of .* need an array \(1, 2\) f"
    ):
        softmax(np.ones((1, 2), np.float32), device="emulator", out=(out, more))
