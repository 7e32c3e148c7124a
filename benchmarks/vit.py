"""Whole vision transformers: a network of `networks/vit` as a CUDA graph, beside PyTorch.

``python benchmarks/vit.py --models base,tiny --batches 32,1,256 --out FILE.json``

ViT-tiny/16 and ViT-B/16 at 224 pixels, images and weights in halves, weights at random and the same for all.
PyTorch is taken at its best: eager and by torch.compile, with its own choice of an attention and with
cuDNN's, and as a CUDA graph where it is none by itself. Each candidate takes turns of a tenth of a second
with ours.
Scores are compared with float64; a candidate whose scores are off is called wrong.

``--steps`` also says where our time goes: each step of a plan, run in a row in a graph of its own. Models,
batches and ways of PyTorch are measured in the order in which they are given, and with ``--seconds`` nothing
new is begun after so many: ``--quick`` is ViT-B/16 with 32 images and 60 seconds, max-autotune last.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from products import build_plans

from mini_dnn import ops
from mini_dnn.device import Device, open_device
from mini_dnn.measuring.machine import commit, versions
from mini_dnn.ops import Arrays
from mini_dnn.ops.vit import VitShape, score_bound
from mini_dnn.running.execute import Execution, compile_others
from mini_dnn.variant import Launch, Planned, TensorMap, Variant, find

OPERATION = ops.find("vit")
TURNS, TURN_S, REST_S = 5, 0.1, 0.05
QUICK = {"models": "base", "batches": "32", "modes": "default,eager,max-autotune", "seconds": 60.0}
IN_A_ROW = 20  # runs of a step
SEED = 0
NOTE = "milliseconds a forward pass, turn by turn"

Row = dict[str, Any]
Run = Callable[[], Any]


@dataclass(frozen=True)
class Candidate:
    """Something that takes turns.

    Parameters
    ----------
    name
        What the table calls it.
    timed
        ``count -> ms``: of a pass, in a row of so many.
    scores
        Of the last pass, in float64, less the mean of each image's.
    """

    name: str
    timed: Callable[[int], float]
    scores: Callable[[], np.ndarray]


@contextmanager
def opened(planned: Planned, arrays: Arrays, device: Device) -> Iterator[Execution]:
    """A plan with its weights set up, and its images there."""
    module = device.compile(planned.source, planned.defines)
    execution = Execution(planned, module, device, others=compile_others(planned, device))
    try:
        for name, value in arrays.items():
            device.copy_in(execution.buffers[name], value)
        execution.set_up()
        yield execution
    finally:
        execution.free()


@contextmanager
def ours(variant: Variant, problem: VitShape, arrays: Arrays, device: Device) -> Iterator[Candidate]:
    """A network as a graph."""
    planned = variant.planned(problem, device.max_shared_bytes)
    build_plans([planned], device)
    with opened(planned, arrays, device) as execution:
        graph = device.capture(execution.kernels)

        def scores() -> np.ndarray:
            array = problem.arrays["probabilities"]
            found = np.empty(array.shape, array.dtype)
            device.copy_out(execution.buffers["probabilities"], found)
            return centred(np.log(found.astype(np.float64)))

        try:
            yield Candidate(variant.name, partial(replayed, graph, device), scores)
        finally:
            graph.free()


def replayed(graph: Any, device: Device, count: int) -> float:
    """Milliseconds of a replay, in a row of so many."""
    start = device.record()
    for _ in range(count):
        graph.replay()
    return device.elapsed_ms(start, device.record()) / count


def centred(scores: np.ndarray) -> np.ndarray:
    """Less the mean of each image's: what a softmax leaves of them."""
    found: np.ndarray = scores - scores.mean(axis=1, keepdims=True)
    return found


def theirs(
    problem: VitShape, arrays: Arrays, images: Any, modes: Sequence[str], budget: Budget
) -> Iterator[Candidate]:
    """PyTorch's candidates, each made when it is asked for, and gone when the next one is."""
    import torch
    import vit_torch as peer

    def scores(result: Callable[[], Any]) -> np.ndarray:
        return centred(result().double().cpu().numpy())

    weights = {name: arrays[name] for name in problem.weights}
    for name, once in peer.ways(problem.sizes, images, weights, modes):
        if not budget.left(name):
            continue
        try:
            start = time.perf_counter()
            for _ in range(3):
                once()
            torch.cuda.synchronize()
            print(f"  {name}: ready after {time.perf_counter() - start:.0f} s", flush=True)
            yield Candidate(name, partial(peer.milliseconds, once), partial(scores, once))
            if "max-autotune" not in name:
                run, result = peer.captured(once)
                timed = partial(peer.milliseconds, run)
                yield Candidate(f"{name}, as a graph", timed, partial(scores, result))
        except Exception as error:  # a library's failure may be of any kind, and ends nothing here
            reason = str(error).strip().partition("\n")[0]
            print(f"  {name}: {type(error).__name__}: {reason}", flush=True)


def take_turns(candidates: Sequence[Candidate]) -> dict[str, list[float]]:
    """Milliseconds a pass, turn by turn."""
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


@dataclass(frozen=True)
class Budget:
    """How long new work is begun."""

    end: float  # of `time.monotonic`

    def left(self, what: str) -> bool:
        """Whether there is time for more; else that is said."""
        if time.monotonic() < self.end:
            return True
        print(f"  {what}: not measured, as --seconds are over", flush=True)
        return False


def measure(
    title: str,
    variants: Sequence[Variant],
    problem: VitShape,
    arrays: Arrays,
    modes: Sequence[str],
    device: Device,
    budget: Budget,
) -> list[Row]:
    """Rows of one model and batch: ours, then PyTorch's."""
    import torch
    import vit_torch as peer

    print(f"\n{title}, batch {problem.N}: {problem}", flush=True)
    bound = 2 * score_bound(problem, arrays, "fp16")  # a score, and the mean of all
    rows: dict[str, Row] = {}
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        images = torch.from_numpy(arrays["images"]).cuda()
        weights = {name: arrays[name] for name in problem.weights}
        right = centred(peer.reference(problem.sizes, images, weights).cpu().numpy())

        def add(one: Candidate, times: Mapping[str, list[float]]) -> None:
            error = np.abs(one.scores() - right)
            found = {"max_error": float(error.max()), "rms_error": float(np.sqrt((error**2).mean()))}
            row = {"model": title, "batch": problem.N, "name": one.name, "ms": [], **found, "bound": bound}
            rows.setdefault(one.name, row)["ms"].extend(times[one.name])
            ms = statistics.median(times[one.name])
            print(f"  {one.name}: {ms:.3f} ms, largest error {found['max_error']:.1e}", flush=True)

        mine = [stack.enter_context(ours(variant, problem, arrays, device)) for variant in variants]
        times = take_turns(mine)
        for one in mine:
            add(one, times)
        for candidate in theirs(problem, arrays, images, modes, budget):
            times = take_turns([*mine, candidate])
            for one in (*mine, candidate):
                add(one, times)
    print(table(list(rows.values())), flush=True)
    return list(rows.values())


def table(rows: Sequence[Row]) -> str:
    """One model and batch for people."""
    medians = {row["name"]: statistics.median(row["ms"]) for row in rows}
    first = rows[0]["name"]
    library = [ms for name, ms in medians.items() if "torch.compile" in name]
    lines = [
        f"| | ms | images/s | {first} is faster by | largest error of a score | rms | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        ms = medians[row["name"]]
        right = "agrees" if row["max_error"] <= row["bound"] else f"WRONG: the bound is {row['bound']:.1e}"
        errors = f"{row['max_error']:.1e} | {row['rms_error']:.1e}"
        lines.append(
            f"| {row['name']} | {ms:.3f} | {row['batch'] / ms * 1e3:,.0f} | {ms / medians[first]:.3f} "
            f"| {errors} | {right} |"
        )
    if library:
        lines.append(f"{first}: {min(library) / medians[first]:.3f} x torch.compile's best")
    return "\n".join(lines)


def label(step: Launch, planned: Planned) -> str:
    """What a launch is about: the weights that it reads, without the block's number, or the kernel."""
    names = [a.buffer if isinstance(a, TensorMap) else a for a in step.args if isinstance(a, str | TensorMap)]
    of = [planned.views[name][0] for name in names if name in planned.views]
    weights = [name.removesuffix(".half") for name in of if name.endswith(".half")]
    word = re.sub(r"\d+", "", weights[0]) if weights else step.kernel
    return f"{word} {'x'.join(map(str, step.grid))}"


def measure_steps(variant: Variant, problem: VitShape, arrays: Arrays, device: Device) -> list[Row]:
    """Where the time goes: each kind of step in a row, behind a whole pass that leaves numbers for it."""
    planned = variant.planned(problem, device.max_shared_bytes)
    launches = [step for step in planned.steps if isinstance(step, Launch)]
    counts = Counter(label(step, planned) for step in launches)
    kinds = {label(step, planned): step for step in reversed(launches)}
    whole = _graph_ms(planned, arrays, device)
    rows: list[Row] = []
    for name, count in counts.items():
        more = replace(planned, steps=(*planned.steps, *[kinds[name]] * IN_A_ROW))
        us = (_graph_ms(more, arrays, device) - whole) * 1e3 / IN_A_ROW
        rows.append({"step": name, "us": us, "count": count})
    total = sum(row["us"] * row["count"] for row in rows)
    print("\n| step, grid | us | times | in all | |\n| --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        share = row["us"] * row["count"]
        print(f"| {row['step']} | {row['us']:.2f} | {row['count']} | {share:.0f} us | {share / total:.1%} |")
    words = f"{total:.0f} us in all steps, {whole * 1e3:.0f} us as they follow each other"
    print(f"{variant.name}, batch {problem.N}: {words}", flush=True)
    return [{"batch": problem.N, "variant": variant.name, **row} for row in rows]


def _graph_ms(planned: Planned, arrays: Arrays, device: Device) -> float:
    with opened(planned, arrays, device) as execution:
        graph = device.capture(execution.kernels)
        try:
            replayed(graph, device, 3)
            return min(replayed(graph, device, 10) for _ in range(3))
        finally:
            graph.free()


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--impl", default="networks/vit/fused", help="networks, with commas between them")
    parser.add_argument("--models", default="base,tiny", help="of the operation's problems of 224 pixels")
    parser.add_argument("--batches", default="32,1,256")
    parser.add_argument("--modes", default="eager,default,max-autotune", help="of PyTorch; empty: none")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing new after these")
    parser.add_argument("--quick", action="store_true", help="ViT-B/16 with 32 images, in a minute")
    parser.add_argument("--steps", action="store_true", help="say where our time goes, step by step")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(words)
    for name, value in QUICK.items() if given.quick else ():
        setattr(given, name, value)
    budget = Budget(time.monotonic() + given.seconds)
    variants = [find(name) for name in given.impl.split(",")]
    modes = [mode for mode in given.modes.split(",") if mode]
    batches = [int(word) for word in given.batches.split(",")]
    found: Mapping[str, list[Row]] = {"rows": [], "steps": []}
    with closing(open_device("cuda")) as device:
        import torch

        about = {"note": NOTE, "device": device.description, "commit": commit()}
        about |= {"versions": {**versions(), "torch": torch.__version__}}
        for title in given.models.split(","):
            for batch in batches:
                if not budget.left(f"{title}, batch {batch}"):
                    continue
                problem = replace(OPERATION.course[title], N=batch, dtype="fp16")
                arrays = OPERATION.inputs(problem, SEED)
                if given.steps:
                    found["steps"].extend(measure_steps(variants[0], problem, arrays, device))
                found["rows"].extend(measure(title, variants, problem, arrays, modes, device, budget))
                if given.out:  # after each, as compiling may take longer than one has
                    given.out.write_text(json.dumps({**about, **found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
