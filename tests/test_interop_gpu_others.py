"""Arrays of libraries that support only a protocol, and CuPy's front end, on a GPU."""

import os
from typing import Any

import numpy as np
import pytest
from gpu_arrays import Cupy, Torch, drawn, in_thread, refused, runnable, same, small

from mini_dnn import gemm
from mini_dnn.device import Device
from mini_dnn.errors import VariantError
from mini_dnn.interop import release
from mini_dnn.interop.protocols import DeviceArray
from mini_dnn.running.runner import run
from mini_dnn.variant import names

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def released() -> Any:
    yield
    release()


A, B = drawn(2, 65, 33), drawn(2, 33, 70, seed=1)
C = A @ B


def close(found: Any, expected: np.ndarray = C) -> bool:
    return found.dtype == expected.dtype and np.allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_jax() -> None:
    # Otherwise it would take most of the memory
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU here")
    a, b = jax.device_put(A), jax.device_put(B)
    for factor in (1, 2):
        c = gemm(a * factor, b)  # the result of the product may not be ready yet
        assert isinstance(c, jax.Array)
        assert close(np.asarray(c + 1), factor * C + 1)
    with refused("out is .*, which is read-only"):
        gemm(a, b, out=c)


def test_numba() -> None:
    cuda = pytest.importorskip("numba.cuda", reason="Numba is not installed")
    if not cuda.is_available():
        pytest.skip("Numba has no GPU here")
    a, b = cuda.to_device(A), cuda.to_device(B)
    c = gemm(a, b)
    assert isinstance(c, DeviceArray)
    assert close(cuda.as_cuda_array(c).copy_to_host())
    out = cuda.device_array(C.shape, np.float32)
    assert gemm(a, b, out=out) is out
    cuda.synchronize()
    assert close(out.copy_to_host())


class Lent:
    """An array of CuPy's that supports only one protocol."""

    def __init__(self, array: Any, *spoken: str) -> None:
        self._array = array
        for name in spoken:
            setattr(self, name, getattr(array, name))


@pytest.mark.parametrize(
    "spoken",
    [("__cuda_array_interface__",), ("__dlpack__", "__dlpack_device__")],
    ids=["interface", "dlpack"],
)
def test_any_library(spoken: tuple[str, ...]) -> None:
    """CuPy and PyTorch accept the results, and the streams of both sides are in order."""
    cupy, torch = Cupy(), Torch()
    stream = cupy.stream()
    b, late, a = cupy.put(B), cupy.put(A), cupy.put(np.zeros_like(A))
    with stream:
        cupy.spin()
        cupy.fill(a, late)
        c = gemm(Lent(a, *spoken), Lent(b, *spoken))
        assert isinstance(c, DeviceArray)
        assert close(cupy.get(cupy.library.asarray(c)))
    assert close(torch.get(torch.library.from_dlpack(c)))
    assert close(cupy.get(cupy.library.from_dlpack(c)))
    held = c.address
    assert torch.library.from_dlpack(c).data_ptr() == held


def test_results_outlive_what_they_were_made_of() -> None:
    cupy = Cupy()
    found = [
        gemm(Lent(cupy.put(A), "__cuda_array_interface__"), Lent(cupy.put(B), "__cuda_array_interface__"))
    ]
    junk = [cupy.put(np.full_like(C, i)) for i in range(8)]
    taken = cupy.library.from_dlpack(found.pop())
    assert close(cupy.get(taken))
    assert len(junk) == 8


def test_a_thread_that_ends_during_its_call() -> None:
    """Its arrays are not given to others before the product has read them."""
    cupy = Cupy()
    stream, out = cupy.stream(), cupy.empty(C.shape)

    def call(busy: bool) -> None:
        a, b = cupy.put(A), cupy.put(B)
        with stream:
            if busy:
                cupy.spin()
            gemm(
                *(Lent(x, "__cuda_array_interface__") for x in (a, b)),
                out=Lent(out, "__cuda_array_interface__"),
            )

    def work() -> None:
        call(busy=False)  # it compiles
        cupy.wait()
        call(busy=True)

    in_thread(work)
    junk = [cupy.put(np.full_like(x, 7)) for x in (A, B) for _ in range(4)]
    cupy.wait()
    assert close(cupy.get(out))
    assert len(junk) == 8


@pytest.mark.parametrize("name", names())
def test_variants_through_cupy_alone(name: str, cuda: Device) -> None:
    cupy = Cupy()
    from mini_dnn.interop.cupy import load

    variant = runnable(name, cuda)
    problem = small(variant)
    try:
        loaded = load(name, problem.text)
    except VariantError as error:
        pytest.skip(str(error))
    for seed in range(2):
        arrays = variant.operation.inputs(problem, seed)
        expected = run(variant, problem, arrays, cuda).y
        given = [cupy.put(array) for array in arrays.values()]
        found = loaded(*given)
        assert isinstance(found, cupy.type)
        assert same(cupy.get(found), expected)
    out = cupy.empty(expected.shape)
    if expected.dtype == np.float32:
        assert loaded(*given, out=out) is out
        assert same(cupy.get(out), expected)
