"""``run.py grade --executor slurm``: each submission is graded as a whole in a job."""

import json
import shutil
from pathlib import Path

import pytest
from slurm_stand_ins import install, scripts

from mini_dnn.cli import main
from mini_dnn.grading.confined.sandbox import Isolation
from mini_dnn.paths import ROOT
from mini_dnn.work import slurm

pytestmark = pytest.mark.skipif(not Isolation().full, reason=f"no isolation here: {Isolation()}")
RUBRIC = """
name = "tiny"
[correct]
shapes = [[2, 2, 9, 8, 3, 2, 5]]
[hidden]
shapes = [[3, 1, 7, 9, 2, 3, 2]]
seeds = [5]
[[variant]]
name = "layers/custom"
points = { correct = 2, hidden = 1 }
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(slurm, "POLL_S", 0.1)
    return install(tmp_path / "cluster", monkeypatch)


def points(out: Path) -> dict[str, float]:
    """The points of each student."""
    files = (out / "students").glob("*/gradescope.json")
    return {file.parent.name: json.loads(file.read_text())["score"] for file in files}


def test_submissions_are_graded_as_jobs_and_only_once(
    tmp_path: Path, cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rubric = tmp_path / "rubric.toml"
    rubric.write_text(RUBRIC)
    for name in ("ada", "bob"):
        shutil.copytree(ROOT / "milestones/m1/direct", tmp_path / name)
    kernel = tmp_path / "bob/kernel.cu"
    kernel.write_text(kernel.read_text().replace("acc +=", "acc -="))
    words = ["grade", str(tmp_path / "ada"), str(tmp_path / "bob"), "--rubric", str(rubric)]
    words += ["--out", str(tmp_path / "out"), "--executor", "slurm", "--device", "emulator"]

    assert main(words) == 0, capsys.readouterr()
    assert points(tmp_path / "out") == {"ada": 3, "bob": 0}
    assert "--array=0-1%2" in scripts(cluster)[0]
    assert "2 of 2 graded" in capsys.readouterr().out

    shutil.copytree(ROOT / "milestones/m1/direct", tmp_path / "cyd")
    words.insert(1, str(tmp_path / "cyd"))
    assert main(words) == 0
    assert points(tmp_path / "out") == {"ada": 3, "bob": 0, "cyd": 3}
    assert len(scripts(cluster)) == 2
    assert capsys.readouterr().out.count("graded before") == 2


def test_a_submission_whose_job_was_cancelled_is_not_graded(
    tmp_path: Path, cluster: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mini_dnn.work.engine.Engine.grace_s", 0.2)
    (cluster / "sbatch").write_text("#!/bin/bash\ncp $1 $CLUSTER/script.$$.sh\necho Submitted batch job $$\n")
    (cluster / "state").write_text("CANCELLED")
    words = ["grade", str(ROOT / "milestones/m1/direct"), "--rubric", "small", "--out", str(tmp_path / "out")]
    assert main([*words, "--executor", "slurm", "--device", "emulator"]) == 1
    out = capsys.readouterr().out
    assert "direct: NOT GRADED, for a reason outside the submission: its job" in out
    assert f"its output is in {tmp_path}/out/jobs/logs/" in out
    assert points(tmp_path / "out") == {}


def test_jobs_are_of_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["grade", str(tmp_path), "--rubric", "small", "--out", str(tmp_path / "out")]
    assert main([*words, "--executor", "slurm", "--jobs", "2"]) == 2
    assert "--jobs 2 is for --executor local" in capsys.readouterr().err
