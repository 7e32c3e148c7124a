"""Files that are written from grades: tables for the staff, the leaderboard, and their places."""

import json
import re
from pathlib import Path

import grade_samples as samples
import pytest
from grade_samples import NUMBER, SECRET, grade, html_of, matches, rows, slow, strict, written
from hypothesis import given
from hypothesis import strategies as st

from mini_dnn.errors import DataError, MiniDnnError
from mini_dnn.grading.grades import Check, Grade
from mini_dnn.grading.outputs import write_all

LEADERBOARD = {"schema": {"leaderboard-1"}, "boards": list}
BOARD = {"rubric": str, "device": str, "rows": list}
PLACE = {"rank": int, "name": str, "op_ms": NUMBER}


@slow
@given(samples.grades)
def test_leaderboard_has_its_fields(grade: Grade) -> None:
    found = strict(written(grade)["leaderboard.json"])
    matches(found, LEADERBOARD)
    for board in found["boards"]:
        matches(board, BOARD)
        for place in board["rows"]:
            matches(place, PLACE)


@pytest.mark.exhaustive
@slow
@given(st.lists(samples.grades, max_size=4, unique_by=lambda grade: grade.submission))
def test_a_leaderboard_holds_no_markup_of_a_submission(grades: list[Grade]) -> None:
    kinds = html_of(written(*grades)["leaderboard.md"])
    listed = [grade for grade in grades if grade.op_ms is not None and not grade.refused]
    assert not {"html_block", "html_inline", "link_open", "image", "em_open", "strong_open"} & set(kinds)
    assert kinds.count("td_open") == 3 * len(listed)


def test_the_staff_see_everything() -> None:
    files = written(grade("ada"), grade("bob", op_ms=None))
    first, second = rows(files["staff/grades.csv"])
    assert first["submission"] == "ada"
    assert (first["points"], first["max_points"]) == ("3", "8")
    assert (first["public_passed"], first["hidden_passed"]) == ("1 of 2", "2 of 3")
    assert first["failed"] == f"layers/custom: correct; {SECRET} N=1"
    assert first["why"] == "y[0, 1, 2, 3] is 7, expected 5 hint: a barrier"
    assert second["op_ms"] == ""
    checks = rows(files["staff/checks.csv"])
    assert len(checks) == 10
    assert [check["staff"] for check in checks if check["hidden"] == "yes"] == [SECRET] * 6


def test_what_was_skipped_is_no_failure_for_the_staff() -> None:
    timed = Check("layers/custom: performance", "skipped", 0, 2, "not measured")
    odd = Check("layers/custom: hidden", "failed", 0, 1, "not shown", f"{SECRET} N=1:\nwrong", hidden=True)
    files = written(grade(checks=(timed, odd), device="CPU emulator (no GPU: none here)"))
    (row,) = rows(files["staff/grades.csv"])
    assert (row["failed"], row["why"]) == ("layers/custom: hidden", f"{SECRET} N=1: wrong")
    assert row["device"] == "CPU emulator"


def test_a_spreadsheet_runs_nothing() -> None:
    formulas = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1")
    files = written(*(grade(text, refused=text) for text in formulas))
    found = rows(files["staff/grades.csv"])
    assert len(found) == len(formulas)
    for row in found:
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
    assert "There are no op times yet." in written(grade(op_ms=None))["leaderboard.md"]


def test_an_anonymous_leaderboard_keeps_its_names(tmp_path: Path) -> None:
    write_all([grade("ada"), grade("bob")], tmp_path, pairs=[])
    assert (tmp_path / "staff/similarity.md").is_file()
    first = json.loads((tmp_path / "staff/aliases.json").read_text())
    board = (tmp_path / "leaderboard.md").read_text()
    assert "ada" not in board
    assert len(set(first.values())) == 2
    assert all(f"`{alias}`" in board for alias in first.values())
    assert f"The leaderboard calls you `{first['ada']}`." in (tmp_path / "students/ada/result.md").read_text()
    write_all([grade("ada"), grade("bob"), grade("cyd")], tmp_path)
    assert not list((tmp_path / "staff").glob("similarity.*")), "they would be about earlier submissions"
    second = json.loads((tmp_path / "staff/aliases.json").read_text())
    assert {name: second[name] for name in first} == first


@pytest.mark.parametrize("content", ["no JSON", "[1]", '{"ada": 1}'])
def test_damaged_aliases_are_explained(content: str, tmp_path: Path) -> None:
    (tmp_path / "staff").mkdir()
    (tmp_path / "staff/aliases.json").write_text(content)
    with pytest.raises(DataError, match=r"aliases\.json should contain"):
        write_all([grade()], tmp_path)
    assert (tmp_path / "staff/aliases.json").read_text() == content


@pytest.mark.parametrize("name", ["", ".", "..", "../ada", "a/b", "a\0b", "\ud800"])
def test_a_name_leads_nowhere_else(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not the name of a folder"):
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


def test_the_summary_counts_points_checks_and_mistakes() -> None:
    wrong = Check("a: correct", "failed", 0, 4, "12 of 60 elements differ\nhint: the filter is mirrored")
    other = Check("a: correct", "failed", 0, 4, "7 of 9 elements differ\nhint: the filter is mirrored")
    right, skipped = Check("a: correct", "passed", 4, 4), Check("a: accuracy", "skipped", 0, 1)
    fast = Check("a: accuracy", "passed", 1, 1)
    grades = [
        grade("ada", checks=(wrong, skipped)),
        grade("bob", checks=(other, skipped)),
        grade("cyd", checks=(right, fast)),
        grade("dan", checks=(right, fast), refused="a cheat"),
    ]
    text = written(*grades)["staff/summary.md"]
    assert "4 submissions: mean 1.25, median 0.00 of 5 points. Refused: 1;" in text
    assert re.search(r"^   0\.00 to    0\.50     3  #{40}$", text, re.MULTILINE)
    assert re.search(r"^   4\.50 to    5\.00     1  #{13}$", text, re.MULTILINE)
    assert "| `a: correct` | 2 | 2 | 0 | 1.00 | 4 |" in text
    assert "| `a: accuracy` | 2 | 0 | 2 | 0.25 | 1 |" in text
    assert "| 2 | `a: correct` | `hint: the filter is mirrored` | `ada` |" in text
    assert "Nothing was graded yet." in written()["staff/summary.md"]


def test_failures_that_differ_in_numbers_are_alike() -> None:
    checks = [Check("a: correct", "failed", 0, 1, f"y[{i}, 2] is {i}.5e-3, expected 7") for i in range(3)]
    text = written(*(grade(f"s{i}", checks=(check,)) for i, check in enumerate(checks)))["staff/summary.md"]
    assert "| 3 | `a: correct` | `y[…, …] is …, expected …` | `s0` |" in text


def test_mean_points_are_those_of_the_class() -> None:
    """Those who did not reach a check have no points for it, so the means add up to the mean of the class."""
    missing, right = Check("a: submitted", "failed", 0, 5), Check("a: correct", "passed", 4, 4)
    text = written(grade("ada", checks=(missing,)), grade("bob", checks=(right,)))["staff/summary.md"]
    assert "2 submissions: mean 2.00" in text
    assert "| `a: submitted` | 0 | 1 | 0 | 0.00 | 5 |" in text
    assert "| `a: correct` | 1 | 0 | 0 | 2.00 | 4 |" in text
