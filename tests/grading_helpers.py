"""Helpers for tests of grading: a quick rubric, assembled cheats, and a confined process."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from mini_dnn.grading import rubric
from mini_dnn.grading.confined import sandbox
from mini_dnn.grading.confined.sandbox import Isolation
from mini_dnn.grading.grader import Grader, Setting
from mini_dnn.paths import ROOT

CHEATS = Path(__file__).parent / "cheats"
GOOD, DENIED = 0, 13  # results of a confined process; other error numbers occur, too
# Bytes of address space. Confined processes are forked from this one, in which other tests may have reserved
# 2 TB: the emulator keeps the stacks of blocks that wait for each other, with 17 GB of guard pages on either
# side of each.
ROOM = 1 << 44
QUICK = """
name = "quick"

[limits]
seconds = 300  # far above what any answer takes on a busy machine
memory_mb = 2048
output_kb = 64
files_mb = 32

[correct]
shapes = [[2, 2, 9, 21, 3, 2, 5]]
seed = 1

[hidden]
shapes = [[1, 3, 12, 10, 5, 4, 3]]
seeds = [4242]

[[variant]]
name = "layers/custom"
precision = "fp16"
host = true
points = { correct = 4, hidden = 3 }
"""

REPOSITORY = (
    QUICK
    + """
[[variant]]
name = "m1/cpu"
host = true
points = { correct = 2 }

[[variant]]
name = "m1/tiled_direct"
points = { correct = 2 }

[[variant]]
name = "m3/restrict"
required = false
points = { correct = 1 }

[[variant]]
name = "m3/cublas"
required = false
points = { correct = 1 }

[[variant]]
name = "m3/sweep"
required = false
points = { correct = 1 }
"""
)


def names(where: str) -> list[str]:
    """The cheats for a kind of check: "processor", "checked" mode, "timed" with a clock, or "apart"."""
    folders = sorted(path for path in CHEATS.iterdir() if path.is_dir() and path.name != "_base")
    found = {folder.name: re.search(r"where: (\w+)", texts(folder)) for folder in folders}
    return [name for name, match in found.items() if (match[1] if match else "processor") == where]


def texts(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.iterdir() if path.is_file() and not path.is_symlink())


def expected(name: str) -> str:
    """The reason that the cheat's own files expect, as a regular expression."""
    if (CHEATS / name / "EXPECT").is_file():
        return (CHEATS / name / "EXPECT").read_text().strip()
    return re.search(r"^(?:#|//) expect: (.*)$", texts(CHEATS / name), re.MULTILINE)[1]


def assemble(name: str, folder: Path, **places: Path) -> Path:
    """Assemble a submission from the cheat's files and the base's, with real paths filled in."""
    target = folder / name
    shutil.copytree(CHEATS / "_base", target)
    for path in (CHEATS / name).iterdir():
        if path.is_symlink():
            (target / path.name).unlink()
        if path.name != "EXPECT":
            shutil.copy(path, target / path.name, follow_symlinks=False)
    for path in target.iterdir():
        if not path.is_symlink():
            text = path.read_text()
            for word, place in places.items():
                text = text.replace(f"@{word.upper()}@", str(place))
            path.write_text(text)
    return target


def quick_setting(folder: Path, **changes: object) -> Setting:
    path = folder / "quick.toml"
    path.write_text(QUICK)
    return Setting(**{"rubric": rubric.load(path), "out": folder / "out", "device": "emulator", **changes})


def honest(folder: Path, name: str = "honest") -> Path:
    return Path(shutil.copytree(ROOT / "milestones/m1/direct", folder / name, dirs_exist_ok=True))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A submission of several variants of the rubric REPOSITORY."""
    target = tmp_path / "repository"
    for name in ("layers/custom", "milestones/m1/cpu", "milestones/m3/restrict", "milestones/m3/cublas"):
        shutil.copytree(ROOT / name, target / name)
    return target


@contextmanager
def isolated_grader(folder: Path, text: str) -> Iterator[Grader]:
    """A grader by the rubric with this text. The test is skipped where submissions cannot be isolated."""
    if not Isolation().full:
        pytest.skip(f"no isolation here: {Isolation()}")
    setting = quick_setting(folder, rubric=rubric.parse(text))
    (setting.out / ".work").mkdir(parents=True)
    with Grader(setting, setting.out / ".work") as opened:
        yield opened


@pytest.fixture
def grader(tmp_path: Path) -> Iterator[Grader]:
    with isolated_grader(tmp_path, REPOSITORY) as opened:
        yield opened


def ending(act: Callable[[], object], policy: sandbox.Policy) -> int:
    """The result of an action in a confined process: 0, an error number, or minus a signal number."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            os.setsid()
            signal.alarm(PATIENCE_S)  # so that it does not wait forever
            sandbox.confine(policy)
            act()
            status = GOOD
        except OSError as error:
            status = error.errno or 98
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
