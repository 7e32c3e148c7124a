"""The work log of a submission: whether it exists, and has an entry for each variant."""

from __future__ import annotations

from pathlib import Path

from mini_dnn.grading.asked import Log, Rubric
from mini_dnn.grading.confined.process import SubmissionError
from mini_dnn.grading.grades import FAILED, PASSED, SKIPPED, Check
from mini_dnn.grading.submission import Submission
from mini_dnn.measuring.work_log import parse
from mini_dnn.variant.folders import MINE

NAME = "work log"


def look(one: Submission, rubric: Rubric, asked: Log) -> Check:
    """Check the log. Only people judge what it says."""
    wrong, found = _read(one, rubric, asked)
    status = PASSED if not wrong else FAILED if asked.required else SKIPPED
    points = 0.0 if wrong else asked.points
    return Check(NAME, status, points, asked.points if asked.required else 0.0, wrong or found)


def _read(one: Submission, rubric: Rubric, asked: Log) -> tuple[str, str]:
    """Return what is wrong with the log, and its text."""
    again = f"run.py check --impl NAME --log {asked.file}"
    try:
        content = one.log(rubric)
        if content is None:
            return f"there is no {asked.file}; submit the log that '{again}' and other commands write", ""
        log = parse(Path(asked.file), content)
        single = one.is_folder_of_variant(rubric)
        there = [v.name for v in rubric.variants if one.variant(v.name, rubric)]
    except SubmissionError as error:
        return str(error), ""
    tried = {entry.variant.removeprefix(f"{MINE}/") for entry in log.entries}
    # While it is being worked on, the folder of a single variant may have any name
    lacking = [name for name in there if not (tried if single else name in tried)]
    count = len(log.damaged)
    damaged = f"; {count} line{'s are' if count > 1 else ' is'} damaged" if count else ""
    if lacking or not tried:
        about = f" for {', '.join(lacking)}" if lacking else ""
        return f"{asked.file} has no entry{about}{damaged}; '{again}' writes one", ""
    many = f"{len(log.entries)} entries" if len(log.entries) > 1 else "1 entry"
    return "", f"{many} of {len(tried)} variant{'s' * (len(tried) > 1)}{damaged}"
