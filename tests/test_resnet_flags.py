"""networks/resnet18/v7_one_kernel: checked mode finds a flag that is not released or not waited for."""

import shutil
from pathlib import Path

import pytest

from mini_dnn.checking.check import check
from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.variant import find

NAME = "networks/resnet18/v7_one_kernel"
SMALL = ResNetShape(1, 33, 3, "imagenet", "64-64-64-64", "1-1-1-1", 3, "fp16")
STEPS = 100_000  # per block, until a block that waits forever is stopped

MISTAKES = {  # file, its text, the replacement, the expected finding
    "no release": ("tiles.cuh", "if (lane == 0) flags::release(l.done + above);", ";", {"endless"}),
    "no fence before the flag": (
        "flags.cuh",
        "__threadfence();\n  atomicAdd(flag, 1);",
        "atomicAdd(flag, 1);",
        {"race"},
    ),
    "no wait": ("flags.cuh", "< often)", "< 0)", {"race", "uninitialised"}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_with_a_flag_is_found(tmp_path: Path, mistake: str) -> None:
    file, right, wrong, kinds = MISTAKES[mistake]
    folder = tmp_path / "v7"
    shutil.copytree(find(NAME).source.parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / file).read_text()
    assert text.count(right) == 1
    (folder / file).write_text(text.replace(right, wrong))
    report = check(find(str(folder)), [SMALL], schedules=["forward"], limit=STEPS)
    found = [result.finding.kind for result in report.results if result.finding]
    assert found
    assert set(found) <= kinds


@pytest.mark.exhaustive
def test_the_kernel_itself_is_clean_in_any_order() -> None:
    """One launch follows another: blocks of a cluster must not remember flags of the previous launch."""
    report = check(find(NAME), [SMALL])
    assert [result.finding for result in report.results] == [None]
