"""Cluster profiles: what a grading job asks Slurm for, as a TOML file.

The file, with everything that it may hold; each line may be left out::

    partition = "gpu"
    account = "ece408"
    constraint = "a40"              # one kind of GPU, so that times compare
    gpus_per_node = 1
    cpus = 4
    memory_gb = 32
    minutes = 30                    # of one submission; Slurm then ends the job
    jobs_at_once = 8
    setup = ["module load cuda/12.4"]   # shell commands, before each job

    [sbatch]                        # any other flag of sbatch: --gres=gpu:a40:1
    gres = "gpu:a40:1"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mini_dnn.errors import UsageError
from mini_dnn.grading.tables import MOST_BYTES, TomlTable
from mini_dnn.paths import read_regular

MIN_MINUTES = 3  # submitit warns a job 90 s before its end


@dataclass(frozen=True)
class Profile:
    """What a job of one submission gets. An empty text, or 0, leaves the choice to the cluster."""

    partition: str = ""
    account: str = ""
    constraint: str = ""
    gpus_per_node: int = 1
    cpus: int = 4
    memory_gb: float = 32.0
    minutes: int = 30
    jobs_at_once: int = 8
    setup: tuple[str, ...] = ()
    sbatch: Mapping[str, str | int | bool] = field(default_factory=dict)


def read_profile(file: Path) -> Profile:
    """Read a profile.

    Raises
    ------
    UsageError
        There is none, or it is no profile: the message names the key, and what is expected.
    """
    try:
        top = TomlTable(tomllib.loads(read_regular(file, MOST_BYTES).decode()))
        profile = Profile(
            partition=top.text("partition", Profile.partition),
            account=top.text("account", Profile.account),
            constraint=top.text("constraint", Profile.constraint),
            gpus_per_node=top.integer("gpus_per_node", Profile.gpus_per_node, least=0),
            cpus=top.integer("cpus", Profile.cpus),
            memory_gb=top.number("memory_gb", Profile.memory_gb),
            minutes=top.integer("minutes", Profile.minutes, least=MIN_MINUTES),
            jobs_at_once=top.integer("jobs_at_once", Profile.jobs_at_once),
            setup=_commands(top.get("setup", [])),
            sbatch=_flags(top.get("sbatch", {})),
        )
        top.finish()
    except OSError as error:
        raise UsageError(
            f"no cluster profile '{file}' ({error.strerror}): expected a file such as course/cluster.toml"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"cluster profile {file} is no TOML: {error}") from error
    except UsageError as error:
        raise UsageError(f"cluster profile {file}: {error}") from error
    return profile


def _commands(given: object) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(line, str) for line in given):
        raise UsageError(f"'setup' is {given!r}; expected a list of shell commands")
    return tuple(given)


def _flags(given: object) -> dict[str, str | int | bool]:
    if not isinstance(given, dict) or not all(isinstance(value, str | int) for value in given.values()):
        raise UsageError(f"[sbatch] is {given!r}; expected flags with a text, a whole number or true each")
    return given
