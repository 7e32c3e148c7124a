"""The front end for CuPy. A stand-in for CuPy launches on the emulator what CuPy would launch on a GPU."""

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu_arrays import small
from lent_arrays import CupyArray, fresh, values

from mini_dnn.device import Device
from mini_dnn.device.base import LaunchConfig, MappedBuffer
from mini_dnn.device.clusters import ALONE
from mini_dnn.device.emulator.memory import EmulatorBuffer
from mini_dnn.errors import DeviceError, ShapeError, VariantError
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.running.runner import run
from mini_dnn.variant import Launch, Variant, find, names


class Array(CupyArray):
    """An array with the additional attributes that the front end uses."""

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def reshape(self, *shape: Any) -> "Array":
        return Array(self.values.reshape(*shape))

    def __getitem__(self, entries: slice) -> "Array":
        return Array(self.values[entries])


def empty(shape: Any, dtype: Any) -> Array:
    if np.dtype(dtype).name == "bfloat16":
        raise TypeError("Unsupported dtype bfloat16")
    return Array(fresh(shape, dtype))


class StandIn:
    """The part of CuPy that the front end uses."""

    def __init__(self, emulator: Any) -> None:
        self.emulator, self.compiled, self.shared = emulator, [], {}
        self.free, self.arch, self.current = 1 << 30, "90", 0
        self.module = ModuleType("cupy")
        self.module.__dict__.update(
            ndarray=CupyArray,
            empty=empty,
            get_default_memory_pool=lambda: SimpleNamespace(free_bytes=lambda: 0),
            RawModule=self.raw_module,
            cuda=SimpleNamespace(Device=self.device, get_device_id=lambda: self.current),
        )

    def device(self) -> Any:
        attributes = {"MaxSharedMemoryPerBlockOptin": 227 * 1024}
        return SimpleNamespace(
            id=self.current,
            compute_capability=self.arch,
            attributes=attributes,
            mem_info=(self.free, 1 << 31),
        )

    def raw_module(self, *, path: str) -> Any:
        with open(path, "rb") as file:  # noqa: PTH123
            assert file.read() == b"cubin 90a %d" % len(self.compiled)
        loaded = self.emulator.compile(*self.compiled[-1])

        def get_global(name: str) -> Any:
            symbol = self.emulator.symbol(loaded, name)

            def copy(source: Any, nbytes: int) -> None:
                held = EmulatorBuffer("source", (nbytes,), np.dtype("u1"), nbytes, source.ptr)
                self.emulator.copy(symbol, held)

            return SimpleNamespace(copy_from_device_async=copy)

        return SimpleNamespace(get_function=lambda name: Kernel(self, loaded, name), get_global=get_global)

    def build_cubin(self, source: Any, defines: Any, arch: str) -> bytes:
        self.compiled.append((source, defines))
        assert arch == "sm_90a"
        return b"cubin 90a %d" % len(self.compiled)


class Kernel:
    """A loaded kernel."""

    max_dynamic_shared_size_bytes = 48 * 1024

    def __init__(self, owner: StandIn, module: Any, name: str) -> None:
        self.owner, self.module, self.name = owner, module, name

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int) -> None:
        assert len(grid) == len(block) == 3
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        given = [_buffer(a) if isinstance(a, Array) else a for a in args]
        self.owner.emulator.launch(self.module, self.name, LaunchConfig(grid, block, shared_mem), given)


def _buffer(array: Array) -> EmulatorBuffer:
    return EmulatorBuffer("array", array.shape, array.dtype, array.nbytes, array.data.ptr)


def passed(arg: Any) -> Any:
    """A tensor map for the emulator, because the driver, which encodes those of GPUs, is absent."""
    assert isinstance(arg, MappedBuffer)
    buffer: Any = arg.buffer
    return MappedBuffer(_buffer(buffer), arg.geometry)


@pytest.fixture
def cupy(quick_emulator: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[StandIn]:
    found = StandIn(quick_emulator)
    name = "mini_dnn.interop.cupy"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cupy", found.module)
        patch.delitem(sys.modules, name, raising=False)
        module = importlib.import_module(name)
        patch.setitem(sys.modules, name, module)
        patch.setattr(module, "build_cubin", found.build_cubin)
        patch.setattr(module, "cache_dir", lambda: tmp_path)
        patch.setattr(module, "_passed", passed)
        yield found
    sys.modules.pop(name, None)


def load(*args: Any) -> Any:
    return sys.modules["mini_dnn.interop.cupy"].load(*args)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", names()[::2])
def test_every_variant_gives_what_it_gives_elsewhere(name: str, cupy: StandIn) -> None:
    variant = find(name)
    if variant.host is not None or variant.needs_gpu:
        pytest.skip(f"{name} does not run on the emulator: {variant.needs_gpu or 'it runs on the host'}")
    operation, problem = variant.operation, small(variant)
    launches = variant.planned(problem, cupy.emulator.max_shared_bytes).launches
    if any(launch.cluster_sizes != ALONE for launch in launches):
        pytest.skip(f"{name} launches clusters, which CuPy does not support")
    loaded = load(name, problem.text)
    assert loaded.planned.problem == problem
    for seed in range(2):
        arrays = operation.inputs(problem, seed)
        expected = run(variant, problem, arrays, cupy.emulator).y
        assert np.array_equal(values(loaded(*map(Array, arrays.values()))), expected)
    out = Array(np.empty_like(expected))
    assert loaded(*map(Array, arrays.values()), out=out) is out
    assert np.array_equal(values(out), expected)
    assert len(cupy.compiled) == 1 + len(loaded.planned.codes)


def test_arrays_of_called_variants_are_not_viewed_again(cupy: StandIn) -> None:
    """Each view costs a call microseconds, and ``gemm/v14_mixed`` calls four variants in a row here."""
    module: Any = sys.modules["mini_dnn.interop.cupy"]
    loaded = module.Loaded.__new__(module.Loaded)
    loaded.planned = find("gemm/v14_mixed").planned(GemmShape(64, 64, 64, "fp16"), 227 * 1024)
    (launch,) = loaded.planned.launches
    buffers = {name: empty(array.shape, array.dtype) for name, array in loaded.planned.arrays.items()}
    named = [arg for arg in launch.args if isinstance(arg, str)]
    found = [loaded._named(buffers, "the launch", name) for name in named]
    assert [id(array) for array in found] == [id(buffers[loaded.planned.owner(name)]) for name in named]
    assert set(named).isdisjoint(buffers)


def test_arrays_that_do_not_fit_are_refused(cupy: StandIn) -> None:
    square = np.ones((1, 8, 8), np.float32)
    product = load("gemm/v0", "8,8,8")
    a, b = Array(square), Array(square.copy())
    for wrong, words in (
        (Array(square[:, :4]), r"a is \(1, 4, 8\) float32 in C order, at"),
        (Array(square.astype("f2")), r"a is \(1, 8, 8\) float16 in C order"),
        (Array(np.asfortranarray(np.ones((2, 8, 8), np.float32))[:1]), "float32 not in C order"),
        (Array(np.ones(80, np.float32)[1:65].reshape(1, 8, 8)), "at a multiple of 16 bytes"),
    ):
        with pytest.raises(ShapeError, match=words):
            product(wrong, b)
    with pytest.raises(ShapeError, match="the call needs the arrays a, b; found 1"):
        product(a)
    with pytest.raises(ShapeError, match="out= needs the arrays c; found 2"):
        product(a, b, out=(a, b))
    with pytest.raises(ShapeError, match=r"b is numpy\.ndarray.*; expected a CuPy array"):
        product(a, square)
    with pytest.raises(ShapeError, match="c is "):
        product(a, b, out=Array(np.ones((1, 8, 9), np.float32)))
    with pytest.raises(ShapeError, match="out= overlaps b, which is read at the same time"):
        product(a, b, out=b)


def test_calls_on_another_gpu_are_refused(cupy: StandIn) -> None:
    square = np.ones((1, 8, 8), np.float32)
    product = load("gemm/v0", "8,8,8")
    with pytest.raises(ShapeError, match="b is on GPU 1, and the variant was loaded for GPU 0"):
        product(Array(square), Array(square, gpu=1))
    cupy.current = 1
    with pytest.raises(DeviceError, match=r"the current one is GPU 1; call it within 'with cupy\.cuda\."):
        product(Array(square), Array(square))


def test_variants_that_cannot_are_refused(cupy: StandIn, tmp_path: Any) -> None:
    with pytest.raises(VariantError, match="m1/cpu runs on the host"):
        load("cpu", "1,1,5,5,1,2,2")
    cupy.arch = "70"
    with pytest.raises(DeviceError, match="gemm/v0_naive needs a GPU of sm_75 or newer; this one is sm_70"):
        load("gemm/v0", "8,8,8")
    cupy.arch = "90"
    with pytest.raises(VariantError, match="a is bfloat16, and this version of CuPy has no such arrays"):
        load("gemm/v0", "8,8,8,bf16")
    cupy.free = 100
    with pytest.raises(DeviceError, match="of scratch memory for"):
        load("m2", "1,1,5,5,1,2,2")
    (tmp_path / "kernel.cu").touch()
    clusters = Variant(
        op="gemm",
        idea="",
        plan=lambda p: [Launch("k", (2,), (1,), (), cluster=2)],
        min_arch=90,
        name="clusters",
        folder=tmp_path,
    )
    assert clusters.planned(GemmShape(1, 1, 1), 1).launches[0].cluster_sizes != ALONE
    with pytest.raises(VariantError, match="launches clusters, which CuPy does not support"):
        load(clusters, GemmShape(1, 1, 1))
