"""Checked mode on early launches: what a kernel may access before it waits for the previous launches."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import numpy as np
import pytest
from emulator_kernels import FOLDER, line_of

from mini_dnn.device.base import Buffer, LaunchConfig, Module
from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.device.finding import Finding

FIRST, LATER, ANOTHER, NEVER, COPY, CP_ASYNC = range(6)  # constants of ahead.cu
BLOCKS = 2
SIZE = 32 * BLOCKS


class Plan:
    """Launches on one stream with shared arrays."""

    def __init__(self, device: CheckedEmulator, module: Module) -> None:
        self.device, self.module = device, module
        self.stack = ExitStack()
        self.arrays: dict[str, Buffer] = {}
        for name in ("w", "x", "y", "z"):
            self.arrays[name] = buffer = device.empty(name, (SIZE,))
            self.stack.callback(buffer.free)
            device.copy_in(buffer, np.ones(SIZE, np.float32))

    def launch(
        self, kernel: str, *args: str | float, early: bool = True, blocks: int = BLOCKS, threads: int = 32
    ) -> None:
        """Launch a kernel."""
        given = [
            self.arrays[a] if isinstance(a, str) else np.int32(a) if isinstance(a, int) else np.float32(a)
            for a in args
        ]
        self.device.launch(self.module, kernel, LaunchConfig((blocks,), (threads,), early=early), given)

    def fails(self, kernel: str, *args: str | float, blocks: int = BLOCKS, threads: int = 32) -> Finding:
        """Return the finding in an early launch."""
        with pytest.raises(KernelError) as caught:
            self.launch(kernel, *args, blocks=blocks, threads=threads)
        return caught.value.finding


@pytest.fixture(scope="module")
def compiled() -> Iterator[tuple[CheckedEmulator, Module]]:
    with closing(CheckedEmulator()) as device:
        yield device, device.compile(FOLDER / "ahead.cu", {})


@pytest.fixture
def plan(compiled: tuple[CheckedEmulator, Module]) -> Iterator[Plan]:
    found = Plan(*compiled)
    with found.stack:
        yield found


@pytest.mark.parametrize("when", [LATER, COPY, CP_ASYNC])
def test_what_a_launch_ahead_writes_is_read_before_the_wait(plan: Plan, when: int) -> None:
    plan.launch("fill", "w", 3.0, early=False)
    found = plan.fails("add", "w", "x", "y", when)
    assert found.kind == "race"
    assert found.what == (
        "add reads w[0] of global array w (64,), which fill writes, before ptx::grid_wait(): the launch is "
        "early, and that of fill may still run"
    )
    assert "ptx::grid_wait()" in found.cure
    assert found.place is not None
    marks = {LATER: "kept[threadIdx.x] = w[i]", COPY: "ptx::bulk_load(", CP_ASYNC: "ptx::cp_async<4>"}
    assert found.place.line == line_of("ahead.cu", marks[when])


@pytest.mark.parametrize("when", [FIRST, ANOTHER, LATER, NEVER, COPY, CP_ASYNC])
def test_what_the_host_gave_may_be_read_at_any_time(plan: Plan, when: int) -> None:
    blocks = 1 if when == NEVER else BLOCKS  # if there were others, some would not wait
    plan.launch("fill", "x", 3.0, early=False)
    plan.launch("add", "w", "x", "y", when, blocks=blocks)
    found = np.zeros(SIZE, np.float32)
    plan.device.copy_out(plan.arrays["y"], found)
    assert (found[: 32 * blocks] == 4.0).all()


@pytest.mark.parametrize("when", [FIRST, ANOTHER])
def test_what_a_launch_ahead_writes_may_be_read_after_the_wait(plan: Plan, when: int) -> None:
    plan.launch("fill", "w", 3.0, early=False)
    plan.launch("add", "w", "x", "y", when)


def test_each_block_waits_for_itself(plan: Plan) -> None:
    plan.launch("fill", "x", 3.0, early=False)
    found = plan.fails("add", "w", "x", "y", NEVER)
    assert found.what.startswith(
        "add reads x[32] of global array x (64,), which fill writes, before ptx::grid_wait()"
    )


def test_a_launch_in_between_that_is_early_orders_nothing(plan: Plan) -> None:
    plan.launch("fill", "w", 3.0, early=False)
    plan.launch("fill", "x", 3.0)
    assert "which fill writes" in plan.fails("add", "w", "x", "y", LATER).what


def test_a_launch_in_between_that_waits_orders_all(plan: Plan) -> None:
    plan.launch("fill", "w", 3.0, early=False)
    plan.launch("fill", "x", 3.0, early=False)
    plan.launch("add", "w", "x", "y", LATER)


def test_a_launch_that_is_not_early_need_not_wait(plan: Plan) -> None:
    plan.launch("fill", "w", 3.0, early=False)
    plan.launch("add", "w", "x", "y", LATER, early=False)


def test_other_work_in_between_orders_all(plan: Plan) -> None:
    device, w = plan.device, plan.arrays["w"]
    for work in (
        device.synchronize,
        lambda: device.copy_out(w, np.empty(SIZE, np.float32)),
        lambda: device.wait(None, 0),
        lambda: device.copy(plan.arrays["z"], plan.arrays["x"]),
    ):
        plan.launch("fill", "w", 3.0, early=False)
        work()
        plan.launch("add", "w", "x", "y", LATER)


def test_what_a_launch_ahead_reads_is_written_before_the_wait(plan: Plan) -> None:
    plan.launch("look", "x", "y", early=False, blocks=1)
    plan.launch("overwrite", "x", 1, blocks=1)
    plan.launch("look", "x", "y", early=False, blocks=1)
    found = plan.fails("overwrite", "x", 0, blocks=1)
    assert found.what.startswith(
        "overwrite writes x[0] of global array x (64,), which look reads, before ptx::grid_wait()"
    )


@pytest.mark.parametrize("how", [10, 11, 14])
def test_a_thread_that_another_one_lets_go_on_need_not_wait(plan: Plan, how: int) -> None:
    plan.launch("fill", "w", 3.0, early=False)
    plan.launch("meet", "w", "y", how, blocks=1, threads=64)
    found = np.zeros(SIZE, np.float32)
    plan.device.copy_out(plan.arrays["y"], found)
    assert (found == 3.0).all()


@pytest.mark.parametrize("how", [12, 13])
def test_a_thread_that_waits_for_nothing_is_found_in_any_order(plan: Plan, how: int) -> None:
    """Or for an mbarrier at which another thread arrives before its own wait."""
    for schedule in (0, 1):
        plan.device.set_schedule(schedule, 0)
        plan.launch("fill", "w", 3.0, early=False)
        found = plan.fails("meet", "w", "y", how, blocks=1, threads=64)
        assert found.what.startswith("meet reads w[")
        assert found.own is not None
        assert found.own.thread[0] >= 32
    plan.device.set_schedule(0, 0)
