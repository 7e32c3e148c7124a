"""Code shared by benchmarks of whole networks: candidates that take turns, ours and PyTorch's.

`vit.py`, `resnet.py`, `resnet_rungs.py`, `pictures.py` and `cpu_resnet.py` use it.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from command_line import add_impl, add_out, counts, parser_of, pytorch, some_of

from mini_dnn.device import Device
from mini_dnn.measuring import files
from mini_dnn.measuring.batches import SCHEMA, BatchesFile
from mini_dnn.measuring.bench import code_of, state_of
from mini_dnn.measuring.machine import commit, cpu_name, versions
from mini_dnn.measuring.nvml import gpu_state
from mini_dnn.measuring.records import Place
from mini_dnn.ops import Arrays, Operation
from mini_dnn.ops.problem import Problem
from mini_dnn.running.execute import Execution, compile_others
from mini_dnn.variant import Planned, Variant, find, names

TURNS, TURN_S, REST_S = 5, 0.1, 0.05
SHORT_S = 0.02  # of a turn without other candidates
SEED = 0
MODES = ("eager", "default", "max-autotune")  # of PyTorch
NOTE = "milliseconds a forward pass, turn by turn"

Row = dict[str, Any]
Run = Callable[[], Any]


@dataclass(frozen=True)
class Candidate:
    """A network that takes turns with others.

    Parameters
    ----------
    name
        Its name in the table.
    timed
        ``count -> ms``: the mean time of a pass over this many consecutive ones.
    scores
        The scores of the last pass, in float64.
    """

    name: str
    timed: Callable[[int], float]
    scores: Callable[[], np.ndarray]


@dataclass(frozen=True)
class Budget:
    """The time after which no new work begins."""

    end: float  # in `time.monotonic`

    def left(self, what: str) -> bool:
        """Whether there is time for more. If not, print a message."""
        if time.monotonic() < self.end:
            return True
        print(f"  {what}: not measured, as --seconds are over", flush=True)
        return False


@contextmanager
def opened(planned: Planned, arrays: Arrays, device: Device) -> Iterator[Execution]:
    """Yield a plan with weights set up and images copied."""
    module = device.compile(planned.source, planned.defines)
    execution = Execution(planned, module, device, others=compile_others(planned, device))
    try:
        for name, value in arrays.items():
            device.copy_in(execution.buffers[name], value)
        execution.set_up()
        yield execution
    finally:
        execution.free()


def replayed(graph: Any, device: Device, count: int) -> float:
    """Return the milliseconds of a replay, averaged over ``count`` consecutive ones."""
    start = device.record()
    for _ in range(count):
        graph.replay()
    return device.elapsed_ms(start, device.record()) / count


@contextmanager
def ours(
    variant: Variant,
    problem: Problem,
    arrays: Arrays,
    device: Device,
    output: str,
    scores: Callable[[np.ndarray], np.ndarray],
) -> Iterator[Candidate]:
    """Yield a network as a graph. ``scores`` converts the content of the array ``output`` to scores."""
    with opened(variant.planned(problem, device.max_shared_bytes), arrays, device) as execution:
        execution.kernels()
        graph = device.capture(execution.kernels)

        def found() -> np.ndarray:
            array = problem.arrays[output]
            values = np.empty(array.shape, array.dtype)
            device.copy_out(execution.buffers[output], values)
            return scores(values.astype(np.float64))

        try:
            yield Candidate(variant.name, partial(replayed, graph, device), found)
        finally:
            graph.free()


def theirs(
    ways: Iterable[tuple[str, Run]], budget: Budget, scores: Callable[[np.ndarray], np.ndarray]
) -> Iterator[Candidate]:
    """Yield PyTorch's candidates. Each is created on demand, and freed before the next one."""
    import torch
    from vit_torch import captured, milliseconds

    def on_host(result: Run) -> np.ndarray:
        return scores(result().double().cpu().numpy())

    for name, once in ways:
        if not budget.left(name):
            continue
        try:
            start = time.perf_counter()
            for _ in range(3):
                once()
            torch.cuda.synchronize()
            print(f"  {name}: ready after {time.perf_counter() - start:.0f} s", flush=True)
            yield Candidate(name, partial(milliseconds, once), partial(on_host, once))
            if "max-autotune" not in name:  # it is a graph itself
                run, result = captured(once)
                found = partial(on_host, result)
                yield Candidate(f"{name}, as a graph", partial(milliseconds, run), found)
        except Exception as error:  # a library may raise anything, which must not end the benchmark
            reason = str(error).strip().partition("\n")[0]
            print(f"  {name}: {type(error).__name__}: {reason}", flush=True)


def take_turns(candidates: Sequence[Candidate]) -> dict[str, list[float]]:
    """Return the milliseconds per pass, turn by turn."""
    counts = {}
    for one in candidates:
        one.timed(2)
        counts[one.name] = max(1, int(TURN_S * 1e3 / one.timed(3)))
    found: dict[str, list[float]] = {one.name: [] for one in candidates}
    for _ in range(TURNS):
        for one in candidates:
            time.sleep(REST_S)
            one.timed(max(1, counts[one.name] // 4))
            found[one.name].append(one.timed(counts[one.name]))
    return found


def turns(once: Callable[[int], float]) -> list[float]:
    """Return milliseconds, turn by turn, where ``once`` returns the mean over consecutive ones."""
    count = max(1, int(SHORT_S * 1e3 / once(1)))
    return [once(count) for _ in range(TURNS)]


def measured(
    mine: Sequence[Candidate], others: Iterable[Candidate], figures: Callable[[Candidate], Row]
) -> list[Row]:
    """Return a row for each candidate: ours take turns, then the last of ours with each of the others.

    ``figures`` returns further fields of a row, including the largest error.
    """
    rows: dict[str, Row] = {}

    def add(candidates: Sequence[Candidate]) -> None:
        times = take_turns(candidates)
        for one in candidates:
            row = rows.setdefault(one.name, {**program(one.name), "ms": []})
            row.update(figures(one))
            row["agrees"] = row["max_error"] <= row["bound"]
            row["ms"].extend(times[one.name])
            ms = statistics.median(times[one.name])
            print(f"  {one.name}: {ms:.4f} ms, largest error {row['max_error']:.1e}", flush=True)

    if mine:
        add(mine)
    for candidate in others:
        add([*mine[-1:], candidate])
    return list(rows.values())


def verdict(row: Row) -> str:
    """Describe whether a row's scores are right."""
    return "agrees" if row["agrees"] else f"WRONG: the bound is {row['bound']:.1e}"


def arguments(text: str, impl: str, batches: str) -> argparse.ArgumentParser:
    """The options of benchmarks beside PyTorch. ``text`` is that of ``--help``; the others are defaults."""
    parser = parser_of(text)
    add_impl(parser, impl, "; PyTorch is compared with the last one")
    parser.add_argument(
        "--batches", type=counts, default=batches, help="batch sizes, in this order (default: %(default)s)"
    )
    parser.add_argument(
        "--modes",
        type=some_of(MODES),
        default=",".join(MODES),
        help="modes of PyTorch; empty for none (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin nothing new after this time"
    )
    parser.add_argument("--steps", action="store_true", help="also show the time of each step of ours")
    add_out(parser)
    return parser


def place_of(device: Device) -> Place:
    """Describe the GPU with its state, and the processor."""
    return Place(name=device.description, cpu=cpu_name(), state=state_of(gpu_state(device)))


def about(place: Place, operation: Operation, more: Mapping[str, str] = MappingProxyType({})) -> Row:
    """The head of a results file that begins now. ``more`` has versions of other programs."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    head = {"schema": SCHEMA, "started": started, **commit(), "device": place, "note": NOTE}
    return {**head, "versions": {**versions(), **more}, "op": operation.name}


def torch_version() -> dict[str, str]:
    """The version of PyTorch.

    Raises
    ------
    UsageError
        It is not installed, or cannot use a GPU.
    """
    return {"torch": pytorch().__version__}


def sizes(problem: Problem) -> str:
    """The sizes of a network in the form of ``--shapes``, without batch size and type."""
    return ",".join(str(value) for name, value in problem.fields.items() if name not in ("N", "dtype"))


def program(name: str) -> Row:
    """The fields of a row that identify a program."""
    if name not in names():
        return {"kind": "library", "program": name}
    return {"kind": "ours", "program": name, "code_hash": code_of(find(name))}


def write(path: Path | None, *parts: Mapping[str, Any]) -> None:
    """Write results, if a file was requested. An error that is not finite becomes None."""
    if path:
        content = {key: value for part in parts for key, value in part.items()}
        files.write({**content, "rows": [numbers(row) for row in content["rows"]]}, path, BatchesFile)


def numbers(row: Row) -> Row:
    """A row without NaN and infinities, which JSON does not support."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
