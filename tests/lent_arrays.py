"""Stand-ins for libraries with arrays on a GPU. These arrays are in host memory, for the emulator."""

from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mini_dnn.device import Device
from mini_dnn.interop import arrays, calls, dlpack, protocols
from mini_dnn.interop.calls import CALLS, Calls

STREAM = 4242  # the handle of the current stream


class Held:
    """An array and the GPU on which it claims to be."""

    def __init__(self, values: np.ndarray, gpu: int = 0) -> None:
        self.values, self.gpu = values, gpu

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape


class Tensor(Held):
    """An array with PyTorch's interface."""

    requires_grad = False

    @property
    def dtype(self) -> Any:
        return SimpleDtype(self.values.dtype.name)

    @property
    def is_cuda(self) -> bool:
        return self.gpu >= 0

    @property
    def is_cpu(self) -> bool:
        return self.gpu == -1

    @property
    def device(self) -> str:
        return f"cuda:{self.gpu}" if self.is_cuda else "cpu" if self.is_cpu else "meta"

    def get_device(self) -> int:
        return self.gpu

    def is_contiguous(self) -> bool:
        return self.values.flags.c_contiguous

    def is_neg(self) -> bool:
        return False

    def is_inference(self) -> bool:
        return False

    def data_ptr(self) -> int:
        return self.values.ctypes.data


class SimpleDtype(str):
    """A dtype that is printed like PyTorch's."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"torch.{str.__str__(self)}"


class CupyArray(Held):
    """An array with CuPy's interface."""

    __hash__ = None  # type: ignore[assignment]  # because it compares element by element

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def flags(self) -> Any:
        return self.values.flags

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.values.ctypes.data, device_id=self.gpu)


class Interfaced(Held):
    """An array like Numba's, which supports only ``__cuda_array_interface__``."""

    stream: int | None = STREAM
    readonly = False

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = self.values.__array_interface__
        return {
            "version": 3,
            "shape": found["shape"],
            "typestr": found["typestr"],
            "data": (found["data"][0], self.readonly),
            "strides": found["strides"],
            "stream": self.stream,
        }


class Packed(Held):
    """An array like JAX's, which supports ``__dlpack__``; its library has its own name."""

    def __init__(self, values: np.ndarray, gpu: int = 0) -> None:
        super().__init__(values, gpu)
        self.asked: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CUDA, self.gpu) if self.gpu >= 0 else (dlpack.CPU, 0)

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.asked.append(stream)
        v = self.values
        assert v.flags.c_contiguous
        return dlpack.exported(v.ctypes.data, v.shape, v.dtype.name, self.__dlpack_device__(), v)

    def __array_namespace__(self) -> Any:
        return SimpleNamespace(from_dlpack=taken)


def taken(array: Any) -> Packed:
    """Import another library's array into `Packed`'s library: the memory is the same."""
    view = dlpack.imported(array.__dlpack__(stream=STREAM))
    found = Packed(at(view.address, view.shape, view.dtype))
    found.capsule = view.capsule  # type: ignore[attr-defined]
    return found


def fresh(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of bytes 0xFF, which are NaN, so that an unwritten element is noticed."""
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[:] = 0xFF
    return array


def at(address: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """The array at an address."""
    interface = {"version": 3, "shape": shape, "typestr": np.dtype(dtype).str, "data": (address, False)}
    return np.asarray(SimpleNamespace(__array_interface__=interface))


def values(array: Any) -> np.ndarray:
    """The values of any array."""
    if isinstance(array, Held):
        return array.values
    if isinstance(array, protocols.DeviceArray):
        return at(array.address, array.shape, array.dtype.name)
    return np.asarray(array)


class Libraries:
    """The stand-ins, and a record of what they are asked."""

    def __init__(self) -> None:
        self.gpu, self.stream, self.tracks_gradients = 0, STREAM, False
        self.made: list[Any] = []
        self.written: list[Any] = []
        self.torch, self.cupy = ModuleType("torch"), ModuleType("cupy")
        self.torch.__dict__.update(
            Tensor=Tensor,
            device=lambda kind, index: f"{kind}:{index}",
            is_grad_enabled=lambda: self.tracks_gradients,
            empty=self._empty_tensor,
            cuda=SimpleNamespace(current_stream=lambda gpu: SimpleNamespace(cuda_stream=self.stream)),
            _C=SimpleNamespace(),
            autograd=SimpleNamespace(graph=SimpleNamespace(increment_version=self.written.append)),
            **{name: SimpleDtype(name) for name in ("float16", "bfloat16", "float32", "uint8")},
        )
        self.cupy.__dict__.update(
            ndarray=CupyArray,
            empty=self._empty,
            cuda=SimpleNamespace(
                get_current_stream=lambda gpu: SimpleNamespace(ptr=self.stream),
                get_device_id=lambda: self.gpu,
                Device=self._on,
            ),
        )

    def _made(self, kind: Any, shape: Any, dtype: Any, gpu: int) -> Any:
        self.made.append(kind(fresh(shape, dtype), gpu))
        return self.made[-1]

    def _empty_tensor(self, shape: Any, dtype: Any, device: str) -> Any:
        assert shape == 0, "only its type and its GPU are used"
        name, gpu = str(dtype)[6:], int(device[5:])
        return SimpleNamespace(new_empty=lambda shape: self._made(Tensor, shape, name, gpu))

    def _empty(self, shape: Any, dtype: Any) -> Any:
        if np.dtype(dtype).name == "bfloat16":
            raise TypeError("Unsupported dtype")
        return self._made(CupyArray, shape, dtype, self.gpu) if shape else None

    @contextmanager
    def _on(self, gpu: int) -> Any:
        before, self.gpu = self.gpu, gpu
        yield
        self.gpu = before


@pytest.fixture
def libraries(quick_emulator: Device, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the libraries with the stand-ins, and each GPU with the emulator."""
    found = Libraries()
    monkeypatch.setitem(arrays.sys.modules, "torch", found.torch)
    monkeypatch.setitem(arrays.sys.modules, "cupy", found.cupy)
    monkeypatch.setattr(calls, "open_gpu", lambda gpu: quick_emulator)
    monkeypatch.setattr(protocols, "gpu_of", lambda address: 0)
    arrays._kind_of_type.cache_clear()
    Calls.__init__(CALLS)
    yield found
    CALLS.release()
    Calls.__init__(CALLS)
    arrays._kind_of_type.cache_clear()
