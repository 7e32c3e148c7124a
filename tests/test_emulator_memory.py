"""Shared, constant and device memory, atomics, printing, and the messages for bad accesses."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from emulator_kernels import Kernels, line_of

from mini_dnn.device import Device
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.errors import DeviceError, LaunchError
from mini_dnn.paths import ROOT

INT = np.int32


@pytest.fixture(scope="module")
def kernels(emulator: EmulatorDevice) -> Kernels:
    return Kernels(emulator, "memory.cu")


def test_constant_and_device_variables(emulator: EmulatorDevice) -> None:
    kernels = Kernels(emulator, "memory.cu")
    weights = emulator.symbol(kernels.module, "weights")
    assert (weights.name, weights.shape, weights.dtype) == ("weights", (32,), np.uint8)
    w = np.arange(8, dtype=np.float32)
    emulator.copy_in(weights, w.view(np.uint8))
    x, y = np.ones(24, np.float32), np.zeros(24, np.float32)
    for _ in range(2):
        kernels("weighted", (3,), (8,), x, y)
    np.testing.assert_array_equal(y, np.tile(w, 3) + np.tile([10, 20, 30], 8))
    count = np.zeros(4, np.uint8)
    emulator.copy_out(emulator.symbol(kernels.module, "launches"), count)
    assert count.view(np.uint32)[0] == 2


def test_modules_have_variables_of_their_own(emulator: EmulatorDevice) -> None:
    first, second = Kernels(emulator, "memory.cu"), Kernels(emulator, "memory.cu")
    for kernels, value in ((first, 1), (second, 2)):
        symbol = emulator.symbol(kernels.module, "weights")
        emulator.copy_in(symbol, np.full(8, value, np.float32).view(np.uint8))
    x, y = np.ones(1, np.float32), np.zeros(1, np.float32)
    first("weighted", (1,), (1,), x, y)
    assert y[0] == 11


def test_unknown_variable_suggests_one(emulator: EmulatorDevice, kernels: Kernels) -> None:
    with pytest.raises(DeviceError, match=r"weights, launches, table \(did you mean 'weights'"):
        emulator.symbol(kernels.module, "wieghts")
    with pytest.raises(DeviceError, match="no __constant__"):
        emulator.symbol(kernels.module, "store")  # a function


def test_static_and_dynamic_shared_memory(kernels: Kernels) -> None:
    x = np.arange(256, dtype=np.float32)
    y = np.zeros(128, np.float32)
    kernels("shared_kinds", (1,), (128,), x, y, shared=1024)
    parts = x[128:][::-1].reshape(2, 64).sum(0)
    np.testing.assert_array_equal(y, np.tile(parts, 2))


def test_227_kb_of_dynamic_shared_memory_fresh_for_each_block(kernels: Kernels) -> None:
    words = 227 * 1024 // 4
    out = np.zeros((50, 2), np.uint32)
    kernels("far_end", (50,), (64,), out, INT(words), shared=words * 4)
    np.testing.assert_array_equal(out, [[0xFFFFFFFF, 1000]] * 50)


def test_atomics_over_many_blocks(kernels: Kernels) -> None:
    threads = 64 * 100
    i = np.zeros(6, INT)
    u = np.array([0, 0xFFFFFFFF, 0, 0, 0], np.uint32)
    ull, f, h = np.zeros(1, np.uint64), np.zeros(1, np.float32), np.zeros(1, np.float16)
    kernels("atomics", (100,), (64,), i, u, ull, f, h)
    np.testing.assert_array_equal(i, [2 * threads, -threads, threads - 1, 1 - threads, 5, threads])
    np.testing.assert_array_equal(u, [0xFFFFFFFF, 0, 0, 0, 0])
    assert ull[0] == threads << 33
    assert f[0] == threads / 2
    assert h[0] == 1000


def test_printf_reaches_pythons_stdout(kernels: Kernels, capsys: pytest.CaptureFixture[str]) -> None:
    kernels("say", (1,), (3,), INT(3))
    assert capsys.readouterr().out.splitlines() == [f"thread {i} of 3: 1.50" for i in range(3)]


def test_much_printing_is_cut_off_and_says_so(kernels: Kernels, capsys: pytest.CaptureFixture[str]) -> None:
    kernels("say", (100,), (1024,), INT(3))
    out = capsys.readouterr().out
    assert len(out) < 1.1 * 2**20
    assert "only the first MiB" in out.splitlines()[-1]


def test_assert_names_condition_line_and_thread(kernels: Kernels) -> None:
    x = np.zeros(64, INT)
    x[37] = -1
    line = line_of("memory.cu", "assert(x[")
    with pytest.raises(LaunchError) as error:
        kernels("check", (1,), (64,), x)
    assert (
        f"thread (37, 0, 0) of block (0, 0, 0): assertion `x[threadIdx.x] >= 0` failed (memory.cu:{line})"
        in str(error.value)
    )


@pytest.mark.parametrize("start", [100, -30])
def test_an_access_off_a_buffer_names_the_buffer(kernels: Kernels, start: int) -> None:
    y = np.zeros(64, np.float32)  # 256 bytes, directly followed by the guard region
    where = "past the end of" if start > 0 else "before the start of"
    if start < 0:
        start -= 4096  # the buffer lies at the end of its page
    with pytest.raises(LaunchError, match=rf"\(0, 0, 0\) of block .* bytes {where} 'arg0' \(64,\) float32"):
        kernels("store", (1,), (8,), y, np.int64(start))


def test_one_element_past_the_end_is_caught(kernels: Kernels) -> None:
    y = np.zeros(64, np.float32)
    kernels("store", (1,), (64,), y, np.int64(0))
    with pytest.raises(LaunchError, match=r"thread \(63, 0, 0\) .*: 0 bytes past the end of 'arg0'"):
        kernels("store", (1,), (64,), y, np.int64(1))


def test_null_pointer_and_division_by_zero(kernels: Kernels) -> None:
    with pytest.raises(LaunchError, match="near no buffer"):
        kernels("load_null", (1,), (1,), np.zeros(1, np.float32))
    y = np.arange(10, dtype=INT)
    with pytest.raises(LaunchError, match=r"thread \(4, 0, 0\) .* divided an integer by zero"):
        kernels("divide", (1,), (10,), y, INT(4))
    with pytest.raises(LaunchError, match=r"thread \(0, 0, 0\) .* C\+\+ does not define, such as a division"):
        kernels("divide_by_constant", (1,), (1,), y)


@pytest.mark.parametrize("barrier", [0, 1])
def test_stack_overflow(kernels: Kernels, barrier: int) -> None:
    shallow = np.array([50, 0], INT)
    kernels("deep", (1,), (3,), shallow, INT(barrier))
    assert shallow[1] == sum(range(50))
    with pytest.raises(LaunchError, match="overflowed its stack of 64 KB"):
        kernels("deep", (1,), (3,), np.array([10**6, 0], INT), INT(barrier))
    with pytest.raises(LaunchError, match="overflowed its stack of 64 KB"):
        kernels("deep", (1,), (3,), np.array([400, 0], INT), INT(1))  # it only reaches the next stack
    kernels("deep", (1,), (3,), shallow, INT(barrier))


def test_stack_overflow_that_is_noticed_at_the_end(kernels: Kernels) -> None:
    with pytest.raises(LaunchError, match=": a thread overflowed its stack of 64 KB"):
        kernels("deep_alone", (1,), (2,), np.array([300, 0], INT))


def test_vector_types(kernels: Kernels) -> None:
    v = np.arange(32, dtype=np.float32).reshape(8, 4)
    k = np.arange(32, dtype=INT).reshape(8, 4)
    out = np.zeros((8, 2), np.float32)
    kernels("vectors", (1,), (8,), v, out, k)
    np.testing.assert_array_equal(out[:, 0], v[:, 0] + v[:, 1] + k[:, 0])
    np.testing.assert_array_equal(out[:, 1], v[:, 2] * v[:, 3] + k[:, 3])


@contextmanager
def interrupted_later() -> Iterator[None]:
    """Press Ctrl-C while the block runs."""
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_even_an_endless_kernel(kernels: Kernels) -> None:
    with pytest.raises(KeyboardInterrupt), interrupted_later():
        kernels("endless", (4,), (32,), np.zeros(1, INT))
    y = np.zeros(64, np.float32)
    kernels("store", (1,), (64,), y, np.int64(0))
    assert y.all()


LATE = """
import ctypes, os, signal
import numpy as np
from pathlib import Path
from mini_dnn.device import open_device
from mini_dnn.device.base import LaunchConfig

device = open_device("emulator")
module = device.compile(Path("tests/kernels/memory.cu"), {})
y = device.empty("y", (64,))
others = set(os.listdir("/proc/self/task"))
for _ in range(2):
    device.launch(module, "store", LaunchConfig((8,), (8,)), [y, np.int64(0)])
    workers = set(os.listdir("/proc/self/task")) - others
    for worker in workers:
        ctypes.CDLL(None).tgkill(os.getpid(), int(worker), signal.SIGSEGV)
assert workers
device.launch(module, "store", LaunchConfig((8,), (64,)), [y, np.int64(0)])
found = np.empty(64, np.float32)
device.copy_out(y, found)
assert (found == 1).all()
"""


def test_a_signal_that_cancels_may_come_after_the_launch() -> None:
    """On a busy machine, a worker that has finished its blocks may not wake up for a second."""
    done = subprocess.run([sys.executable, "-c", LATE], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_buffers_are_full_of_ff(emulator: EmulatorDevice) -> None:
    buffer = emulator.empty("b", (3, 5))
    out = np.zeros((3, 5), np.float32)
    emulator.copy_out(buffer, out)
    assert np.isnan(out).all()
    assert (buffer.name, buffer.shape, buffer.dtype, buffer.nbytes) == ("b", (3, 5), np.float32, 60)
    buffer.free()
    buffer.free()
    with pytest.raises(DeviceError, match=r"'b' \(3, 5\) was freed"):
        emulator.copy_out(buffer, out)


def test_budget(emulator: EmulatorDevice) -> None:
    free = emulator.free_bytes()
    assert 0 < free <= 1 << 30
    buffer = emulator.empty("half", (free // 2,), np.uint8)
    assert emulator.free_bytes() == free - buffer.nbytes
    with pytest.raises(DeviceError, match=r"out of device memory: 'more' .* MB are free"):
        emulator.empty("more", (free,), np.uint8)
    buffer.free()
    assert emulator.free_bytes() == free
    emulator.empty("dropped", (1000,))  # there is no reference to it
    assert emulator.free_bytes() == free


def test_copies_check_dtype_size_and_order(device: Device) -> None:
    buffer = device.empty("b", (4, 6))
    device.copy_in(buffer, np.zeros(24, np.float32))
    for wrong in (np.zeros((4, 3)), np.zeros(23, np.float32), np.zeros((6, 4), np.float32).T):
        with pytest.raises(DeviceError, match=r"buffer 'b' is \(4, 6\) float32; the host array is"):
            device.copy_in(buffer, wrong)
    frozen = np.zeros((4, 6), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(DeviceError, match="read-only"):
        device.copy_out(buffer, frozen)
    buffer.free()


LITTLE_ROOM = """
import resource, sys
import numpy as np
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.ops import find as operation
from mini_dnn.running.runner import run
from mini_dnn.variant import find

device, variant = EmulatorDevice(threads=64), find("m2")
problem = operation("conv2d").parse("40,1,40,40,4,3,3")
arrays = operation("conv2d").inputs(problem, 0)
device.compile(variant.source, variant.planned(problem, 1 << 16).defines)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = used + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(np.isfinite(run(variant, problem, arrays, device).y).all())
"""


@pytest.mark.parametrize("room_mb", [1200, 2000])
def test_workers_without_room_for_stacks_leave_the_blocks_to_others(room_mb: int) -> None:
    """This may happen if a process may use little address space on a machine with many cores."""
    words = [sys.executable, "-c", LITTLE_ROOM, str(room_mb)]
    environment = os.environ | {"MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.stdout == "True\n", done.stderr
