"""What grades are written as: the services' fields, and what students may see."""

import csv
import io
import json
import math
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import grade_samples as samples
import pytest
from grade_samples import SECRET, grade, payload
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from mini_dnn.errors import DataError, MiniDnnError
from mini_dnn.grading.grades import Check, Grade
from mini_dnn.grading.outputs import write_all
from mini_dnn.grading.outputs.github_classroom import disarmed
from mini_dnn.grading.outputs.text import MESSAGE_CHARACTERS, clean, code_block, code_span, one_line

NUMBER = (int, float)
# The fields that course staff's systems read: all of them, and no others. A set of strings: one of these.
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
LEADERBOARD = {"schema": {"leaderboard-1"}, "boards": list}
BOARD = {"rubric": str, "device": str, "rows": list}
PLACE = {"rank": int, "name": str, "op_ms": NUMBER}

slow = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


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
    """JSON as other languages read it: without NaN."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def written(*grades: Grade, anonymous: bool = False) -> dict[str, str]:
    """Text of all files, by path."""
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
    """Kinds of everything that a reader of the page would make of it, inline parts too."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    return [part.type for token in tokens for part in (token, *(token.children or ()))]


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
    clean_sheet = not grade.refused and all(check.status == "passed" for check in grade.checks)
    assert results["status"] == ("pass" if clean_sheet else "fail")


@slow
@given(samples.grades)
def test_leaderboard_has_its_fields(grade: Grade) -> None:
    found = strict(written(grade)["leaderboard.json"])
    matches(found, LEADERBOARD)
    for board in found["boards"]:
        matches(board, BOARD)
        for place in board["rows"]:
            matches(place, PLACE)


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
    shown = sum(not check.hidden for check in grade.checks) + any(check.hidden for check in grade.checks)
    assert kinds.count("tr_open") == 1 + shown
    assert kinds.count("td_open") == 3 * shown


@slow
@given(st.lists(samples.grades, max_size=4, unique_by=lambda grade: grade.submission))
def test_a_leaderboard_holds_no_markup_of_a_submission(grades: list[Grade]) -> None:
    kinds = html_of(written(*grades)["leaderboard.md"])
    listed = [grade for grade in grades if grade.op_ms is not None and not grade.refused]
    assert not {"html_block", "html_inline", "link_open", "image", "em_open", "strong_open"} & set(kinds)
    assert kinds.count("td_open") == 3 * len(listed)


@given(samples.nasty)
def test_clean_text_has_no_controls(text: str) -> None:
    found = clean(text)
    controls = [
        c for c in found if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]
    assert not controls
    assert clean(found) == found


def test_escape_sequences_go_and_the_text_stays() -> None:
    assert clean("\x1b[1;31mred\x1b[0m \x9b2Kline\r\nnext\x1b]0;title\x07.") == "red line\nnext."
    assert clean("a\ud800b\x00c\u202ed\te") == "a\ufffdbcd\te"


def test_huge_text_keeps_its_head_and_its_tail() -> None:
    found = clean("first" + "x" * 10_000_000 + "last")
    assert len(found) < MESSAGE_CHARACTERS + 100
    assert found.startswith("first")
    assert found.endswith("last")
    assert "characters cut" in found


def test_names_are_one_short_line() -> None:
    assert one_line(" a\n\tb ") == "a b"
    assert one_line("\x07") == "(no name)"
    assert len(one_line("x" * 1000)) == 200


@pytest.mark.parametrize("text", ["plain", "`", "``", "a`b", "`a`", "```\ntext\n````"])
def test_code_cannot_be_ended_from_within(text: str) -> None:
    (block,) = MarkdownIt("commonmark").parse(code_block(text))
    assert block.type == "fence"
    assert block.content == text + "\n"
    (part,) = MarkdownIt("commonmark").parse(code_span(text))[1].children or ()
    assert part.type == "code_inline"
    assert part.content == one_line(text)


def test_workflow_commands_are_disarmed() -> None:
    assert disarmed("::error::x\n  ::stop-commands::y\na::b\n##[group]z") == (
        ": :error::x\n  : :stop-commands::y\na::b\n# #[group]z"
    )


def test_hidden_tests_are_one_line() -> None:
    page = of_student(grade(), "result.md")
    assert "| `hidden tests` | failed | 2 of 3 |" in page
    assert "2 of 3 passed" in page
    (test,) = [t for t in strict(of_student(grade(), "gradescope.json"))["tests"] if "hidden" in t["name"]]
    assert (test["score"], test["max_score"], test["output"]) == (2, 3, "2 of 3 passed")


def test_a_page_says_what_failed_and_the_points() -> None:
    page = of_student(grade(), "result.md")
    assert "**3 of 8 points**, rubric `fa24`, on `NVIDIA A40`, op time 12.5 ms." in page
    failed = page.split("## What failed")[1].split("## What passed")[0]
    assert "y[0, 1, 2, 3] is 7, expected 5\nhint: a barrier" in failed
    assert "compiles" not in failed


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


def test_results_of_very_many_checks_become_one(tmp_path: Path) -> None:
    many = grade(checks=tuple(Check(f"{at} " + "x" * 150, "passed", 1, 1, "y" * 300) for at in range(2_000)))
    results = classroom(many, tmp_path)
    (test,) = results["tests"]
    assert (test["score"], results["max_score"]) == (2_000, 2_000)
    assert "2000 of 2000 passed" in test["message"]


def test_the_staff_see_everything() -> None:
    files = written(grade("ada"), grade("bob", op_ms=None))
    first, second = rows(files["staff/grades.csv"])
    assert first["submission"] == "ada"
    assert (first["points"], first["max_points"]) == ("3", "8")
    assert (first["public_passed"], first["hidden_passed"]) == ("1 of 2", "2 of 3")
    assert first["failed"] == f"layers/custom: correct; {SECRET} N=1"
    assert second["op_ms"] == ""
    checks = rows(files["staff/checks.csv"])
    assert len(checks) == 10
    assert [check["staff"] for check in checks if check["hidden"] == "yes"] == [SECRET] * 6


def test_a_spreadsheet_runs_nothing() -> None:
    formulas = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1")
    files = written(*(grade(text, refused=text) for text in formulas))
    for row in rows(files["staff/grades.csv"]):
        for column in ("submission", "refused"):
            assert not row[column].startswith(("=", "+", "-", "@", "\t")), row


def test_leaderboard_ranks_by_time_with_ties() -> None:
    times = {"ada": 2.0, "bob": 1.0, "cyd": 2.0004, "dan": 3.0, "eve": 0.1, "fay": None}
    grades = [
        grade(name, op_ms=ms, refused="replayed its output" if name == "eve" else "")
        for name, ms in times.items()
    ]
    files = written(*grades)
    (board,) = strict(files["leaderboard.json"])["boards"]
    assert [(place["rank"], place["name"]) for place in board["rows"]] == [
        (1, "bob"),
        (2, "ada"),
        (2, "cyd"),
        (4, "dan"),
    ]
    assert "| 2 | `cyd` | 2.000 |" in files["leaderboard.md"]
    assert "eve" not in files["leaderboard.md"] + files["leaderboard.json"]


def test_leaderboard_keeps_devices_apart() -> None:
    (a40, h200) = strict(written(grade("ada"), grade("bob", device="NVIDIA H200"))["leaderboard.json"])[
        "boards"
    ]
    assert [board["rows"][0]["rank"] for board in (a40, h200)] == [1, 1]
    assert {a40["device"], h200["device"]} == {"NVIDIA A40", "NVIDIA H200"}


def test_an_empty_leaderboard_says_so() -> None:
    assert "Nobody has an op time yet." in written(grade(op_ms=None))["leaderboard.md"]


def test_an_anonymous_leaderboard_keeps_its_names(tmp_path: Path) -> None:
    write_all([grade("ada"), grade("bob")], tmp_path)
    first = json.loads((tmp_path / "staff/aliases.json").read_text())
    board = (tmp_path / "leaderboard.md").read_text()
    assert "ada" not in board
    assert len(set(first.values())) == 2
    assert all(f"`{alias}`" in board for alias in first.values())
    assert f"The leaderboard calls you `{first['ada']}`." in (tmp_path / "students/ada/result.md").read_text()
    write_all([grade("ada"), grade("bob"), grade("cyd")], tmp_path)
    second = json.loads((tmp_path / "staff/aliases.json").read_text())
    assert {name: second[name] for name in first} == first


@pytest.mark.parametrize("content", ["no JSON", "[1]", '{"ada": 1}'])
def test_damaged_aliases_are_explained(content: str, tmp_path: Path) -> None:
    (tmp_path / "staff").mkdir()
    (tmp_path / "staff/aliases.json").write_text(content)
    with pytest.raises(DataError, match=r"aliases\.json should hold"):
        write_all([grade()], tmp_path)
    assert (tmp_path / "staff/aliases.json").read_text() == content


@pytest.mark.parametrize("name", ["", ".", "..", "../ada", "a/b", "a\0b", "\ud800"])
def test_a_name_leads_nowhere_else(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder's name"):
        write_all([grade(name)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_no_utf8_is_written(tmp_path: Path) -> None:
    write_all([grade("a\udcffb")], tmp_path)
    assert "a\ufffdb" in (tmp_path / "students/a\udcffb/result.md").read_text()


def test_two_grades_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="two grades are for 'ada'"):
        write_all([grade("ada"), grade("ada")], tmp_path)


def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(MiniDnnError, match="results cannot be written to"):
        write_all([grade()], tmp_path / "out")
