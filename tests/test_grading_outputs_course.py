"""The files in course/: scripts run with a stand-in for the grader, and examples are parsed."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from grade_samples import payload

from mini_dnn.grading.outputs.github_classroom import RUNNER, VARIABLE
from mini_dnn.grading.rubric import load
from mini_dnn.paths import ROOT
from mini_dnn.work import read_profile

COURSE = ROOT / "course"
SCRIPTS = [
    COURSE / name
    for name in (
        "bare.sh",
        "gradescope/setup.sh",
        "gradescope/run_autograder",
        "prairielearn/grade.sh",
        "github-classroom/grade.sh",
    )
]
GRADER = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
from grade_samples import grade
from mini_dnn.grading.outputs import write_all
program, verb, submission, _, rubric, _, out = sys.argv[1:]
assert (Path(program).name, verb, sys.argv[4], sys.argv[6]) == ("run.py", "grade", "--rubric", "--out")
assert Path(rubric).read_text() == "the rubric"
if not (Path(submission) / "kernel.cu").exists():
    sys.exit("error: the grader failed")
write_all([grade(Path(submission).resolve().name)], Path(out))

"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A folder with a ``python`` that grades nothing but writes realistic results."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "grader.py").write_text(GRADER.format(root=str(ROOT), tests=str(ROOT / "tests")))
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{folder}/grader.py" "$@"\n')
    (folder / "python").chmod(0o755)
    return folder


def submission(folder: Path, *, broken: bool = False) -> Path:
    folder.mkdir(parents=True)
    if not broken:
        (folder / "kernel.cu").touch()
    return folder


def run(script: Path, *words: Path, **environment: Path | str) -> subprocess.CompletedProcess[str]:
    """Start a script as a service does, with a clean environment."""
    env = {"PATH": os.environ["PATH"], "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    env |= {name: str(value) for name, value in environment.items()}
    return subprocess.run(["bash", script, *words], env=env, capture_output=True, text=True, check=False)


def path_with(folder: Path) -> str:
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_clean(script: Path) -> None:
    checker = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert checker, "shellcheck is missing: pip install -e '.[dev]'"
    done = subprocess.run([checker, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    assert os.access(script, os.X_OK)


@pytest.fixture
def autograder(tmp_path: Path, python: Path) -> Path:
    """The folder that Gradescope mounts as /autograder."""
    home = tmp_path / "autograder"
    (home / "source/mini_dnn").mkdir(parents=True)
    (home / "source/rubric.toml").write_text("the rubric")
    (home / "source/venv").mkdir()
    (home / "source/venv/bin").symlink_to(python)
    return home


def test_gradescope_gets_its_results(autograder: Path) -> None:
    submission(autograder / "submission")
    done = run(COURSE / "gradescope/run_autograder", AUTOGRADER=autograder)
    assert done.returncode == 0, done.stderr
    results = autograder / "results/results.json"
    assert json.loads(results.read_text())["score"] == 3
    assert results.stat().st_mode & 0o777 == 0o644, "the service may read it as another user"


def test_gradescope_gets_no_zero_from_a_failed_grader(autograder: Path) -> None:
    submission(autograder / "submission", broken=True)
    done = run(COURSE / "gradescope/run_autograder", AUTOGRADER=autograder)
    assert done.returncode != 0
    assert "the grader failed" in done.stderr
    assert not (autograder / "results/results.json").exists()


def test_nothing_is_left_behind(autograder: Path, tmp_path: Path) -> None:
    submission(autograder / "submission")
    (tmp_path / "tmp").mkdir()
    run(COURSE / "gradescope/run_autograder", AUTOGRADER=autograder, TMPDIR=tmp_path / "tmp")
    assert list((tmp_path / "tmp").iterdir()) == []


def prairielearn(tmp_path: Path, python: Path, *, broken: bool) -> dict[str, object]:
    """The results that PrairieLearn reads."""
    submission(tmp_path / "grade/student", broken=broken)
    (tmp_path / "grade/tests").mkdir()
    (tmp_path / "grade/tests/rubric.toml").write_text("the rubric")
    script = COURSE / "prairielearn/grade.sh"
    done = run(script, GRADE=tmp_path / "grade", PROGRAM=ROOT / "run.py", PATH=path_with(python))
    assert done.returncode == 0, done.stderr
    file = tmp_path / "grade/results/results.json"
    assert file.stat().st_mode & 0o777 == 0o644, "the service may read it as another user"
    results: dict[str, object] = json.loads(file.read_text())
    return results


def test_prairielearn_gets_its_results(tmp_path: Path, python: Path) -> None:
    results = prairielearn(tmp_path, python, broken=False)
    assert results["score"] == 3 / 8


def test_prairielearn_takes_no_attempt_for_a_failed_grader(tmp_path: Path, python: Path) -> None:
    results = prairielearn(tmp_path, python, broken=True)
    assert results == {
        "gradable": False,
        "message": "The grader itself failed; please tell the course staff.",
    }


def classroom(tmp_path: Path, python: Path, *, broken: bool) -> subprocess.CompletedProcess[str]:
    (tmp_path / "rubric.toml").write_text("the rubric")
    return run(
        COURSE / "github-classroom/grade.sh",
        submission(tmp_path / "ada", broken=broken),
        tmp_path / "rubric.toml",
        GITHUB_OUTPUT=tmp_path / "output",
        PATH=path_with(python),
    )


def test_github_classroom_gets_its_payload(tmp_path: Path, python: Path) -> None:
    done = classroom(tmp_path, python, broken=False)
    assert done.returncode == 0, done.stderr
    name, _, value = (tmp_path / "output").read_text().strip().partition("=")
    assert name == "result"
    (tmp_path / "variable").write_text(f"{VARIABLE}={value}\n")
    assert payload(tmp_path / "variable")["max_score"] == 8


def test_a_failed_grader_fails_the_workflow(tmp_path: Path, python: Path) -> None:
    assert classroom(tmp_path, python, broken=True).returncode != 0


def test_the_workflow_has_the_names_of_the_payload() -> None:
    text = (COURSE / "github-classroom/classroom.yml").read_text()
    assert f"id: {RUNNER}\n" in text
    assert f"runners: {RUNNER}\n" in text
    assert f"{VARIABLE}: ${{{{ steps.{RUNNER}.outputs.result }}}}" in text
    (script,) = re.findall(r"run: bash grader/(\S+\.sh)", text)
    assert (ROOT / script).exists()


@pytest.mark.parametrize("service", ["gradescope", "prairielearn"])
def test_an_image_copies_what_there_is(service: str) -> None:
    copies = re.findall(
        r"^COPY (?:--\S+ )?(.+) \S+$", (COURSE / service / "Dockerfile").read_text(), re.MULTILINE
    )
    names = [name for line in copies for name in line.split() if not name.startswith("$")]
    assert "run.py" in names
    for name in names:
        assert list(ROOT.glob(name)), name
    for needed in ("mini_dnn", "milestones", "layers", "data/*.h5", "README.md", "LICENSE"):
        assert needed in names


def test_the_question_of_prairielearn_names_its_script() -> None:
    options = json.loads((COURSE / "prairielearn/info.json").read_text())["externalGradingOptions"]
    assert options["timeout"] <= 600
    assert f"grade.sh {options['entrypoint']}" in (COURSE / "prairielearn/Dockerfile").read_text()


def test_the_example_rubric_runs_without_a_gpu() -> None:
    rubric = load(COURSE / "rubric.toml")
    assert rubric.performance is None
    assert rubric.hidden is not None
    assert [variant.name for variant in rubric.variants] == ["layers/custom"]


def test_the_example_profile_is_one() -> None:
    profile = read_profile(COURSE / "cluster.toml", "slurm")
    assert (profile.partition, profile.jobs_at_once, profile.gpus_per_node) == ("cpu", 100, 0)
    gpu = profile.gpu
    assert gpu is not None
    assert (gpu.partition, gpu.jobs_at_once, gpu.gpus_per_node) == ("gpu", 8, 1)
    assert (gpu.sbatch, gpu.account) == ({"comment": "grading"}, "ece408")


def test_the_zip_of_the_lesson_is_what_gradescope_expects(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    page = (ROOT / "docs/course.md").read_text()
    (command,) = re.findall(r"^git archive (?:.*\\\n)*.*$", page, re.MULTILINE)
    command = command.replace("autograder.zip", str(tmp_path / "autograder.zip"))
    command = command.replace("rubric.toml", str(tmp_path / "rubric.toml"))
    (tmp_path / "rubric.toml").write_text("the rubric")
    subprocess.run(["bash", "-c", command], cwd=ROOT, check=True)
    with zipfile.ZipFile(tmp_path / "autograder.zip") as archive:
        names = set(archive.namelist())
        assert archive.getinfo("run_autograder").external_attr >> 16 & 0o100, "it can be executed"
    assert {
        "setup.sh",
        "run_autograder",
        "rubric.toml",
        "mini_dnn/run.py",
        "mini_dnn/pyproject.toml",
    } <= names
