"""Stand-ins for Slurm's commands, which run jobs as local processes, and a profile of a cluster."""

import os
from pathlib import Path

import pytest

from mini_dnn.work import Profile

PROFILE = Profile(
    partition="gpu",
    account="ece408",
    constraint="a40",
    gpus_per_node=1,
    cpus=2,
    memory_gb=16,
    minutes=20,
    jobs_at_once=3,
    setup=("module load cuda/12.4",),
    sbatch={"reservation": "class"},
)
# The behaviour that submitit relies on: an id is printed, and tasks run in the background.
SBATCH = """#!/bin/bash
set -eu
cp "$1" "$CLUSTER/script.$$.sh"
last=$(sed -nE 's/^#SBATCH --array=0-([0-9]+).*/\\1/p' "$1")
module() { echo "$@" >> "$CLUSTER/modules"; }
export -f module
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=1 SLURM_NNODES=1 SLURM_JOB_ID=$$
for task in $(seq 0 "${last:-0}"); do
  if [ -n "$last" ]; then export SLURM_ARRAY_JOB_ID=$$ SLURM_ARRAY_TASK_ID=$task; fi
  bash "$CLUSTER/script.$$.sh" < /dev/null > "$CLUSTER/log.$$.$task" 2>&1 &  # submitit moves its own file
  echo $! > "$CLUSTER/pid.$$.$task"
done
echo "Submitted batch job $$"
"""
SRUN = """#!/bin/bash
while [ "${1#--}" != "$1" ]; do
  case "$1" in --output|--error) shift 2 ;; *) shift ;; esac
done
exec "$@"
"""
SQUEUE = """#!/bin/bash
case " $* " in *" --name"*) exit ;; *" --all "*) ;; *) exit ;; esac  # for hidden partitions and other names
state() {  # a job whose process has gone is over
  if [ ! -e "$1" ] || kill -0 "$(cat "$1")" 2> /dev/null; then cat "$CLUSTER/state"; else echo COMPLETED; fi
}
for script in "$CLUSTER"/script.*.sh; do
  [ -e "$script" ] || continue
  id=${script%.sh}; id=${id##*script.}
  for task in 0 1 2 3; do echo "${id}_$task|$(state "$CLUSTER/pid.$id.$task")"; done
  echo "$id|$(state "$CLUSTER/pid.$id.0")"
done
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the stand-ins first on the path.

    The folder records their input; squeue prints the file ``state``.
    """
    folder.mkdir()
    for name, text in {"sbatch": SBATCH, "srun": SRUN, "squeue": SQUEUE}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "state").write_text("RUNNING")
    monkeypatch.setenv("CLUSTER", str(folder))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def scripts(cluster: Path) -> list[str]:
    return [path.read_text() for path in sorted(cluster.glob("script.*.sh"))]
