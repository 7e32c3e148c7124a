"""Checked mode, many short kernels a file: each mistake by its kind and line, and none where there is none."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mini_dnn.checking.schedules import SCHEDULES, all_schedules
from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.device.finding import Finding

FILES = sorted(Path(__file__).with_name("checked").glob("*.cu"))
KERNEL = re.compile(
    r'^// launch: (?P<grid>\d+), (?P<block>\d+)\nextern "C" __global__ void (?P<name>\w+)'
    r"(?P<body>.*?^\}$)",
    re.MULTILINE | re.DOTALL,
)
MARK = re.compile(r"// expect: ([\w-]+)")
LIMIT = 2_000_000  # steps: some of these kernels wait for each other


@dataclass(frozen=True)
class Case:
    """A kernel, and where its mistake is; line 0: it has none."""

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
            line = text.count("\n", 0, match.start("body") + mark.start()) + 1 if mark else 0
            kind = mark[1] if mark else ""
            found.append(Case(file, match["name"], int(match["grid"]), int(match["block"]), kind, line))
        assert text.count("__global__") == sum(case.file == file for case in found), file
    return found


CASES = cases()


@pytest.fixture(scope="module")
def device() -> CheckedEmulator:
    return CheckedEmulator(LIMIT)


def findings(device: CheckedEmulator, case: Case) -> list[Finding]:
    """What any order finds, with x of numbers, zero flags, and two buffers that nobody has written."""
    module = device.compile(case.file, {})

    def once(schedule: str) -> Finding | None:
        device.set_schedule(SCHEDULES.index(schedule), 0)
        x, y, part = (device.empty(name, (1024,)) for name in ("x", "y", "part"))
        flags = device.empty("flags", (64,), np.int32)
        device.copy_in(x, np.arange(1024, dtype=np.float32))
        device.copy_in(flags, np.zeros(64, np.int32))
        try:
            device.launch(module, case.name, (case.grid,), (case.block,), (x, y, part, flags))
        except KernelError as error:
            return error.finding
        finally:
            for buffer in (x, y, part, flags):
                buffer.free()
        return None

    return all_schedules(once, SCHEDULES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file.stem}-{case.name}")
def test_kernel(device: CheckedEmulator, case: Case) -> None:
    found = findings(device, case)
    told = [(f.kind, f.place.line if f.place else 0, f.what) for f in found]
    if not case.kind:
        assert not found, told
        return
    assert [(kind, line) for kind, line, _ in told] == [(case.kind, case.line)], told
    assert found[0].cure
