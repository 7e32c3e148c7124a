"""The work for each submission: the function for the items of a grading run.

All data for a worker are plain values, including the rubric's text, so that a worker may run on another
machine that sees the same folders.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from mini_dnn.errors import DeviceError
from mini_dnn.grading import rubric
from mini_dnn.grading.grader import Grader, Setting
from mini_dnn.grading.stages import of_stage
from mini_dnn.grading.submission import Submission
from mini_dnn.paths import remove_abandoned, workplace

PREFIX = "mini_dnn-grade-"


def shared(setting: Setting, stage: str, beside: Path | None) -> dict[str, Any]:
    """The values that all submissions of a stage share. ``beside`` is only for workers on this machine."""
    return {
        "rubric": setting.rubric.text,
        "stage": stage,
        "out": str(setting.out.resolve()),
        "device": setting.device,
        "data": setting.data,
        "data_dir": str(setting.data_dir.resolve()) if setting.data_dir else "",
        "data_note": setting.data_note,
        "weak_isolation": setting.weak_isolation,
        "beside": str(beside) if beside else "",
    }


def value_of(one: Submission, variants: list[str] | None = None) -> dict[str, Any]:
    """A submission as the value of an item. ``variants`` limits it to some of the rubric's variants."""
    return {"name": one.name, "folder": str(one.folder), "variants": variants}


@contextmanager
def grading(common: Mapping[str, Any]) -> Iterator[Callable[[Any, int], Any]]:
    """Create a grader. It yields the function that grades an item and returns the grade as plain values."""
    whole = Setting(
        rubric=rubric.parse(common["rubric"]),
        out=Path(common["out"]),
        device=common["device"],
        data=common["data"],
        data_dir=Path(common["data_dir"]) if common["data_dir"] else None,
        data_note=common["data_note"],
        weak_isolation=common["weak_isolation"],
    )
    setting = replace(whole, rubric=of_stage(whole.rubric, common["stage"]))
    with _places(common) as (work, beside), Grader(setting, work, beside) as grader:

        def compute(value: Any, seed: int) -> Any:
            one = Submission(value["name"], Path(value["folder"]))
            return json.loads(grader.grade(one, value["variants"]).to_json())

        yield compute


@contextmanager
def _places(common: Mapping[str, Any]) -> Iterator[tuple[Path, Path]]:
    """The folders of a worker: its own, and one shared with the run's other workers on this machine."""
    if common["beside"]:
        beside = Path(common["beside"])
        with tempfile.TemporaryDirectory(dir=beside, ignore_cleanup_errors=True) as work:
            yield Path(work), beside
        return
    remove_abandoned(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
    with workplace(PREFIX) as work:
        yield work, _beside(common["out"])


def _beside(out: str) -> Path:
    """A folder in the machine's temporary folder that all workers of this user's run share.

    Raises
    ------
    DeviceError
        Another user has created it.
    """
    top = Path(tempfile.gettempdir()) / f"mini_dnn-turns-{os.getuid()}"
    top.mkdir(mode=0o700, exist_ok=True)
    found = top.lstat()
    if found.st_uid != os.getuid() or top.is_symlink() or found.st_mode & 0o077:
        raise DeviceError(f"{top} is not this user's own folder; remove it, or set TMPDIR")
    beside = top / hashlib.sha256(out.encode()).hexdigest()[:16]
    beside.mkdir(mode=0o700, exist_ok=True)
    return beside
