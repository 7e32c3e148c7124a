"""The limits of tensor maps: boxes, strides and buffers that are refused, and findings of checked mode."""

import numpy as np
import pytest
from emulator_kernels import FOLDER, line_of
from tensors import run

from mini_dnn.device import Device
from mini_dnn.device.base import LaunchConfig, MappedBuffer
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.errors import LaunchError, VariantError
from mini_dnn.variant import TensorMap

INT = np.int32
SOURCE = "tensor.cu"
EXTRA = 1024  # bytes of shared memory, so that it can be aligned


@pytest.mark.parametrize(
    ("kernel", "at", "message"),
    [
        (
            "load",
            (4, 0),
            "the distance of tensor_load's box from .* is not a multiple of 16 bytes: 8 past one",
        ),
        (
            "load",
            (-1, 0),
            "the distance of tensor_load's box from .* is not a multiple of 16 bytes: 14 past one",
        ),
        (
            "store",
            (4, 0),
            "the distance of tensor_store's box from .* is not a multiple of 16 bytes: 8 past one",
        ),
        (
            "store",
            (0, -1),
            r"tensor_store \(tensor\.cu:\d+\): the box begins at \(0, -1, 0\); boxes that are stored",
        ),
    ],
)
def test_where_a_box_may_begin(
    quick_emulator: EmulatorDevice, kernel: str, at: tuple[int, int], message: str
) -> None:
    x, image = np.zeros((40, 136), np.float16), np.zeros(256, np.uint32)
    numbers = map(INT, (2, *at, 0, image.nbytes, 0))
    with pytest.raises(LaunchError, match=message):
        run(
            quick_emulator,
            SOURCE,
            kernel,
            (1,),
            64,
            (x, TensorMap("x", (8, 64))),
            image,
            *numbers,
            shared=2 * EXTRA,
        )


def boxes(device: Device, which: int) -> None:
    x, y = np.arange(1, 513).astype(np.float16).reshape(8, 64), np.zeros((8, 64), np.float16)
    tensor_map = TensorMap("x", (8, 64))
    run(
        device,
        SOURCE,
        "early",
        (1,),
        256,
        (x, tensor_map),
        (y, tensor_map),
        np.zeros(256, np.uint32),
        INT(which),
    )


@pytest.mark.parametrize(
    ("which", "message"),
    [
        (1, r"is stuck.*expects 1000 bytes and gets 1024"),
        (2, r"tensor\.cu:\d+: the address that tensor_load writes is not a multiple of 128 bytes: 16"),
        (3, r"tensor_load \(tensor\.cu:\d+\): 3 coordinates, and the tensor map has 2 axes"),
    ],
)
def test_misuse(quick_emulator: EmulatorDevice, which: int, message: str) -> None:
    with pytest.raises(LaunchError, match=f"(?s){message}"):
        boxes(quick_emulator, which)


def test_no_finding() -> None:
    boxes(CheckedEmulator(), 0)


@pytest.mark.parametrize(
    ("which", "kind", "what", "mark"),
    [
        (1, "deadlock", "a wait for an mbarrier never ends", "// this wait"),
        (2, "misaligned", "address that tensor_load writes is not a multiple of 128", "// this load"),
        (4, "async", "read of box.* while a tensor_load that will fill it is in flight", "// this read"),
        (
            5,
            "async",
            "tensor_store from box.*, which was written without a fence_proxy_async",
            "// this store",
        ),
        (6, "async", "the block ends without waiting for the tensor_store", "// this store"),
    ],
)
def test_findings(which: int, kind: str, what: str, mark: str) -> None:
    with pytest.raises(KernelError, match=what) as caught:
        boxes(CheckedEmulator(), which)
    found = caught.value.finding
    assert found.kind == kind, found
    assert found.cure
    assert found.place is not None
    assert found.place.line == line_of(SOURCE, mark), found


def test_what_nobody_has_written() -> None:
    device = CheckedEmulator()
    module = device.compile(FOLDER / SOURCE, {})
    x, out = device.empty("x", (8, 32)), device.empty("out", (32,), np.uint32)
    mapped = MappedBuffer(x, TensorMap("x", (1, 32), swizzle=0).geometry((8, 32), "float32", x.nbytes))
    with pytest.raises(KernelError, match="uninitialised") as caught:
        device.launch(module, "values", LaunchConfig((1,), (32,)), (INT(0), mapped, np.float64(0), out))
    assert "x[0, 0]" in caught.value.finding.what


WRONG = [
    (TensorMap("x", (64,)), "has 1 axes; tensor copies move boxes of 2 or 3 axes"),
    (TensorMap("x", (8, 8, 64)), r"the buffer is \(40, 136\) float16, the box .*: pass shape="),
    (TensorMap("x", (8, 64), dtype="float32"), "pass shape="),
    (TensorMap("x", (8, 64), dtype="int8"), "its elements are int8; pass dtype="),
    (TensorMap("x", (8, 64), (40,)), "expected 2 sides and 1 strides"),
    (TensorMap("x", (8, 64), (0, 64)), "each side must be in 1 to"),
    (TensorMap("x", (257, 64)), "each side must be in 1 to 256"),
    (TensorMap("x", (8, 60), swizzle=0), "a row of its box .* has 120 bytes; it must be a multiple of 16"),
    (TensorMap("x", (8, 128)), "has 256 bytes, and a swizzle of 128 bytes .*: let the last side be 64"),
    (TensorMap("x", (8, 32)), "has 64 bytes, and a swizzle of 128 bytes .*: use swizzle=64, or let the"),
    (TensorMap("x", (8, 64), swizzle=16), "its swizzle is 16; expected one of 0, 32, 64, 128"),
    (TensorMap("x", (8, 64), (30, 60), (60,)), "one of 60 elements, 120 bytes; .* padded to a multiple of 8"),
    (TensorMap("x", (8, 64), (41, 136)), "reaches over 11152 bytes of float16, and the buffer has 10880"),
]


def strides(tensor_map: TensorMap, *shape: int) -> tuple[int, ...]:
    return tensor_map.geometry(shape, "float16", 2 * int(np.prod(shape))).strides


def test_strides_by_default() -> None:
    assert strides(TensorMap("x", (8, 64)), 40, 136) == (136,)
    assert strides(TensorMap("x", (8, 64), (40, 129)), 40, 136) == (136,)  # columns that end early
    assert strides(TensorMap("x", (8, 64)), 1, 40, 136) == (136,)
    assert strides(TensorMap("x", (1, 8, 64)), 3, 40, 136) == (40 * 136, 136)
    assert strides(TensorMap("x", (1, 8, 64), (5, 8, 136)), 40, 136) == (8 * 136, 136)  # rows in groups
    assert strides(TensorMap("x", (8, 64), (6, 80)), 2, 3, 8, 10) == (80,)  # axes in one
    assert strides(TensorMap("x", (8, 64), (6, 80)), 480) == (80,)


@pytest.mark.parametrize(("tensor_map", "message"), WRONG)
def test_what_no_gpu_would_take(tensor_map: TensorMap, message: str) -> None:
    with pytest.raises(VariantError, match=f"the tensor map of 'x' cannot be created: .*{message}"):
        tensor_map.geometry((40, 136), "float16", 40 * 136 * 2)


def test_where_a_buffer_must_begin(quick_emulator: EmulatorDevice) -> None:
    module = quick_emulator.compile(FOLDER / SOURCE, {})
    whole, out = quick_emulator.empty("x", (9, 34)), quick_emulator.empty("out", (32,), np.uint32)
    part = quick_emulator.part(whole, 1, 9)
    mapped = MappedBuffer(
        part, TensorMap("x", (1, 32), (7, 34), (36,), 0).geometry((8, 34), "float32", part.nbytes)
    )
    args = (INT(0), mapped, np.float64(0), out)
    with pytest.raises(LaunchError, match="the buffer is 8 bytes past a multiple of 16 bytes"):
        quick_emulator.launch(module, "values", LaunchConfig((1,), (32,)), args)


def test_arguments_of_another_kind(quick_emulator: EmulatorDevice) -> None:
    module = quick_emulator.compile(FOLDER / SOURCE, {})
    x = quick_emulator.empty("x", (8, 32))
    mapped = MappedBuffer(x, TensorMap("x", (1, 32), swizzle=0).geometry((8, 32), "float32", x.nbytes))
    for args, message in [
        (
            (INT(0), x, np.float64(0), x),
            r"argument 2 of 4 is a ptx::TensorMap and takes a TensorMap\(\.\.\.\); buffer 'x'",
        ),
        (
            (mapped, mapped, np.float64(0), x),
            "argument 1 of 4 is int and takes np.int32; a TensorMap of 'x' was passed",
        ),
        (
            (INT(0), mapped, np.float64(0), mapped),
            "argument 4 of 4 is a pointer and takes a buffer; a TensorMap of 'x'",
        ),
    ]:
        with pytest.raises(LaunchError, match=message):
            quick_emulator.launch(module, "values", LaunchConfig((1,), (32,)), args)


@pytest.mark.parametrize(("pitch", "promotion"), [(64, 256), (72, 128), (80, 128)])
def test_l2_reads_less_if_lines_are_parts_of_cache_lines(pitch: int, promotion: int) -> None:
    box = TensorMap("x", (8, 64), (8, 64), (pitch,))
    assert box.geometry((8, pitch), "float16", 8 * pitch * 2).promotion == promotion
