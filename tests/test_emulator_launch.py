"""Checks before a launch: names, arguments, geometry."""

import re

import numpy as np
import pytest
from emulator_kernels import Kernels

from mini_dnn.device.base import LaunchConfig
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.errors import DeviceError, LaunchError

INT = np.int32


@pytest.fixture(scope="module")
def kernels(emulator: EmulatorDevice) -> Kernels:
    return Kernels(emulator, "arguments.cu")


def test_every_kind_of_argument_arrives(kernels: Kernels) -> None:
    out = np.zeros(9)
    values = [
        np.int8(-3),
        np.int16(-300),
        np.int32(-70_000),
        np.uint32(4_000_000_000),
        np.int64(-(2**40)),
        np.float16(0.5),
        np.float32(1.5),
        np.float64(1e300),
        np.bool_(True),
    ]
    kernels("all_kinds", (1,), (1,), out, *values)
    np.testing.assert_array_equal(out, [float(v) for v in values])


def test_which_kernels_are_found(kernels: Kernels) -> None:
    found = kernels.module.library.kernels
    assert {name for name, kernel in found.items() if kernel.run} == {
        "all_kinds",
        "in_a_block",
        "also_in_a_block",
        "by_value",
        "first_made_by_a_macro",
    }
    assert {name for name, kernel in found.items() if not kernel.run} == {"mangled", "templated"}


def test_unknown_kernel_suggests_one(kernels: Kernels) -> None:
    with pytest.raises(LaunchError) as error:
        kernels("all_kind", (1,), (1,))
    assert "no kernel 'all_kind' in" in str(error.value)
    assert "it has all_kinds, also_in_a_block, by_value, first_made_by_a_macro, in_a_block" in str(
        error.value
    )
    assert "did you mean 'all_kinds'?" in str(error.value)


@pytest.mark.parametrize("name", ["mangled", "templated"])
def test_kernel_without_extern_c(kernels: Kernels, name: str) -> None:
    with pytest.raises(LaunchError, match=rf'declare it extern "C" __global__ void {name}'):
        kernels(name, (1,), (1,), INT(1))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), r"takes 2 arguments \(a pointer, int\); 0 were passed"),
        ((INT(1), INT(1)), r"argument 1 of 2 is a pointer and takes a buffer .* numpy.int32 .* was passed"),
        ((np.zeros(1, np.float32), np.int64(1)), r"argument 2 of 2 is int and takes np.int32; numpy.int64"),
        (
            (np.zeros(1, np.float32), np.float32(1)),
            r"argument 2 of 2 is int and takes np.int32; numpy.float32",
        ),
        ((np.zeros(1, np.float32), 1), r"argument 2 of 2 is int and takes np.int32; builtins.int 1"),
        ((np.zeros(1), np.zeros(1)), r"argument 2 of 2 is int \(np.int32\); buffer 'arg1' was passed"),
    ],
)
def test_wrong_arguments(kernels: Kernels, args: tuple, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        kernels("in_a_block", (1,), (1,), *args)


def test_struct_by_value_is_refused(kernels: Kernels) -> None:
    with pytest.raises(LaunchError, match="a struct of 8 bytes, which cannot be passed"):
        kernels("by_value", (1,), (1,), INT(1))


def test_freed_buffer_is_refused(kernels: Kernels, emulator: EmulatorDevice) -> None:
    buffer = emulator.empty("gone", (1,))
    buffer.free()
    with pytest.raises(LaunchError, match=r"buffer 'gone' .* was freed"):
        emulator.launch(kernels.module, "in_a_block", LaunchConfig((1,), (1,)), (buffer, INT(1)))


@pytest.mark.parametrize(
    ("grid", "block", "shared", "message"),
    [
        ((1,), (1025,), 0, r"block.x is 1025; CUDA allows 1 to 1024"),
        ((1,), (32, 33), 0, r"block \(32, 33\) has 1056 threads; CUDA allows 1024"),
        ((1,), (1, 1, 65), 0, r"block.z is 65; CUDA allows 1 to 64"),
        ((0,), (1,), 0, r"grid.x is 0; CUDA allows 1 to 2147483647"),
        ((1, 65536), (1,), 0, r"grid.y is 65536; CUDA allows 1 to 65535"),
        ((1, 1, 65536), (1,), 0, r"grid.z is 65536"),
        ((2**31,), (1,), 0, r"grid.x is 2147483648"),
        ((), (1,), 0, r"grid \(\) must have one to three entries"),
        ((1,), (1, 1, 1, 1), 0, r"block .* must have one to three entries"),
        ((1,), (1,), 232_449, r"232449 bytes of dynamic shared .* allows 0 to 232448 \(227 KB\)"),
        ((1,), (1,), -1, r"-1 bytes of dynamic"),
    ],
)
def test_geometry(
    kernels: Kernels, grid: tuple[int, ...], block: tuple[int, ...], shared: int, message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        kernels("also_in_a_block", grid, block, shared=shared)


def test_there_is_no_clock(emulator: EmulatorDevice) -> None:
    assert not emulator.has_clock
    start = emulator.record()
    emulator.synchronize()
    with pytest.raises(DeviceError, match="CPU time does not predict GPU time"):
        emulator.elapsed_ms(start, emulator.record())


def test_description_and_threads() -> None:
    device = EmulatorDevice(1)
    assert device.name == "emulator"
    assert re.fullmatch(r"CPU emulator \((g|clang)\+\+ [\d.]+\), 1 thread", device.description)
    device.close()
    device.close()
    with pytest.raises(DeviceError, match="needs at least 1"):
        EmulatorDevice(0)
