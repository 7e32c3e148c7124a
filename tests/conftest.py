"""Fixtures that several test files share, and what holds for all tests."""

import signal
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from mini_dnn.device import Device, open_device
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.emulator.runtime_build import build_runtime
from mini_dnn.errors import DeviceError

# The same examples each time, however long they take: neither luck nor a busy machine decides.
settings.register_profile(
    "mini_dnn", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("mini_dnn")
LEFT_OUT = pytest.StashKey[int]()


@cache
def why_no_gpu() -> str:
    """Why no CUDA device can be opened; empty if one can."""
    try:
        open_device("cuda").close()
    except DeviceError as error:
        return str(error)
    return ""


def pytest_configure(config: pytest.Config) -> None:
    """Build what all kernels share before workers start, each of which would build it for itself."""
    if config.getoption("numprocesses", None):
        with suppress(DeviceError):  # whoever needs a compiler tells that there is none
            for checked in (False, True):
                build_runtime(find_compiler(), ucontext=False, checked=checked)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that need a GPU where there is none; `pytest_terminal_summary` tells."""
    need_one = [item for item in items if item.get_closest_marker("gpu")]
    for item in need_one:  # the driver waits for a kernel that does not end, and lets no signal through
        item.add_marker(pytest.mark.timeout(method="thread"))
    if need_one and why_no_gpu():
        config.hook.pytest_deselected(items=need_one)
        items[:] = [item for item in items if item not in need_one]
        config.stash[LEFT_OUT] = len(need_one)
        getattr(config, "workeroutput", {})["left_out"] = len(need_one)  # of a process of pytest-xdist


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over from a worker how many tests were left out: all of them collect the same."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"{count} tests that need a GPU were left out: {why_no_gpu()}")


@pytest.fixture(scope="session")
def emulator() -> Iterator[Device]:
    with closing(open_device("emulator")) as opened:
        yield opened


@pytest.fixture(scope="session")
def cuda() -> Iterator[Device]:
    with closing(open_device("cuda")) as opened:
        yield opened


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Each device in turn."""
    opened: Device = request.getfixturevalue(request.param)
    return opened


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C reaches this process and its children, even if pytest was started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
