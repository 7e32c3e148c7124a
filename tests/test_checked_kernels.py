"""Checked mode on many short kernels: each mistake by kind and line, and no finding in correct kernels."""

import re
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import Kernels

from mini_dnn.checking.schedules import SCHEDULES, all_schedules
from mini_dnn.device.base import LaunchConfig
from mini_dnn.device.emulator import EmulatorDevice, symbols
from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.device.finding import Finding

FILES = sorted(Path(__file__).with_name("checked").glob("*.cu"))
KERNEL = re.compile(
    r'^// launch: (?P<grid>\d+), (?P<block>\d+)\nextern "C" __global__ void (?P<name>\w+)'
    r"(?P<body>.*?^\}$)",
    re.MULTILINE | re.DOTALL,
)
MARK = re.compile(r"// expect: ([\w-]+)(?: in (\w+))?")
LIMIT = 2_000_000  # steps, because some of these kernels wait for each other


@dataclass(frozen=True)
class Case:
    """A kernel and the line of its mistake; line 0 if it has none."""

    file: Path
    name: str
    grid: int
    block: int
    kind: str
    line: int


def cases() -> list[Case]:
    found = []
    for file in FILES:
        text = file.read_text()
        for match in KERNEL.finditer(text):
            mark = MARK.search(match["body"])
            at = match.start("body") + mark.start() if mark else 0
            if mark and mark[2]:
                at = text.index(f"// {mark[2]} goes wrong")
            line = text.count("\n", 0, at) + 1 if mark else 0
            kind = mark[1] if mark else ""
            found.append(Case(file, match["name"], int(match["grid"]), int(match["block"]), kind, line))
        assert text.count("__global__") == sum(case.file == file for case in found), file
    return found


CASES = cases()


@pytest.fixture(scope="module")
def device() -> CheckedEmulator:
    return CheckedEmulator(LIMIT)


def findings(device: CheckedEmulator, case: Case, schedules: Sequence[str] = SCHEDULES) -> list[Finding]:
    """The findings of these orders. x holds numbers, flags are zero, and two buffers are unwritten."""
    module = device.compile(case.file, {})
    device.forget_undefined()
    results: set[bytes] = set()

    def once(schedule: str) -> Finding | None:
        device.set_schedule(SCHEDULES.index(schedule), 0)
        x, y, part = (device.empty(name, (1024,)) for name in ("x", "y", "part"))
        flags = device.empty("flags", (64,), np.int32)
        device.copy_in(x, np.arange(1024, dtype=np.float32))
        device.copy_in(flags, np.zeros(64, np.int32))
        try:
            device.launch(module, case.name, LaunchConfig((case.grid,), (case.block,)), (x, y, part, flags))
            out = np.empty(1024, np.float32)
            device.copy_out(y, out)
            results.add(out.tobytes())
        except KernelError as error:
            return error.finding
        finally:
            for buffer in (x, y, part, flags):
                buffer.free()
        return None

    found = all_schedules(once, schedules)
    if not found and len(results) > 1:  # undefined results of a shuffle count
        return device.undefined[:1]
    return found


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.file.stem == "phases" and c.kind], ids=lambda c: c.name
)
def test_what_an_mbarrier_orders_does_not_depend_on_luck(
    device: CheckedEmulator, case: Case, schedule: str
) -> None:
    """Others may have waited before, arrived later, or run meanwhile."""
    assert findings(device, case, (schedule,))


def lines(finding: Finding) -> list[int]:
    """The lines of a finding. For a race they are both lines, because the order decides which comes first."""
    parties = (finding.own, finding.other) if finding.kind == "race" else (finding.own,)
    return [party.place.line for party in parties if party and party.place]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file.stem}-{case.name}")
def test_kernel(device: CheckedEmulator, case: Case) -> None:
    found = findings(device, case)
    told = [(f.kind, lines(f), f.what) for f in found]
    if not case.kind:
        assert not found, told
        return
    assert [kind for kind, _, _ in told] == [case.kind], told
    assert case.line in told[0][1], told
    assert found[0].cure


def arrays_after(device: EmulatorDevice, case: Case) -> list[np.ndarray]:
    """The arrays after a launch in the device's own order."""
    x = np.arange(1024, dtype=np.float32)
    rest = [np.zeros(1024, np.float32), np.zeros(1024, np.float32), np.zeros(64, np.int32)]
    Kernels(device, case.file)(case.name, (case.grid,), (case.block,), x, *rest)
    return rest


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [1, 2])
def test_in_the_fast_mode(workers: int, device: CheckedEmulator) -> None:
    """Kernels that wait come to an end, and results are those of checked mode."""
    device.set_schedule(0, 0)
    with closing(EmulatorDevice(threads=workers)) as fast:
        for case in CASES:
            if case.kind or case.file.stem not in ("fences", "heap", "spins", "virtual"):
                continue
            for found, expected in zip(arrays_after(fast, case), arrays_after(device, case), strict=True):
                np.testing.assert_array_equal(found, expected, case.name)


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("no_barrier_after_init", "let one thread call mbarrier_init"),
        ("gives_back_too_early", "let the thread of the first access arrive at an mbarrier"),
        ("bool_no_barrier", "put a __syncthreads() between"),  # its file has no mbarrier
    ],
)
def test_mistakes_with_mbarriers_have_cures_of_their_own(
    name: str, cure: str, device: CheckedEmulator
) -> None:
    (case,) = (case for case in CASES if case.name == name)
    assert findings(device, case, ("reverse",))[0].cure.startswith(cure)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("halves_beyond_the_end", "outside shared array a 48, element 48 of 48"),
        ("barrier_skipped_by_an_early_return", "the elements that they should load are missing"),
        ("one_warp_does_not_wait", "of shared array value, without a __syncthreads() between them"),
        ("last_of_four", "s[0][3] of shared array s 32x4, which no thread of the block has written"),
        ("last_row_of_a_halo", "which no thread of the block has written"),  # other threads return at the end
    ],
)
def test_what_it_says(name: str, end: str, device: CheckedEmulator) -> None:
    (case,) = (case for case in CASES if case.name == name)
    finding = findings(device, case, ("forward",))[0]
    assert "; ".join((finding.what, *finding.notes)).endswith(end)


@pytest.mark.parametrize(
    ("name", "same"), [("all_say_yes", True), ("blocks_say_yes", True), ("all_count", False)]
)
def test_writes_of_the_same_value(name: str, same: bool, device: CheckedEmulator) -> None:
    (case,) = (case for case in CASES if case.name == name)
    (finding,) = findings(device, case)
    assert ("both write the same value" in finding.what) == same
    assert any("harmless" in note for note in finding.notes) == same


ALIASES = """\
extern "C" __global__ void shift(const float* __restrict__ x, float* y) {
  const float value = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = 2.0f * value;
  __syncthreads();
  if (AGAIN) y[threadIdx.x] += x[63 - threadIdx.x];
}
"""


@pytest.mark.parametrize("again", [0, 1])
def test_a_restricted_pointer_to_what_is_written(again: int, device: CheckedEmulator, tmp_path: Path) -> None:
    """Using each element in place is correct, but reading what was written is a mistake."""
    (tmp_path / "kernel.cu").write_text(ALIASES)
    module = device.compile(tmp_path / "kernel.cu", {"AGAIN": again})
    buffer, other = device.empty("x", (64,)), device.empty("y", (64,))
    device.copy_in(buffer, np.ones(64, np.float32))
    device.launch(module, "shift", LaunchConfig((1,), (64,)), (buffer, other))
    if not again:
        device.launch(module, "shift", LaunchConfig((1,), (64,)), (buffer, buffer))
        return
    with pytest.raises(KernelError) as error:
        device.launch(module, "shift", LaunchConfig((1,), (64,)), (buffer, buffer))
    finding = error.value.finding
    assert (finding.kind, lines(finding)[0]) == ("race", 6)
    assert "const __restrict__" in finding.what


FRENCH = """\
#!/bin/sh
[ "$LC_ALL" = C ] && exec {tool} "$@"
{tool} "$@" | sed "s/'.symtab'/« .symtab »/"
"""


def test_tools_may_speak_another_language(
    device: CheckedEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def french(name: str) -> str:
        asked.append(name)
        file = tmp_path / name
        file.write_text(FRENCH.format(tool=shutil.which(name)))
        file.chmod(0o755)
        return str(file)

    monkeypatch.setenv("LC_ALL", "fr_FR.UTF-8")
    monkeypatch.setattr(symbols, "_tool", french)
    (tmp_path / "kernel.cu").write_text(ALIASES)
    device.compile(tmp_path / "kernel.cu", {"AGAIN": 0})
    assert asked
