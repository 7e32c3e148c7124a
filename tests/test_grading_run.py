"""Grading of many submissions: one command, nothing left behind, and an interrupted run continues."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from grading_helpers import QUICK, assemble, honest
from waiting import wait_until

from mini_dnn.cli import grade, main
from mini_dnn.grading.confined.sandbox import Isolation
from mini_dnn.paths import ROOT
from mini_dnn.work import Local

pytestmark = pytest.mark.skipif(not Isolation().full, reason=f"no isolation here: {Isolation()}")
MIXED = ("nan_output", "exits", "endless_plan", "reads_rubric", "output_flood", "bare_exit")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder with submissions that are right, wrong, crashing, hanging, and forbidden."""
    folder = tmp_path / "submissions"
    (tmp_path / "quick.toml").write_text(QUICK)
    places = {"rubric": tmp_path / "quick.toml", "out": tmp_path / "out", "other": folder / "right0"}
    for name in MIXED:
        assemble(name, folder, **places)
    for i in range(3):
        honest(folder, f"right{i}")
    return folder


def command(folder: Path, out: Path, jobs: int = 2) -> list[str]:
    submissions = sorted(str(path) for path in folder.iterdir())
    words = ["--rubric", str(folder.parent / "quick.toml"), "--out", str(out), "--jobs", str(jobs)]
    return [str(ROOT / "run.py"), "grade", *submissions, *words, "--device", "emulator"]


def results(out: Path) -> dict[str, tuple]:
    found = {}
    for path in sorted((out / "grades").glob("*.json")):
        grade = json.loads(path.read_text())["value"]
        found[path.stem] = (
            grade["refused"],
            [(c["name"], c["status"], c["points"]) for c in grade["checks"]],
        )
    return found


def left_behind(out: Path) -> list[str]:
    """The processes that grading into that folder started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(out) in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def wait_until_none_is_left(out: Path) -> None:
    wait_until(lambda: not left_behind(out), lambda: left_behind(out))


@pytest.mark.exhaustive
def test_killed_at_any_moment_it_resumes_with_the_same_results(mixed: Path, tmp_path: Path) -> None:
    """A submission that hangs is ended with the rest, long before its time limit."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for count in (1, 5):  # number of grades after which it is killed
        process = subprocess.Popen([sys.executable, *command(mixed, stopped)], stdout=subprocess.DEVNULL)
        while len(list((stopped / "grades").glob("*.json"))) < count:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until_none_is_left(stopped)
        # the other worker has given the first grade, and later ones may be in its chunk
        shutil.rmtree(mixed / "endless_plan", ignore_errors=True)
    assert not (stopped / "grades" / "endless_plan.json").exists()
    done = subprocess.run(
        [sys.executable, *command(mixed, whole)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(results(whole)) == 8
    assert left_behind(whole) == []
    before = {path: path.stat().st_mtime_ns for path in (stopped / "grades").glob("*.json")}
    done = subprocess.run(
        [sys.executable, *command(mixed, stopped)], capture_output=True, text=True, check=False
    )
    assert done.stdout.count("graded before") == len(before) >= 5
    assert results(stopped) == results(whole)
    assert {path: path.stat().st_mtime_ns for path in before} == before, "graded twice"
    assert not (stopped / ".work").exists()
    rows = list(csv.DictReader((stopped / "staff" / "grades.csv").read_text().splitlines()))
    points = {row["submission"]: float(row["points"]) for row in rows}
    assert points == {name: 7.0 * name.startswith("right") for name in results(whole)}


@pytest.mark.usefixtures("interruptible")
def test_interrupted_it_ends_at_once(mixed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, *command(mixed, out)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    wait_until((out / "grades").is_dir)
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate()
    assert process.returncode == 130
    assert "use the same command to continue" in told
    wait_until_none_is_left(out)


def test_what_changed_is_graded_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "quick.toml").write_text(QUICK)
    folder = honest(tmp_path / "submissions")
    words = command(folder.parent, tmp_path / "out", jobs=1)[1:]
    assert main(words) == 0
    assert main(words) == 0
    assert capsys.readouterr().out.count("graded before") == 1
    kernel = folder / "kernel.cu"
    kernel.write_text(kernel.read_text().replace("acc += value", "acc -= value"))
    assert main([*words, "--similarity", "m2"]) == 0
    out = capsys.readouterr().out
    assert "graded before" not in out
    page = (tmp_path / "out/staff/similarity.md").read_text()
    assert "No two submissions have similar code" in page
    assert "0 of 7" in out


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "quick.toml").write_text(QUICK)
    honest(tmp_path / "submissions")
    words = command(tmp_path / "submissions", tmp_path / "out")[1:]
    (tmp_path / "out").mkdir()
    (tmp_path / "out/leaderboard.md").write_text("of another program")
    assert main(words) == 2
    assert "out holds other files, and no grades; name a new folder" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["leaderboard.md"]
    (tmp_path / "out/leaderboard.md").unlink()
    assert main(words) == 0, "it is empty"
    assert (tmp_path / "out/leaderboard.md").is_file()


def test_grades_that_no_table_has_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "quick.toml").write_text(QUICK)
    for name in ("first", "second"):
        honest(tmp_path / "submissions", name)
    words = command(tmp_path / "submissions", tmp_path / "out", jobs=1)[1:]
    assert main(words) == 0
    assert "NOTE: tables" not in capsys.readouterr().out
    assert main([words[0], *words[2:]]) == 0
    assert "contain only the submissions that this command names" in capsys.readouterr().out


def test_a_failure_of_ours_is_of_one_submission_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mini_dnn.work import items

    (tmp_path / "quick.toml").write_text(QUICK)
    honest(tmp_path / "submissions", "first")
    honest(tmp_path / "submissions", "second")
    write = items.write_atomically

    def full_disk(path: Path, data: bytes) -> None:
        if path.name == "first.json":
            raise OSError(28, "No space left on device")
        write(path, data)

    monkeypatch.setattr(items, "write_atomically", full_disk)
    words = command(tmp_path / "submissions", tmp_path / "out", jobs=1)[1:]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert "first: NOT GRADED, for a reason outside the submission: OSError: [Errno 28] No space left" in out
    monkeypatch.undo()
    assert main(words) == 0
    assert sorted(results(tmp_path / "out")) == ["first", "second"]


def test_a_full_disk_is_nobodys_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "quick.toml").write_text(QUICK)
    honest(tmp_path / "submissions")
    monkeypatch.setattr("mini_dnn.grading.grader.LEAST_FREE_BYTES", 1 << 60)
    assert main(command(tmp_path / "submissions", tmp_path / "out", jobs=1)[1:]) == 1
    assert "is full" in capsys.readouterr().out
    assert not list((tmp_path / "out").glob("grades/*"))


def test_a_refusal_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message has no line about another submission."""
    (tmp_path / "quick.toml").write_text(QUICK)
    folder = honest(tmp_path / "submissions", "ann")
    text = "FORBIDDEN: x\\n   2/2  bob        0 of 7  1.0 s  REFUSED: a cheat"
    (folder / "variant.py").write_text(
        f"from mini_dnn.errors import VariantError\nraise VariantError('{text}')\n"
    )
    assert main(command(folder.parent, tmp_path / "out", jobs=1)[1:]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "bob" in line]
    assert "ann" in line


def test_times_that_nobody_measured_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = "[performance]\nbatch = 1\nfull = 1\nnone = 2\n\n[[variant]]"
    text = QUICK.replace("[[variant]]", table).replace("hidden = 3", "performance = 3")
    (tmp_path / "quick.toml").write_text(text)
    assert main(command(honest(tmp_path / "submissions").parent, tmp_path / "out", jobs=1)[1:]) == 0
    out = capsys.readouterr().out
    assert "4 of 7" in out
    assert "device    CPU emulator" in out
    assert "NOTE: no points for performance in 1 of " in out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--jobs", "0"], "expected 1 or more"),
        (["--rubric", "fa99"], "expected a TOML file, or one of"),
        (["--out", "/proc/nowhere"], "cannot be written"),
        (["--out", __file__], "cannot be written: a file is where a folder is needed"),
        (["--out", sys.prefix + "/grades"], "which every submission can read"),
        (["--out", str(ROOT / "mini_dnn/grades")], "is inside the package"),
        (["--out", 'the "final" grades'], "files whose path has a quotation mark"),
        (["--out", "grades of caf\udce9"], "or bytes that are not UTF-8"),
    ],
)
def test_wrong_use(
    change: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "quick.toml").write_text(QUICK)
    honest(tmp_path / "submissions")
    assert main([*command(tmp_path / "submissions", tmp_path / "out")[1:], *change]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "workers"), [(["--jobs", "3"], 3), ([], 2)])
def test_jobs_have_precedence_over_the_profile(
    flags: list[str], workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quick.toml").write_text(QUICK)
    (tmp_path / "profile.toml").write_text("workers = 2\n")
    honest(tmp_path / "submissions")
    engines: list[Local] = []
    monkeypatch.setattr(grade, "grade_all", lambda *args: engines.append(args[3]) or ([], {}))
    monkeypatch.setattr(grade, "check_setting", lambda *args: None)
    monkeypatch.setattr(grade, "write_all", lambda *args, **more: None)
    words = [
        *command(tmp_path / "submissions", tmp_path / "out")[1:],
        "--profile",
        str(tmp_path / "profile.toml"),
    ]
    at = words.index("--jobs")
    assert main([*words[:at], *words[at + 2 :], *flags]) == 0
    assert [engine.workers for engine in engines] == [workers]


def test_without_isolation_it_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "quick.toml").write_text(QUICK)
    honest(tmp_path / "submissions")
    words = command(tmp_path / "submissions", tmp_path / "out", jobs=1)[1:]
    monkeypatch.setattr("mini_dnn.grading.confined.landlock.version", lambda: 0)
    assert main(words) == 2
    assert "--weak-isolation" in capsys.readouterr().err
    assert main([*words, "--weak-isolation"]) == 0
    assert "7 of 7" in capsys.readouterr().out
    record = json.loads((tmp_path / "out/grades/honest.json").read_text())
    assert "NO Landlock" in record["value"]["checks"][-1]["staff"]


def test_two_runs_into_one_folder(mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, *command(mixed, out)], stdout=subprocess.DEVNULL) as process:
        wait_until((out / ".work").is_dir)
        assert main(command(mixed, out)[1:]) == 2
        assert "another run" in capsys.readouterr().err
        process.kill()
