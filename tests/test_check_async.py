"""Checked mode on asynchronous copies: the messages, and cases that the corpus does not contain."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from emulator_kernels import Kernels, line_of

from mini_dnn.checking.check import check
from mini_dnn.cli.check import describe
from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.device.finding import Finding
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import find

INT = np.int32


@pytest.fixture(scope="module")
def kernels() -> Iterator[Kernels]:
    with closing(CheckedEmulator()) as device:
        yield Kernels(device, "ptx.cu")


def finding(kernels: Kernels, kernel: str, *args: np.ndarray | np.generic) -> Finding:
    with pytest.raises(KernelError) as caught:
        kernels(kernel, (1,), (32,), *args)
    return caught.value.finding


def test_read_of_what_is_under_way(kernels: Kernels) -> None:
    x, out = np.ones((64, 12), INT), np.zeros((64, 12), INT)
    found = finding(kernels, "async_groups", x, np.array([16, 8, 4], INT), out, out.copy(), out.copy())
    assert found.kind == "async"
    assert found.what.startswith(
        "read of places[0][0] of shared array places 64x12 while a cp_async that will fill it"
    )
    assert found.place is not None
    assert found.place.line == line_of("ptx.cu", "out[12 * threadIdx.x + i] = places[threadIdx.x][i]")
    assert found.other is not None
    assert found.other.place is not None
    assert found.other.place.code == "ptx::cp_async<16>(place, mine, valid[0]);"
    assert "cp_async_wait<n>()" in found.cure


@pytest.mark.parametrize(
    ("wait", "what", "line"),
    [
        (
            0,
            "write of buffer[0] of shared array buffer 32 while a bulk_store that will read it",
            "buffer[i] = -1;",
        ),
        (
            2,
            "write of buffer[0] of shared array buffer 32 while a bulk_store that will read it",
            "buffer[i] = -1;",
        ),
    ],
)
def test_source_of_a_store_is_written(kernels: Kernels, wait: int, what: str, line: str) -> None:
    found = finding(kernels, "bulk_store_early", np.zeros(32, np.float32), INT(wait))
    assert found.kind == "async"
    assert found.what.startswith(what)
    assert found.place is not None
    assert line in found.place.code


@pytest.mark.parametrize(("commits", "cure"), [(True, "call bulk_wait_read"), (False, "commit the group")])
def test_store_that_nobody_waits_for(kernels: Kernels, commits: bool, cure: str) -> None:
    found = finding(kernels, "bulk_store_left", np.zeros(32, np.float32), np.bool_(commits))
    assert found.kind == "async"
    assert found.cure.startswith(cure)
    assert found.what.startswith("the block ends without waiting for the bulk_store")
    assert found.place is not None
    assert "ptx::bulk_store(out" in found.place.code


def test_copy_to_what_is_still_read(kernels: Kernels) -> None:
    x = np.zeros(32, np.float32)
    assert isinstance(kernels.device, CheckedEmulator)
    kernels.device.set_schedule(1, 0)  # thread 0 is the last one
    found = finding(kernels, "bulk_again", x, x.copy(), INT(128))
    kernels.device.set_schedule(0, 0)
    assert (found.kind, "arrive at an mbarrier" in found.cure) == ("race", True)
    assert found.what == (
        "a copy of 128 bytes to buffer[0] of shared array buffer 32 starts, and nothing orders it after "
        "another thread's read of these bytes"
    )


def test_store_of_what_no_fence_follows(kernels: Kernels) -> None:
    y = np.zeros(32, np.float32)
    for fence in (1, 2):
        kernels("bulk_store_fence", (1,), (32,), y, INT(fence))
        assert (y == np.arange(32)).all()
    found = finding(kernels, "bulk_store_fence", y, INT(0))
    assert found.kind == "async"
    assert found.what.startswith(
        "bulk_store from buffer[0] of shared array buffer 32, which was written without a"
    )
    assert found.place is not None
    assert "ptx::bulk_store(out" in found.place.code
    assert found.other is not None
    assert found.other.place is not None
    assert found.other.place.code == "buffer[threadIdx.x] = threadIdx.x;"


def test_deadlock(kernels: Kernels) -> None:
    x = np.zeros(32, np.float32)
    kernel = "bulk_wait_only"
    found = finding(kernels, kernel, x)
    assert found.kind == "deadlock"
    assert found.place is not None
    assert found.place.line == line_of("ptx.cu", "// never")
    assert any("with 1 of 2 arrivals missing" in note for note in found.notes)
    found = finding(kernels, "bulk_again", x, x, INT(256))
    assert found.what.endswith("never ends: it expects 256 bytes, and its copies bring 128")
    assert found.place is not None
    assert found.place.line == line_of("ptx.cu", "// few bytes")


@pytest.mark.parametrize("parts", [1, 5])
def test_nothing_in_a_correct_pipeline(kernels: Kernels, parts: int) -> None:
    x = np.ones((parts, 256), np.float32)
    y = np.zeros_like(x)
    kernels("bulk_double", (1,), (64,), x, y, INT(parts))
    assert (y == 2).all()


def test_nothing_where_mbarriers_order_threads(kernels: Kernels) -> None:
    order = np.zeros((4, 3), INT)
    kernels("take_turns", (1,), (96,), order, INT(4))
    assert (order == np.arange(3)).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["layers/custom", "m3/fp32_split"])
def test_kernels_of_the_course_that_use_them(name: str) -> None:
    """Shapes whose rows are multiples of 16 bytes, with full and partial bands."""
    report = check(find(name), (ConvShape(2, 1, 22, 32, 4, 3, 3), ConvShape(2, 4, 25, 16, 16, 3, 3)))
    assert not report.findings, "\n".join(describe(report))
