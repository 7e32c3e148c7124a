"""Classify pictures on an engine of `mini_dnn.work`: processes, Slurm, Dask or MPI. Each shard is an item."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.device import open_device
from mini_dnn.errors import MiniDnnError, PictureError, UsageError
from mini_dnn.measuring.answers import Job
from mini_dnn.measuring.kept import Answers
from mini_dnn.measuring.pipeline import Spent
from mini_dnn.pictures.archives import Member
from mini_dnn.pictures.recipe import Recipe
from mini_dnn.pictures.sources import File, Shard, Source
from mini_dnn.pictures.stacks import Stack
from mini_dnn.progress import Bar
from mini_dnn.variant import find
from mini_dnn.work import Engine, Item, Work, run_items

FOLDER = "engine"  # with the results of items, and the engine's files
FUNCTION = f"{__name__}:answering"


@dataclass(frozen=True)
class Elsewhere:
    """An engine that classifies shards.

    Parameters
    ----------
    engine
        Provides the executor.
    folder
        The folder for results and for the engine's files. All workers must see it.
    job
        The work of each worker.
    device
        The device that it opens: see `open_device`. If empty, NumPy does the work.
    """

    engine: Engine
    folder: Path
    job: Job
    device: str

    def answers(self, shards: Iterable[Shard], about: object, spent: Spent) -> Iterator[Answers]:
        """Yield the answers of each shard in order, once all shards are complete.

        Raises
        ------
        MiniDnnError
            Some shards failed. The same call tries them again.
        """
        listed = list(shards)
        items = [
            Item(f"{s.number:08}", [plain(source) for source in s.sources], s.key(about)) for s in listed
        ]
        place = self.folder / FOLDER
        common = {"job": as_plain(self.job), "device": self.device}
        work = Work(FUNCTION, items, place / "results", common)
        done = 0
        counts = {item.name: shard.count for item, shard in zip(items, listed, strict=True)}
        with Bar("computing", sum(counts.values())) as bar:

            def heard(name: str, *more: object) -> None:
                nonlocal done
                done += counts[name]
                bar.update(done)

            found = run_items(work, self.engine, place / "jobs", heard)
        if found.failures:
            raise MiniDnnError(
                f"{len(found.failures)} of {len(items)} shards are not complete; the same command "
                f"continues: {found.reasons}"
            )
        for item in items:
            value = found.results[item.name].value
            spent.add(Spent(**value["spent"]))
            yield from_plain(value, self.job.top)

    def remove(self) -> None:
        """Remove the results of items, after the results have been written."""
        shutil.rmtree(self.folder / FOLDER, ignore_errors=True)


@contextmanager
def answering(common: Mapping[str, Any]) -> Iterator[Callable[[Sequence[Any], int], dict[str, Any]]]:
    """Yield the function of a worker, which returns the answers for a shard as plain values."""
    fields = common["job"]
    weights = Path(fields["weights"]) if fields["weights"] else None
    job = Job(**{**fields, "weights": weights, "recipe": Recipe.from_dict(fields["recipe"])})
    with ExitStack() as stack:
        device = open_device(common["device"]) if common["device"] else None
        if device:
            stack.callback(device.close)
        ready = stack.enter_context(job.on(device))

        def compute(value: Sequence[Any], seed: int) -> dict[str, Any]:
            shard = Shard(0, [source_of(words) for words in value], 0)
            answers = ready.shard(shard)
            return {
                "names": list(answers.names),
                "errors": list(answers.errors),
                "classes": answers.classes.tolist(),
                "probabilities": answers.probabilities.tolist(),
                "spent": asdict(answers.spent),
            }

        yield compute


def as_plain(job: Job) -> dict[str, Any]:
    """Convert a job to values for JSON, with absolute paths."""
    weights = str(job.weights.resolve()) if job.weights else None
    impl = find(job.impl).name if job.impl else ""  # outside of the repository, the absolute path
    fields = {name: getattr(job, name) for name in ("network", "batch", "top", "workers", "many")}
    return fields | {"weights": weights, "impl": impl, "recipe": job.recipe.to_dict()}


def from_plain(value: Mapping[str, Any], top: int) -> Answers:
    """Convert the plain values of `answering` to answers."""
    classes = np.array(value["classes"], np.int64).reshape(-1, top)
    probabilities = np.array(value["probabilities"], np.float64).reshape(-1, top)
    return Answers(value["names"], value["errors"], classes, probabilities)


def plain(source: Source) -> list[Any]:
    """Convert a source to values for JSON, with an absolute path.

    Raises
    ------
    UsageError
        The source is a picture from standard input.
    """
    if isinstance(source, Stack):
        path = str(source.path.resolve())
        pictures = source.shape, source.planes, source.first, source.last
        return ["stack", source.name, path, source.array, *pictures]
    match source.source:
        case Path():
            return ["file", source.name, str(source.source.absolute())]
        case Member(archive, offset, size):
            return ["member", source.name, str(archive.absolute()), offset, size]
        case PictureError():
            return ["broken", source.name, str(source.source)]
    raise UsageError(
        f"{source.name} can be read only here, and not by the workers of an executor; name a file"
    )


def source_of(words: Sequence[Any]) -> Source:
    """Convert the values of `plain` to a source."""
    kind, name, text, *more = words
    if kind == "stack":
        array, shape, *pictures = more
        return Stack(name, Path(text), array, tuple(shape), *pictures)
    if kind == "member":
        return File(name, Member(Path(text), *more))
    return File(name, Path(text) if kind == "file" else PictureError(text))
