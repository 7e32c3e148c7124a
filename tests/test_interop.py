"""Arrays of other libraries, used in place. For the stand-ins for the libraries see `lent_arrays`."""

import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from gpu_arrays import arguments, drawn, small
from lent_arrays import STREAM, CupyArray, Held, Interfaced, Libraries, Packed, Tensor, values
from lent_arrays import libraries as libraries
from sampling import some_of

import mini_dnn
from mini_dnn import gemm, ops, softmax
from mini_dnn.device import Device
from mini_dnn.errors import ShapeError
from mini_dnn.interop.calls import CALLS
from mini_dnn.interop.function import Function
from mini_dnn.interop.protocols import DeviceArray
from mini_dnn.paths import ROOT
from mini_dnn.variant import find

KINDS = [CupyArray, Tensor, Interfaced, Packed]
WRITABLE = [CupyArray, Tensor, Interfaced]

pytestmark = pytest.mark.usefixtures("libraries")


A, B = drawn(2, 17, 9), drawn(2, 9, 20, seed=1)
C = A @ B


def close(found: Any, expected: np.ndarray = C) -> bool:
    found = values(found)
    return found.dtype == expected.dtype and np.allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_of_the_callers_kind(kind: Any) -> None:
    c = gemm(kind(A), kind(B))
    assert type(c) is (DeviceArray if kind is Interfaced else kind)
    assert close(c)


@pytest.mark.parametrize(("name", "kind"), some_of(ops.names(), KINDS, one_of=2))
def test_every_operation(name: str, kind: Any, quick_emulator: Device) -> None:
    operation, function = ops.find(name), getattr(mini_dnn, name)
    problem = small(find(operation.default))
    arrays = operation.inputs(problem, 0)
    given, named = arguments(operation, problem, arrays, kind)
    plain, plain_named = arguments(operation, problem, arrays, lambda array: array)
    for _ in range(2):
        expected = function(*plain, **plain_named, device=quick_emulator)
        assert np.array_equal(values(function(*given, **named)), expected)


@pytest.mark.parametrize("kind", WRITABLE)
def test_results_go_where_the_caller_says(kind: Any, libraries: Libraries) -> None:
    out = kind(np.full(C.shape, np.nan, np.float32))
    assert gemm(kind(A), kind(B), out=out) is out
    assert close(out)
    assert not libraries.made
    assert libraries.written == ([out] if kind is Tensor else [])


def test_an_array_for_the_result_says_its_type() -> None:
    out = CupyArray(np.zeros(C.shape, np.float16))
    half = gemm(CupyArray(A.astype("f2")), CupyArray(B.astype("f2")), out=out)
    assert half is out
    assert np.allclose(values(out), C, atol=0.05)
    assert gemm(CupyArray(A), CupyArray(B), out="fp16").dtype == np.float16


@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_each_has_a_matrix_as_its_result(kind: Any) -> None:
    c = gemm(kind(A[0]), kind(B[0]))
    assert c.shape == C[0].shape
    assert close(c, C[0])
    out = CupyArray(np.empty_like(C[0]))
    assert gemm(CupyArray(A[0]), CupyArray(B[0]), out=out) is out
    assert close(out, C[0])
    with pytest.raises(ShapeError, match=r"need an array \(17, 20\) float32"):
        gemm(CupyArray(A[0]), CupyArray(B[0]), out=CupyArray(np.empty_like(C[:1])))


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_that_may_be_left_out(kind: Any) -> None:
    c0 = drawn(*C.shape, seed=2)
    assert close(gemm(kind(A), kind(B), c0=kind(c0), alpha=2.0, beta=-0.5), 2 * C - c0 / 2)
    assert close(gemm(kind(A), kind(B), c0=kind(c0)), C + c0)
    assert close(gemm(kind(A), kind(B), c0=None))


def test_options_by_place_and_arrays_by_name() -> None:
    assert close(gemm(CupyArray(A), CupyArray(B), "gemm/v0", "cuda"))
    assert close(gemm(CupyArray(A), b=CupyArray(B), impl="gemm/v1"))
    with pytest.raises(ShapeError, match="gemm takes a, b; b is missing"):
        gemm(CupyArray(A))


def test_a_variant_itself_or_its_path() -> None:
    variant = find("gemm/v0")
    assert close(gemm(CupyArray(A), CupyArray(B), impl=variant))
    assert close(gemm(CupyArray(A), CupyArray(B), impl=variant.folder))


def test_later_calls_prepare_nothing(libraries: Libraries, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[Any] = []
    real = CALLS.prepare

    def prepare(*args: Any) -> Any:
        prepared.append(args)
        return real(*args)

    monkeypatch.setattr(CALLS, "prepare", prepare)
    for seed in range(3):
        a = drawn(*A.shape, seed=seed)
        assert close(gemm(CupyArray(a), CupyArray(B)), a @ B)
    assert len(prepared) == 1
    gemm(CupyArray(A), CupyArray(B), impl="gemm/v0")
    gemm(CupyArray(A), CupyArray(B), alpha=2.0)
    gemm(CupyArray(A[:1]), CupyArray(B[:1]))
    gemm(CupyArray(A), CupyArray(B), out=CupyArray(np.empty_like(C)))
    assert len(prepared) == 5
    libraries.stream = 99
    gemm(CupyArray(A), CupyArray(B))
    assert [args[3] for args in prepared] == [STREAM] * 5 + [99]


def test_streams_of_the_protocols(quick_emulator: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call uses the first stream that is named.

    That stream waits for the others and for packed copies, and then the others wait for it.
    """
    followed: list[int] = []
    handles: list[int] = []
    real = quick_emulator.foreign_stream

    def foreign_stream(handle: int) -> Any:
        handles.append(handle)
        stream = real(handle)
        monkeypatch.setattr(stream, "follow", followed.append)
        return stream

    monkeypatch.setattr(quick_emulator, "foreign_stream", foreign_stream)
    a, b, packed = Interfaced(A), Interfaced(B), Packed(B)
    b.stream = 7
    gemm(a, b)
    assert (handles, followed) == ([STREAM, 7], [7, STREAM])
    assert gemm(a, packed).__cuda_array_interface__["stream"] == STREAM
    assert packed.asked == [STREAM]
    a.stream = b.stream = None  # there is nothing to wait for
    followed.clear()
    assert gemm(a, b).__cuda_array_interface__["stream"] == 1
    assert not followed
    gemm(Packed(A), packed)
    assert packed.asked == [STREAM, 1]
    assert followed == [1]  # the consumer's stream, `STREAM`, waits for the default stream


def test_a_device_array_speaks_both_protocols() -> None:
    c = gemm(Interfaced(A), Interfaced(B))
    assert (c.shape, c.dtype) == (C.shape, np.float32)
    assert repr(c) == "DeviceArray(shape=(2, 17, 20), dtype=float32, gpu=0)"
    assert close(gemm(c, Interfaced(np.ones((2, 20, 1), np.float32))), C.sum(2, keepdims=True))
    for asked in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError, match="cannot be copied"):
            c.__dlpack__(**asked)


def test_another_gpu_than_the_current_one(libraries: Libraries) -> None:
    libraries.gpu = 3
    c = gemm(CupyArray(A), CupyArray(B))
    assert (c.gpu, libraries.gpu) == (0, 3)
    assert gemm(Tensor(A, 1), Tensor(B, 1)).gpu == 1


def test_axes_of_one_entry_have_any_stride() -> None:
    one = np.lib.stride_tricks.as_strided(A[:1], strides=(4, *A.strides[1:]))
    assert close(gemm(Interfaced(one), Interfaced(B[:1])), C[:1])


def test_results_in_host_memory() -> None:
    out = np.empty_like(C)
    assert gemm(A, B, device="emulator", out=out) is out
    assert gemm(A, B, device="emulator", out=(out,)) is out, "there is one result, as on a GPU"
    assert close(out)
    half = np.empty(C.shape, np.float16)
    assert gemm(A.astype("f2"), B.astype("f2"), device="emulator", out=half) is half
    assert np.allclose(half, C, atol=0.05)
    with pytest.raises(ShapeError, match=r"array \(2, 17\) float32; .* need an array \(2, 17, 20\) float32"):
        gemm(A, B, device="emulator", out=out[..., 0])
    with pytest.raises(ShapeError, match="out= is list; expected a NumPy array"):
        gemm(A, B, device="emulator", out=[1])


def test_what_is_no_array_meets_the_operation() -> None:
    with pytest.raises(ShapeError, match="x is"):
        softmax(np.float32(1), device="emulator")
    with pytest.raises(ShapeError, match="softmax takes x; x is missing"):
        softmax()


def test_a_function_says_what_it_is() -> None:
    assert isinstance(gemm, Function)
    assert mini_dnn.gemm is gemm
    assert {"gemm", "conv2d", "open_device"} <= set(dir(mini_dnn))
    assert "matrix product" in repr(gemm)
    assert gemm.__name__ == "gemm"
    assert gemm.__doc__.startswith("Matrix product of fp16")
    assert "beta is 1 by default" in gemm.__doc__.replace("``", "")
    assert str(inspect.signature(gemm)).startswith("(a, b, *, c0=None, out=")
    with pytest.raises(AttributeError):
        mini_dnn.problem  # noqa: B018
    with pytest.raises(AttributeError):
        mini_dnn.nothing  # noqa: B018


@pytest.mark.parametrize("name", ops.names())
def test_its_documentation_describes_every_argument(name: str) -> None:
    function = getattr(mini_dnn, name)
    section = function.__doc__.split("\nParameters\n----------\n")[1].split("\n\nReturns\n")[0]
    described = [word for line in section.splitlines() if line[0] != " " for word in line.split(", ")]
    assert sorted(described) == sorted(inspect.signature(function).parameters)


def test_no_library_is_imported_for_it() -> None:
    code = (
        "import sys, numpy as np\nfrom mini_dnn import gemm\nimport mini_dnn.interop.function\n"
        "gemm(np.ones((1, 2, 2), 'f4'), np.ones((1, 2, 2), 'f4'), device='emulator')\n"
        "assert not {'cupy', 'torch', 'numba', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_stand_ins_are_told_apart() -> None:
    assert all(issubclass(kind, Held) for kind in KINDS)
