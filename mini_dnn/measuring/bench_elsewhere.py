"""Run the measurements of ``bench`` as items on an engine of `mini_dnn.work`: processes, Slurm, Dask, MPI."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from mini_dnn import ops
from mini_dnn.device import open_device
from mini_dnn.errors import CheckError, MiniDnnError
from mini_dnn.measuring.bench import (
    CHECKED,
    PUBLISHED,
    RANDOM,
    SWEEP_TIMING,
    Bench,
    code_of,
    op_ms_of,
    sweep_of,
)
from mini_dnn.measuring.inference import Program
from mini_dnn.measuring.layerwise import LAYER
from mini_dnn.measuring.measure import Setting
from mini_dnn.measuring.records import BenchFile, Row, Skipped
from mini_dnn.running.runnable import divided
from mini_dnn.variant import Variant, find
from mini_dnn.work import Engine, Item, Work, digest, run_items
from mini_dnn.work.items import Record

FUNCTION = f"{__name__}:measuring"
IN_NETWORK, AT_RANDOM, CANDIDATE = "network", "problem", "candidate"  # kinds of measurements


@dataclass
class Measurements:
    """A list of measurements, in the order in which a single process makes them.

    Parameters
    ----------
    device, budget_s
        The device that each worker opens, and seconds for the timed runs of one op.
    data, data_dir
        The images for the network.
    sweep
        Whether to time the candidates of searched variants, too. Each candidate is an item.
    """

    device: str
    budget_s: float
    data: str
    data_dir: Path | None
    sweep: bool
    items: list[Item] = field(default_factory=list)
    # Each sweep with the range of numbers of its items.
    sweeps: list[tuple[Variant, str, Any, range]] = field(default_factory=list)
    # After a run: the folders of variants that the workers' device cannot run, with what each needs
    needs: dict[str, str] = field(default_factory=dict)

    def in_network(self, variant: Variant, batch: int) -> None:
        """Add a variant of the network's layers for ``batch`` images."""
        self._add(IN_NETWORK, variant, str(batch), "")
        for name, problem in ops.find(LAYER).course.items():
            self._candidates(variant, name, problem.with_batch(batch))

    def at_random(self, variant: Variant, name: str, problem: Any) -> None:
        """Add a variant at a problem, with random inputs."""
        self._add(AT_RANDOM, variant, name, problem.text)
        self._candidates(variant, name, problem)

    def _candidates(self, variant: Variant, name: str, problem: Any) -> None:
        sweep = variant.sweep
        if not self.sweep or sweep is None or variant.limit_for(problem):
            return
        first = len(self.items)
        for y in sweep.y_values:
            for x in sweep.x_values:
                self._add(CANDIDATE, variant, name, problem.text, x, y)
        self.sweeps.append((variant, name, problem, range(first, len(self.items))))

    def _add(self, kind: str, variant: Variant, *more: str | int) -> None:
        value = [kind, str(variant.folder), *more]
        code = (digest(variant.folder), code_of(variant))
        given = [kind, variant.name, *code, *more, self.device, self.budget_s, self.data]
        self.items.append(Item(f"{len(self.items):06}", value, repr(given)))

    def run(self, engine: Engine, folder: Path, on_row: Callable[[Row | Skipped], None]) -> BenchFile:
        """Make all measurements. The record is that of a single process, apart from times.

        Parameters
        ----------
        folder
            The folder for the results of items, which the next run reuses, and for the engine's files.

        Raises
        ------
        CheckError
            A variant computes something else.
        MiniDnnError
            Some measurements failed, or workers have different devices.
        """
        common = {"device": self.device, "budget_s": self.budget_s, "data": self.data}
        common["data_dir"] = str(self.data_dir.resolve()) if self.data_dir else ""
        work = Work(FUNCTION, self.items, folder / "results", common, code=digest())

        def heard(name: str, record: Record, known: bool) -> None:
            for row in record.value["rows"]:
                on_row(msgspec.convert(row, Row))
            for skipped in record.value["skipped"]:
                on_row(msgspec.convert(skipped, Skipped))

        found = run_items(work, engine, folder / "jobs", heard)
        if found.failures:
            kind = CheckError if found.reasons.startswith(CheckError.__name__) else MiniDnnError
            raise kind(
                f"{len(found.failures)} of {len(self.items)} measurements are not complete; the same command "
                f"continues with them: {found.reasons}"
            )
        values = [found.results[item.name].value for item in self.items]
        wanting = zip(self.items, values, strict=True)
        self.needs = {item.value[1]: value["needs"] for item, value in wanting if value["needs"]}
        return self._joined(values)

    def _joined(self, values: Sequence[Mapping[str, Any]]) -> BenchFile:
        devices = sorted({value["head"]["device"]["name"] for value in values})
        if len(devices) > 1:
            raise MiniDnnError(
                f"the workers have different devices, whose times cannot be compared: {'; '.join(devices)}. "
                "Request one kind in the profile (constraint), and name another file"
            )
        record = dict(values[0]["head"])
        for kind in ("rows", "skipped"):
            record[kind] = [row for value in values for row in value[kind]]
        record["sweeps"] = [
            msgspec.to_builtins(sweep_of(variant, name, problem, _in_order([values[i]["op_ms"] for i in at])))
            for variant, name, problem, at in self.sweeps
            if str(variant.folder) not in self.needs
        ]
        return msgspec.convert(record, BenchFile)


def _in_order(times: Sequence[float | None]) -> Callable[[int, int], float | None]:
    """Return a function for `sweep_of` that returns the times of pairs in the order of the list."""
    left = iter(times)
    return lambda x, y: next(left)


def remove(folder: Path) -> None:
    """Remove the results of items, after the results file has been written."""
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def measuring(common: Mapping[str, Any]) -> Iterator[Callable[[Sequence[Any], int], dict[str, Any]]]:
    """Yield the function of a worker, which makes measurements on one device."""
    data_dir = Path(common["data_dir"]) if common["data_dir"] else None

    @cache
    def program() -> Program:
        return Program.load(common["data"], data_dir)

    with closing(open_device(common["device"])) as device:
        setting = Setting(device, replace(PUBLISHED, budget_s=common["budget_s"]), CHECKED)
        heads: dict[str, BenchFile] = {}  # by data set

        def compute(value: Sequence[Any], seed: int) -> dict[str, Any]:
            kind, folder, name, text, *more = value
            variant = find(folder)
            data = program().data.name if kind == IN_NETWORK else RANDOM
            bench = Bench(setting, data, head=heads.get(data))
            heads[data] = replace(bench.record, rows=[], skipped=[], sweeps=[])
            op_ms, needs = None, "".join(divided([variant], device)[1])
            if needs:
                pass  # the first process decides what that means
            elif kind == IN_NETWORK:
                program().check_batch(int(name))
                program().bench(bench, variant, int(name))
            elif kind == AT_RANDOM:
                bench.run([variant], name, variant.operation.parse(text))
            else:
                swept = replace(setting, timing=SWEEP_TIMING)
                x, y = more
                op_ms = op_ms_of(variant, name, variant.operation.parse(text), x, y, swept)
            found: dict[str, Any] = msgspec.to_builtins(bench.record)
            rows = {kind: found.pop(kind) for kind in ("rows", "skipped", "sweeps")}
            return {"head": found, "op_ms": op_ms, "needs": needs, **rows}

        yield compute
