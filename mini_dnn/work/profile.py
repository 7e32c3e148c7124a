"""Profiles: where work runs, and the resources that it requests, as a TOML file.

Each executor reads its own keys, and refuses those of others. Each line may be omitted::

    item_seconds = 90               # the time of an item; without it, the first items are measured

    # local
    workers = 4                     # processes; `dask` waits for this many

    # slurm, sbatch: for one job
    partition = "gpu"
    account = "ece408"
    constraint = "a40"              # one kind of GPU, so that times compare
    gpus_per_node = 1
    cpus = 4
    memory_gb = 32
    minutes = 60                    # after this time, Slurm ends the job
    jobs_at_once = 8
    setup = ["module load cuda/12.4"]   # shell commands, before each job

    [sbatch]                        # any other flag of sbatch: --gres=gpu:a40:1
    gres = "gpu:a40:1"

    # dask
    scheduler = "tcp://HOST:8786"   # or scheduler_file = "FILE"
    tls_ca = "ca.pem"               # and tls_cert, tls_key
    resources = { GPU = 1 }         # the resources that workers were started with

    [gpu]                           # any of these keys, for work that needs a GPU
    partition = "gpu"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mini_dnn.errors import UsageError, reason
from mini_dnn.paths import read_regular
from mini_dnn.work.tables import MOST_BYTES, TomlTable

SLURM = ("slurm", "sbatch")
MIN_MINUTES = 3  # submitit warns a job 90 s before its end


@dataclass(frozen=True)
class Profile:
    """The resources of a worker. An empty text, or 0, leaves the choice to the engine."""

    item_seconds: float | None = None
    workers: int = 0
    partition: str = ""
    account: str = ""
    constraint: str = ""
    gpus_per_node: int = 0
    cpus: int = 4
    memory_gb: float = 32.0
    minutes: int = 60
    jobs_at_once: int = 8
    setup: tuple[str, ...] = ()
    sbatch: Mapping[str, str | int | bool] = field(default_factory=dict)
    scheduler: str = ""
    scheduler_file: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    resources: Mapping[str, float] = field(default_factory=dict)
    gpu: Profile | None = None  # for work that needs a GPU, if it runs elsewhere


def read_profile(file: Path | None, executor: str) -> Profile:
    """Read a profile for an executor. Without a file, it is an empty profile.

    Raises
    ------
    UsageError
        The file does not exist, or is not a profile: the message names the key, and what is expected.
    """
    if file is None:
        return Profile()
    try:
        values = tomllib.loads(read_regular(file, MOST_BYTES).decode())
        inner = values.pop("gpu", None)
        profile = _read(TomlTable(values), executor)
        if inner is not None:
            TomlTable(inner, "gpu")  # raises an error if it is not a table
            own = {"gpus_per_node": 1} if executor in SLURM else {}
            profile = replace(profile, gpu=_read(TomlTable(own | values | inner, "gpu"), executor))
    except OSError as error:
        raise UsageError(
            f"no profile '{file}' ({reason(error)}): expected a file such as course/cluster.toml"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"profile {file} is not valid TOML: {error}") from error
    except UsageError as error:
        raise UsageError(f"profile {file} for --executor {executor}: {error}") from error
    return profile


def _read(top: TomlTable, executor: str) -> Profile:
    item_s = top.number("item_seconds") if "item_seconds" in top else None
    fields: dict[str, Any] = {}
    if executor in SLURM:
        fields = _of_slurm(top)
    elif executor == "dask":
        fields = _of_dask(top)
    elif executor == "local":
        fields = {"workers": top.integer("workers", Profile.workers, least=0)}
    top.finish()
    return Profile(item_seconds=item_s, **fields)


def _of_slurm(top: TomlTable) -> dict[str, Any]:
    return {
        "partition": top.text("partition", Profile.partition),
        "account": top.text("account", Profile.account),
        "constraint": top.text("constraint", Profile.constraint),
        "gpus_per_node": top.integer("gpus_per_node", Profile.gpus_per_node, least=0),
        "cpus": top.integer("cpus", Profile.cpus),
        "memory_gb": top.number("memory_gb", Profile.memory_gb),
        "minutes": top.integer("minutes", Profile.minutes, least=MIN_MINUTES),
        "jobs_at_once": top.integer("jobs_at_once", Profile.jobs_at_once),
        "setup": _commands(top.get("setup", [])),
        "sbatch": _flags(top.get("sbatch", {})),
    }


def _of_dask(top: TomlTable) -> dict[str, Any]:
    names = ("scheduler", "scheduler_file", "tls_ca", "tls_cert", "tls_key")
    resources = top.get("resources", {})
    if not isinstance(resources, dict) or not all(type(n) in (int, float) for n in resources.values()):
        raise UsageError(f"'resources' is {resources!r}; expected a number each, as in {{ GPU = 1 }}")
    texts: dict[str, Any] = {name: top.text(name, "") for name in names}
    return texts | {"workers": top.integer("workers", 0, least=0), "resources": resources}


def _commands(given: object) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(line, str) for line in given):
        raise UsageError(f"'setup' is {given!r}; expected a list of shell commands")
    return tuple(given)


def _flags(given: object) -> dict[str, str | int | bool]:
    if not isinstance(given, dict) or not all(isinstance(value, str | int) for value in given.values()):
        raise UsageError(
            f"[sbatch] is {given!r}; expected flags with a text, a whole number, true or false each"
        )
    return {key: value for key, value in given.items() if value is not False}  # a flag that is not set
