"""Profiles of clusters, and the files of Dask schedulers that they name."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from slurm_stand_ins import PROFILE

from mini_dnn.errors import UsageError
from mini_dnn.work import Profile, find_engine, read_profile
from mini_dnn.work.engines import _scheduler

TEXT = (
    'partition = "gpu"\naccount = "ece408"\nconstraint = "a40"\ngpus_per_node = 1\ncpus = 2\n'
    'memory_gb = 16\nminutes = 20\njobs_at_once = 3\nsetup = ["module load cuda/12.4"]\n'
    '[sbatch]\nreservation = "class"\n'
)


def test_a_profile_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(TEXT)
    assert read_profile(file, "slurm") == PROFILE
    file.write_text("")
    assert read_profile(file, "slurm") == Profile()
    file.write_text('cpus = 2\nminutes = 20\n[gpu]\npartition = "gpu"\ncpus = 8\n')
    gpu = read_profile(file, "slurm").gpu
    assert gpu == Profile(partition="gpu", gpus_per_node=1, cpus=8, minutes=20)
    file.write_text('scheduler = "tcp://10.0.0.1:8786"\nresources = { GPU = 1 }\n')
    assert read_profile(file, "dask").resources == {"GPU": 1}
    file.write_text("workers = 3\nitem_seconds = 2.5")
    assert read_profile(file, "local") == Profile(workers=3, item_seconds=2.5)
    assert find_engine("local", read_profile(file, "local")).workers == 3


@pytest.mark.parametrize(
    ("executor", "text", "message"),
    [
        ("slurm", "partition = 1", "'partition' is 1; expected a string"),
        ("slurm", "partitoin = 'gpu'", "unknown key 'partitoin'; known are account, "),
        ("slurm", "minutes = 1", "'minutes' is 1; expected 3 or more"),
        ("slurm", "setup = 'module load'", "'setup' is 'module load'; expected a list of shell commands"),
        ("slurm", "sbatch = {gres = []}", r"\[sbatch\] is {'gres': \[\]}; expected flags"),
        ("slurm", "[gpu]\nminutse = 1", "unknown key 'gpu.minutse'"),
        ("slurm", "gpu = 1", r"\[gpu\] must be a table"),
        ("dask", "resources = 1", "'resources' is 1; expected a number each"),
        ("mpi", "partition = 'gpu'", "unknown key 'partition'"),
        ("local", "= 1", "is not valid TOML"),
    ],
)
def test_a_wrong_profile_is_explained(executor: str, text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message) as error:
        read_profile(file, executor)
    assert "cluster.toml" in str(error.value)


def test_a_profile_that_is_not_there_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no profile"):
        read_profile(tmp_path / "cluster.toml", "slurm")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory; start the cluster first: dask scheduler --scheduler-file"),
        ("{", "it does not have the address of a scheduler; start the cluster first"),
        ('{"address": "nonsense"}', "the address of the scheduler is 'nonsense'; expected 'tcp://HOST:8786'"),
    ],
    ids=["missing", "damaged", "nonsense"],
)
def test_dask_does_not_wait_forever_for_a_file(
    content: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mini_dnn.work.engines.CONNECT_S", 0.3)
    file = tmp_path / "scheduler.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match=message):
        _scheduler(Profile(scheduler_file=str(file)))


def test_dask_waits_for_a_scheduler_that_is_starting(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    start = threading.Timer(0.1, file.write_text, ['{"address": "tcp://host:8786"}'])
    start.start()
    assert _scheduler(Profile(scheduler_file=str(file))) == "tcp://host:8786"
    start.join()
