"""Helpers for tests with real arrays on a GPU: libraries, problems, and streams that are busy for a while."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mini_dnn.errors import ShapeError
from mini_dnn.interop.signature import signature_of
from mini_dnn.ops import Arrays, Operation
from mini_dnn.variant import Variant, find

SPIN = """
extern "C" __global__ void spin(long long ticks) {
  const long long start = clock64();
  while (clock64() - start < ticks) {}
}
"""
LONG = 400_000_000  # ticks: about 0.2 s


def drawn(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def cupy() -> Any:
    return pytest.importorskip("cupy", reason="CuPy is not installed")


def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed")


class Cupy:
    """CuPy, with the functions that the tests use."""

    def __init__(self) -> None:
        self.library = cupy()
        self.type = self.library.ndarray
        self._spin = self.library.RawKernel(SPIN, "spin")

    def put(self, values: np.ndarray) -> Any:
        array = self.library.asarray(values)
        self.wait()  # the copy goes on, and other streams do not wait for it
        return array

    def wait(self) -> None:
        self.library.cuda.Device().synchronize()

    def get(self, array: Any) -> np.ndarray:
        return np.asarray(self.library.asnumpy(array))

    def stream(self) -> Any:
        return self.library.cuda.Stream(non_blocking=True)

    def within(self, stream: Any) -> Any:
        return stream

    def spin(self) -> None:
        self._spin((1,), (1,), (np.int64(LONG),))

    def is_done(self, stream: Any) -> bool:
        return bool(stream.done)

    def empty(self, shape: tuple[int, ...]) -> Any:
        return self.library.empty(shape, np.float32)

    def fill(self, array: Any, other: Any) -> None:
        array[...] = other


class Torch:
    """PyTorch, with the functions that the tests use."""

    def __init__(self) -> None:
        self.library = torch()
        self.type = self.library.Tensor
        self._front: Any = pytest.importorskip("mini_dnn.interop.torch")

    def put(self, values: np.ndarray) -> Any:
        return self._front.tensor_of(np.array(values)).cuda()

    def wait(self) -> None:
        self.library.cuda.synchronize()

    def get(self, array: Any) -> np.ndarray:
        return np.asarray(self._front.array_of(array.cpu()))

    def stream(self) -> Any:
        return self.library.cuda.Stream()

    def within(self, stream: Any) -> Any:
        return self.library.cuda.stream(stream)

    def spin(self) -> None:
        self.library.cuda._sleep(LONG)

    def is_done(self, stream: Any) -> bool:
        return bool(stream.query())

    def empty(self, shape: tuple[int, ...]) -> Any:
        return self.library.empty(shape, device="cuda")

    def fill(self, array: Any, other: Any) -> None:
        array.copy_(other)


def small(variant: Variant) -> Any:
    """A short problem of a variant, without gaps and in types that all libraries have."""
    operation = variant.operation
    known = (*operation.check, *operation.spare, *operation.course.values())
    plain = [p for p in known if all(not a.gap and a.dtype != "bfloat16" for a in p.arrays.values())]
    problems = [p for p in plain if not variant.limit_for(p)]
    return sorted(problems, key=lambda p: p.min_bytes)[min(2, len(problems) - 1)]


def runnable(name: str, device: Any) -> Variant:
    """Return the variant, or skip the test if this GPU cannot run it."""
    variant = find(name)
    if variant.host is not None:
        pytest.skip(f"{name} runs on the host")
    if device.arch < variant.min_arch:
        pytest.skip(f"{name} needs sm_{variant.min_arch}, the device is sm_{device.arch}")
    return variant


def arguments(
    operation: Operation, problem: Any, arrays: Arrays, put: Callable[[np.ndarray], Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call of `mini_dnn`: arrays by position; arrays and fields by name."""
    signature = signature_of(operation)
    by_place = [put(array) for name, array in arrays.items() if name not in signature.optional]
    by_name = {name: put(array) for name, array in arrays.items() if name in signature.optional}
    fields = {name: value for name, value in problem.fields.items() if name in signature.fields}
    return by_place, {**by_name, **fields}


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two results of one kernel agree, although it adds in a different order each time."""
    scale = np.abs(expected.astype(np.float64)).max()
    return found.dtype == expected.dtype and np.allclose(found, expected, rtol=1e-3, atol=1e-4 * scale)


def in_thread(work: Callable[[], None]) -> None:
    """Run ``work`` in a new thread, and raise its exception if it has one."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def refused(words: str) -> Any:
    return pytest.raises(ShapeError, match=words)
