"""Files that are written from grades: the fields of each service, and what students may see."""

import json
import tempfile
from pathlib import Path

import grade_samples as samples
import pytest
from grade_samples import (
    NUMBER,
    SECRET,
    classroom,
    grade,
    html_of,
    matches,
    of_student,
    payload,
    rows,
    slow,
    strict,
    written,
)
from hypothesis import given
from hypothesis import strategies as st

from mini_dnn.grading.grades import Check, Grade
from mini_dnn.grading.outputs import write_all
from mini_dnn.grading.outputs.view import view_of

# The fields that systems of course staff read, and no others. A set of strings means one of these.
VISIBILITY = {"visible", "hidden", "after_due_date", "after_published"}
GRADESCOPE = {
    "score": NUMBER,
    "output": str,
    "output_format": {"text", "html", "simple_format", "md", "ansi"},
    "visibility": VISIBILITY,
    "stdout_visibility": VISIBILITY,
    "extra_data": dict,
    "tests": list,
    "leaderboard": list,
    "execution_time": NUMBER,
}
GRADESCOPE_TEST = {
    "score": NUMBER,
    "max_score": NUMBER,
    "status": {"passed", "failed"},
    "name": str,
    "number": str,
    "output": str,
    "output_format": {"text", "html", "simple_format", "md", "ansi"},
    "tags": list,
    "visibility": VISIBILITY,
    "extra_data": dict,
}
GRADESCOPE_LEADERBOARD = {"name": str, "value": NUMBER, "order": {"asc", "desc"}}
PRAIRIELEARN = {
    "gradable": bool,
    "score": NUMBER,
    "message": str,
    "output": str,
    "format_errors": list,
    "images": list,
    "tests": list,
}
PRAIRIELEARN_TEST = {
    "name": str,
    "description": str,
    "points": NUMBER,
    "max_points": NUMBER,
    "message": str,
    "output": str,
    "images": list,
}
CLASSROOM = {
    "version": int,
    "status": {"pass", "fail", "error"},
    "message": str,
    "max_score": NUMBER,
    "tests": list,
}
CLASSROOM_TEST = {
    "name": str,
    "status": {"pass", "fail", "error"},
    "message": str,
    "test_code": str,
    "filename": str,
    "line_no": int,
    "duration": NUMBER,
    "score": NUMBER,
    "output": str,
}


@slow
@given(samples.grades)
def test_gradescope_has_its_fields(grade: Grade) -> None:
    results = strict(of_student(grade, "gradescope.json"))
    matches(results, GRADESCOPE)
    for test in results["tests"]:
        matches(test, GRADESCOPE_TEST)
    assert [test["number"] for test in results["tests"]] == [
        str(at) for at, _ in enumerate(results["tests"], start=1)
    ]
    for entry in results["leaderboard"]:
        matches(entry, GRADESCOPE_LEADERBOARD)
    assert bool(results["leaderboard"]) == (grade.op_ms is not None and not grade.refused)
    assert results["score"] == pytest.approx(grade.points, abs=1e-3)
    assert results["score"] == pytest.approx(sum(test["score"] for test in results["tests"]), abs=1e-3)


@slow
@given(samples.grades)
def test_prairielearn_has_its_fields(grade: Grade) -> None:
    text = of_student(grade, "prairielearn.json")
    results = strict(text)
    matches(results, PRAIRIELEARN)
    for test in results["tests"]:
        matches(test, PRAIRIELEARN_TEST)
    assert 0 <= results["score"] <= 1
    assert len(text.encode()) <= 1_000_000
    if grade.refused:
        assert results["score"] == 0


@slow
@given(samples.grades)
def test_github_classroom_has_its_fields(grade: Grade) -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = classroom(grade, Path(folder))
    matches(results, CLASSROOM)
    for test in results["tests"]:
        matches(test, CLASSROOM_TEST)
    assert sum(test["score"] for test in results["tests"]) == pytest.approx(grade.points, abs=1e-3)
    hidden = {check.status for check in grade.hidden_checks}
    clean_sheet = (
        not grade.refused
        and all(check.status == "passed" for check in grade.public_checks)
        and (not hidden or ("passed" in hidden and "failed" not in hidden))
    )
    assert results["status"] == ("pass" if clean_sheet else "fail")


@slow
@given(st.lists(samples.grades, max_size=3, unique_by=lambda grade: grade.submission), st.booleans())
def test_nothing_hidden_reaches_a_student(grades: list[Grade], anonymous: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_all(grades, folder, anonymous)
        for_students = [*(folder / "students").rglob("*.*"), *folder.glob("leaderboard.*")]
        files = [path for path in for_students if path.is_file()]
        assert len(files) == 4 * len(grades) + 2
        for path in files:
            assert SECRET not in path.read_text()
            if path.suffix == ".env":
                assert SECRET not in json.dumps(payload(path))


@slow
@given(samples.grades)
def test_a_page_holds_no_markup_of_a_submission(grade: Grade) -> None:
    kinds = html_of(of_student(grade, "result.md"))
    assert not {"html_block", "html_inline", "link_open", "image", "em_open"} & set(kinds)
    assert kinds.count("strong_open") == 1  # the points
    assert kinds.count("table_open") == 1
    shown = len(grade.public_checks) + bool(grade.hidden_checks)
    assert kinds.count("tr_open") == 1 + shown
    assert kinds.count("td_open") == 3 * shown


def test_hidden_tests_are_one_line() -> None:
    page = of_student(grade(), "result.md")
    assert "| `hidden tests` | failed | 2 of 3 |" in page
    assert "2 of 3 passed" in page
    (test,) = [t for t in strict(of_student(grade(), "gradescope.json"))["tests"] if "hidden" in t["name"]]
    assert (test["score"], test["max_score"]) == (2, 3)
    assert test["output"].startswith("2 of 3 passed; try odd batches")


def test_hidden_tests_of_which_some_were_not_run_passed() -> None:
    passed = Check(SECRET, "passed", 3, 1, SECRET, hidden=True)
    skipped = Check(SECRET, "skipped", 0, 0, SECRET, hidden=True)
    page = of_student(grade(checks=(passed, skipped)), "result.md")
    assert "| `hidden tests` | passed | 1 of 1, 2 extra |" in page
    assert "1 of 2 passed, 1 not run" in page


def test_hidden_tests_that_were_not_run_did_not_fail() -> None:
    first, *_ = grade().checks
    skipped = Check(SECRET, "skipped", 0, 2, SECRET, hidden=True)
    page = of_student(grade(checks=(first, skipped)), "result.md")
    assert "| `hidden tests` | skipped | 0 of 2 |" in page
    assert "0 of 1 passed, 1 not run" in page.split("## Checks that did not run")[1]


def test_how_long_hidden_tests_took_is_not_shown() -> None:
    """Otherwise a plan could reveal hidden shapes by waiting a second for each channel."""
    shown, hidden = (
        Check("correct", "passed", 1, 1, seconds=2.0),
        Check("h", "passed", 1, 1, "", "", True, 7.0),
    )
    text = of_student(grade(checks=(shown, hidden), seconds=9.5), "gradescope.json")
    assert strict(text)["execution_time"] == 2.0
    view = view_of(grade(checks=(shown, hidden), seconds=9.5))
    assert [item.seconds for item in view.items] == [2.0, 0.0]


def test_the_record_of_the_isolation_is_no_hidden_test() -> None:
    isolation = Check("isolation", "passed", staff="Landlock 7", hidden=True)
    assert "2 of 3 passed" in of_student(grade(checks=(*grade().checks, isolation)), "result.md")
    assert "hidden tests" not in of_student(grade(checks=(isolation,)), "result.md")


def test_what_was_skipped_did_not_fail() -> None:
    timed = Check("layers/custom: performance", "skipped", 0, 2, "not measured")
    page = of_student(grade(checks=(timed,), device="CPU emulator (no GPU: none here)"), "result.md")
    assert "## What failed" not in page
    assert "not measured" in page.split("## Checks that did not run")[1]
    assert "on `CPU emulator`" in page


def test_a_page_says_what_failed_and_the_points() -> None:
    page = of_student(grade(), "result.md")
    assert "**3 of 8 points**, rubric `fa24`, on `NVIDIA A40`, op time 12.5 ms." in page
    failed = page.split("## What failed")[1].split("## What passed")[0]
    assert "y[0, 1, 2, 3] is 7, expected 5\nhint: a barrier" in failed
    assert "compiles" not in failed


def test_a_check_without_points_shows_none() -> None:
    page = of_student(grade(checks=(Check("layers/custom: compiles", "passed"),)), "result.md")
    assert "| `layers/custom: compiles` | passed | – |" in page


def test_extra_points_are_called_so() -> None:
    extra = grade(checks=(Check("m3/restrict: correct", "passed", 2, 0),))
    assert "| `m3/restrict: correct` | passed | 2 extra |" in of_student(extra, "result.md")


def test_refused_credit_leaves_no_points_anywhere(tmp_path: Path) -> None:
    refused = grade(refused="it patched the timer")
    page = of_student(refused, "result.md")
    assert "**0 of 8 points**" in page
    assert "## No credit\n\n```text\nit patched the timer\n```" in page
    gradescope = strict(of_student(refused, "gradescope.json"))
    assert gradescope["score"] == 0
    assert {test["score"] for test in gradescope["tests"]} == {0}
    assert "it patched the timer" in gradescope["output"]
    assert strict(of_student(refused, "prairielearn.json"))["score"] == 0
    assert {test["score"] for test in classroom(refused, tmp_path)["tests"]} == {0}
    staff = written(refused)
    assert {row["points"] for row in rows(staff["staff/checks.csv"])} == {"0.0"}
    assert rows(staff["staff/grades.csv"])[0]["refused"] == "it patched the timer"


def test_a_rubric_without_points_scores_all_or_nothing() -> None:
    passed = grade(checks=(Check("a", "passed"),))
    assert strict(of_student(passed, "prairielearn.json"))["score"] == 1
    failed = grade(checks=(Check("a", "passed"), Check("b", "failed")))
    assert strict(of_student(failed, "prairielearn.json"))["score"] == 0


@pytest.mark.exhaustive
def test_big_results_fit_the_services(tmp_path: Path) -> None:
    long = "first wrong element\n" + "\U0001f600" * 20_000
    big = grade(checks=tuple(Check(f"check {at}", "failed", 0, 1, long) for at in range(40)))
    text = of_student(big, "prairielearn.json")
    assert len(text.encode()) <= 1_000_000
    assert len(strict(text)["tests"]) == 40
    assert all("first wrong element" in test["message"] for test in strict(text)["tests"])
    results = classroom(big, tmp_path)
    assert len((tmp_path / "students/ada/github-classroom.env").read_bytes()) < 131_072
    assert len(results["tests"]) == 40


@pytest.mark.exhaustive
def test_results_of_very_many_checks_become_one(tmp_path: Path) -> None:
    many = grade(checks=tuple(Check(f"{at} " + "x" * 150, "passed", 1, 1, "y" * 300) for at in range(2_000)))
    results = classroom(many, tmp_path)
    (test,) = results["tests"]
    assert (test["score"], results["max_score"]) == (2_000, 2_000)
    assert "2000 of 2000 passed" in test["message"]
