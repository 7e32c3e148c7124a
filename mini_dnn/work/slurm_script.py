"""Scripts that users submit with ``sbatch``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from mini_dnn.paths import write_atomically
from mini_dnn.work.items import short_hash
from mini_dnn.work.profile import Profile

NAME = "mini_dnn"  # of the jobs in squeue


def write_script(profile: Profile, folder: Path, chunks: Sequence[str]) -> Path:
    """Write a script for ``sbatch``: the chunks are one array of jobs, which only need this package."""
    name = f"{NAME}-{short_hash(*chunks)}"  # a waiting job reads the list of its own chunks
    listed = (folder / f"{name}.txt").resolve()
    write_atomically(listed, ("\n".join(chunks) + "\n").encode())
    (folder / "logs").mkdir(exist_ok=True)
    flags = {
        "job-name": NAME,
        "array": f"0-{len(chunks) - 1}%{profile.jobs_at_once}",
        "partition": profile.partition,
        "account": profile.account,
        "constraint": profile.constraint,
        "gpus-per-node": profile.gpus_per_node,
        "cpus-per-task": profile.cpus,
        "mem": f"{round(profile.memory_gb * 1024)}M",
        "time": profile.minutes,
        "output": f"{folder.resolve()}/logs/%A_%a.out",
    }
    given = {key: value for key, value in flags.items() if value}
    given |= {key.replace("_", "-"): value for key, value in profile.sbatch.items()}  # as submitit does
    python = [sys.executable, "-m", "mini_dnn.work", str(folder.resolve()), str(listed)]
    lines = ["#!/bin/bash", *(f"#SBATCH {_flag(key, value)}" for key, value in given.items())]
    lines += [*profile.setup, f'exec {shlex.join(python)} "$SLURM_ARRAY_TASK_ID"']
    script = folder / f"{name}.sh"
    write_atomically(script, ("\n".join(lines) + "\n").encode(), mode=0o700)
    return script


def _flag(key: str, value: object) -> str:
    return f"--{key}" if value is True else f"--{key}={shlex.quote(str(value))}"
