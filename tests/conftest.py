"""Fixtures that several test files share, and settings for all tests."""

import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from typing import Any

import absent
import numpy as np
import pytest
from browser import Browser, find_chromium
from hypothesis import HealthCheck, settings
from sampling import sample

from mini_dnn.device import Device, open_device
from mini_dnn.device.emulator import EmulatorDevice, runtime_build
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.emulator.runtime_build import build_runtime
from mini_dnn.errors import DeviceError
from mini_dnn.report import theme

# The same examples each time, however long they take, so that neither luck nor a busy machine decides.
settings.register_profile(
    "mini_dnn", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("mini_dnn")


LEFT_OUT = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run a part of the cases of each test, and of the exhaustive tests; another SEED selects others"
    parser.addoption("--sample", metavar="SEED", help=text)


@pytest.fixture(autouse=True, scope="session")
def nvcc_is_not_asked() -> Iterator[None]:
    """Keep ``check`` from asking nvcc, which takes a second per kernel.

    Tests of nvcc's messages do ask it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mini_dnn.checking.limits.find_nvcc", lambda: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def nothing_is_logged() -> Iterator[None]:
    """Keep tests from writing to the work log of the person who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MINI_DNN_LOG", raising=False)
        yield


@cache
def why_no_gpu() -> str:
    """Return the reason why no CUDA device can be opened; empty if one can."""
    try:
        open_device("cuda").close()
    except DeviceError as error:
        return str(error)
    return ""


def pytest_configure(config: pytest.Config) -> None:
    """Prepare what the workers share, before they start."""
    if config.getoption("numprocesses", None):
        # The workers use all cores. Threads of OpenBLAS would only spin while they wait for each other.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with suppress(DeviceError), ThreadPoolExecutor() as pool:  # many tests report this error
            compiler = find_compiler()
            ways = ((compiler, True), (compiler, False), (replace(compiler, counted=True), False))
            list(pool.map(lambda way: build_runtime(way[0], ucontext=False, checked=way[1]), ways))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude objects that exist before the tests from garbage collection: they live until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that need a GPU if there is none, and reduce the tests to a sample if that is asked for."""
    if (seed := config.getoption("sample")) is not None:
        kept = sample(items, seed)
        left_out = set(items) - set(kept)
        config.stash[LEFT_OUT] = len(left_out)
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = kept
    # Type checking is first, because it takes longest. Tests that wait for an engine are next,
    # so that other tests use the cores meanwhile.
    items.sort(key=lambda item: (item.path.name != "test_style.py", not item.get_closest_marker("engines")))
    need_one = [item for item in items if item.get_closest_marker("gpu")]
    reason = why_no_gpu() if need_one else ""
    # The driver waits for a kernel that does not end, and signals are not handled meanwhile
    for item in need_one:
        item.add_marker(pytest.mark.timeout(method="thread"))
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {reason}"))
    if absent.record():
        for item in items:
            if item.get_closest_marker("whole"):
                item.add_marker(pytest.mark.skip(reason="a handout is not the whole repository"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker, send the number of tests that the sample leaves out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receive it: each worker has collected the same tests."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left out", 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """In a handout, skip tests that need something that the handout leaves out."""
    report = yield
    text = report.longreprtext + "".join(content for _, content in report.sections)
    if report.failed and (why := absent.why_absent(text)):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: {why}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """In a handout, also skip test files that cannot be imported."""
    report = yield
    if report.failed and (why := absent.why_absent(report.longreprtext)):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {why}")
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Report what was left out: a line for the sample, and one for each reason; pytest has one per place."""
    if left_out := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(
            f"not in the sample {config.getoption('sample')!r}: {left_out} tests; `make test EXHAUSTIVE=1` "
            "runs all"
        )
    told = (report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    reasons = Counter(absent.LEFT_OUT if absent.LEFT_OUT in reason else reason for reason in told)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason.removeprefix('Skipped: ')}")


@pytest.fixture(scope="session")
def emulator() -> Iterator[Device]:
    with closing(open_device("emulator")) as opened:
        yield opened


@pytest.fixture(scope="session")
def cuda() -> Iterator[Device]:
    with closing(open_device("cuda")) as opened:
        yield opened


@pytest.fixture(scope="session")
def quick_emulator() -> Iterator[Device]:
    with closing(EmulatorDevice(quick=True)) as opened:
        yield opened


@pytest.fixture(
    params=[pytest.param("quick_emulator", id="emulator"), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def device(request: pytest.FixtureRequest) -> Device:
    """Each device in turn."""
    opened: Device = request.getfixturevalue(request.param)
    return opened


@pytest.fixture
def on_hopper(device: Device) -> Device:
    """Each device that has products of warpgroups."""
    if device.arch != 90:
        pytest.skip(f"products of a warpgroup need sm_90a, the device is sm_{device.arch}")
    return device


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with closing(Browser(program)) as started:
        yield started


@pytest.fixture
def unoptimised_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runtimes that are compiled for a few tests, and therefore in half the time."""
    monkeypatch.setattr(runtime_build, "RUNTIME_FLAGS", (*runtime_build.RUNTIME_FLAGS, "-O0"))


@pytest.fixture
def unplotted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without plots, which take most of the time, for tests of the other parts."""
    monkeypatch.setattr(theme, "_render", lambda draw, on, form: b"")


@pytest.fixture
def plotted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports whose plots are drawn for one background, in one format and coarsely."""
    render = theme._render
    monkeypatch.setattr(theme, "DOTS_PER_INCH", 40)
    monkeypatch.setattr(
        theme, "_render", lambda draw, on, form: render(draw, on, form) if form == "png" else b""
    )


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C reach this process and its children, even if pytest was started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
