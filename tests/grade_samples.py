"""Sample grades with difficult texts and secrets, and readers of the files that are written from grades."""

import base64
import csv
import io
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from mini_dnn.grading.grades import Check, Grade
from mini_dnn.grading.outputs import write_all

NUMBER = (int, float)
SECRET = "5ecre7"  # part of every text that is not for students
NASTY = (
    "<script>alert(1)</script>",
    "\x1b[31mred\x1b[0m\x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    "```\n# heading\n[link](http://evil.example) ![image](http://evil.example/i.png)\n```",
    "| cell | \\| cell ` cell |",
    "::add-mask::1\n  ::set-output name=a::b\n##[error]c",
    "\ud800 lone \udfff surrogates \u202e reversed \u2028 line",
    '=HYPERLINK("http://evil.example")',
    "@somebody <b>bold</b> &amp; *emphasis* http://evil.example",
    "\x00\x07\x08\r\rover",
)

slow = settings(max_examples=60)  # of the profile in conftest.py

nasty = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.characters(), max_size=60),
    st.lists(st.sampled_from(NASTY)).map("".join),
)
secrets = nasty.map(lambda text: f"{SECRET} {text} {SECRET}")
points = st.floats(0, 100)
statuses = st.sampled_from(["passed", "failed", "skipped"])
public_checks = st.builds(
    Check, nasty, statuses, points, points, nasty, secrets, st.just(False), st.floats(0, 1e4)
)
hidden_checks = st.builds(
    Check, secrets, statuses, points, points, secrets, secrets, st.just(True), st.floats(0, 1e4)
)
submissions = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=40
).filter(lambda name: name not in (".", "..") and len(name.encode()) < 200)
grades = st.builds(
    Grade,
    submission=submissions,
    rubric=nasty,
    device=nasty,
    checks=st.lists(st.one_of(public_checks, hidden_checks), max_size=6).map(tuple),
    refused=st.one_of(st.just(""), nasty),
    op_ms=st.one_of(st.none(), st.floats(1e-3, 1e6)),
    started=st.just("2026-11-21T10:00:00+00:00"),
    seconds=st.floats(0, 1e6),
)


def grade(submission: str = "ada", **fields: Any) -> Grade:
    """A plain grade: two public checks, the second failed, and three hidden checks, one of them failed."""
    checks = (
        Check("layers/custom: compiles", "passed", 1, 1),
        Check("layers/custom: correct", "failed", 0, 4, "y[0, 1, 2, 3] is 7, expected 5\nhint: a barrier"),
        Check(f"{SECRET} N=9999", "passed", 1, 1, SECRET, SECRET, hidden=True),
        Check(f"{SECRET} N=127", "passed", 1, 1, SECRET, SECRET, hidden=True),
        Check(f"{SECRET} N=1", "failed", 0, 1, SECRET, SECRET, hidden=True),
    )
    given = {"rubric": "fa24", "device": "NVIDIA A40", "checks": checks, "op_ms": 12.5, "seconds": 3.0}
    return Grade(submission, **(given | fields))


def payload(file: Path) -> Any:
    """Return what GitHub Classroom's reporter reads."""
    name, _, value = file.read_text().strip().partition("=")
    assert name == "MINIDNN_RESULTS"
    return json.loads(base64.b64decode(value))


def matches(found: Any, fields: dict[str, Any]) -> None:
    assert isinstance(found, dict)
    assert set(found) == set(fields)
    for name, kind in fields.items():
        if isinstance(kind, set):
            assert found[name] in kind, name
        else:
            assert isinstance(found[name], kind), name
            assert kind is bool or not isinstance(found[name], bool), name
        if isinstance(found[name], float):
            assert math.isfinite(found[name]), name


def strict(text: str) -> Any:
    """Parse JSON as strictly as other languages do, without NaN."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def written(*grades: Grade, anonymous: bool = False) -> dict[str, str]:
    """The text of each file that is written, by path."""
    with tempfile.TemporaryDirectory() as folder:
        write_all(grades, Path(folder), anonymous)
        return {
            str(path.relative_to(folder)): path.read_text()
            for path in Path(folder).rglob("*")
            if path.is_file()
        }


def of_student(grade: Grade, name: str) -> str:
    return written(grade)[f"students/{grade.submission}/{name}"]


def classroom(grade: Grade, folder: Path) -> Any:
    write_all([grade], folder)
    return payload(folder / "students" / grade.submission / "github-classroom.env")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def html_of(markdown: str) -> list[str]:
    """The kinds of all elements that a reader of the page would see, including inline ones."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    return [part.type for token in tokens for part in (token, *(token.children or ()))]
