"""Whole residual networks: networks of `networks/resnet18` as CUDA graphs, beside PyTorch.

``python benchmarks/resnet.py --batches 1,8,32,64 --out FILE.json``

ResNet-18 at 224 pixels, images and weights in halves, weights at random and the same for all. PyTorch has its
channels side by side and is taken at its best: eager with batch norm apart and folded, as a CUDA graph, and
by torch.compile. Each candidate takes turns of a tenth of a second with ours. Scores of some images of both
ends are compared with float64; a candidate whose scores are off is called wrong.

``--steps`` also says where our time goes: each kind of launch, run in a row in a graph of its own, and the
rate of the convolutions together. With ``--seconds`` nothing new is begun after so many.
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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from products import build_plans
from vit import Budget, Candidate, opened, replayed, take_turns

from mini_dnn import ops
from mini_dnn.device import Device, open_device
from mini_dnn.measuring.machine import commit, versions
from mini_dnn.ops import Arrays
from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.variant import Launch, Planned, TensorMap, Variant, find

OPERATION = ops.find("resnet")
IN_A_ROW = 20  # runs of a step
ENDS = 4  # images of each end of a batch that are compared
SEED = 0
NOTE = "milliseconds a forward pass, turn by turn"

Row = dict[str, Any]


@contextmanager
def ours(variant: Variant, problem: ResNetShape, arrays: Arrays, device: Device) -> Iterator[Candidate]:
    """A network as a graph."""
    with opened(variant.planned(problem, device.max_shared_bytes), arrays, device) as execution:
        execution.kernels()  # a kernel's first launch loads it
        graph = device.capture(execution.kernels)

        def scores() -> np.ndarray:
            array = problem.arrays["scores"]
            found = np.empty(array.shape, array.dtype)
            device.copy_out(execution.buffers["scores"], found)
            return found.astype(np.float64)

        try:
            yield Candidate(variant.name, partial(replayed, graph, device), scores)
        finally:
            graph.free()


def on_host(result: Callable[[], Any]) -> np.ndarray:
    """A result of PyTorch's in float64."""
    found: np.ndarray = result().double().cpu().numpy()
    return found


def theirs(
    problem: ResNetShape, arrays: Arrays, images: Any, modes: Sequence[str], budget: Budget
) -> Iterator[Candidate]:
    """PyTorch's candidates, each made when it is asked for, and gone when the next one is."""
    import resnet_torch as peer
    import torch
    from vit_torch import captured, milliseconds

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
            yield Candidate(name, partial(milliseconds, once), partial(on_host, once))
            if "max-autotune" not in name:
                run, result = captured(once)
                found = partial(on_host, result)
                yield Candidate(f"{name}, as a graph", partial(milliseconds, run), found)
        except Exception as error:  # a library's failure may be of any kind, and ends nothing here
            reason = str(error).strip().partition("\n")[0]
            print(f"  {name}: {type(error).__name__}: {reason}", flush=True)


def measure(
    variants: Sequence[Variant],
    problem: ResNetShape,
    arrays: Arrays,
    bound: float,
    modes: Sequence[str],
    device: Device,
    budget: Budget,
) -> list[Row]:
    """Rows of one batch: ours, then PyTorch's."""
    import resnet_torch as peer
    import torch

    print(f"\nbatch {problem.N}: {problem}", flush=True)
    rows: dict[str, Row] = {}
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        images = torch.from_numpy(arrays["images"]).cuda()
        weights = {name: arrays[name] for name in problem.weights}
        seen = sorted({*range(min(ENDS, problem.N)), *range(max(0, problem.N - ENDS), problem.N)})
        right = peer.reference(problem.sizes, images[seen], weights).cpu().numpy()

        def add(one: Candidate, times: Mapping[str, list[float]]) -> None:
            error = np.abs(one.scores()[seen] - right)
            found = {"max_error": float(error.max()), "largest": float(np.abs(right).max())}
            row = {"batch": problem.N, "name": one.name, "ms": [], **found, "bound": bound}
            rows.setdefault(one.name, row)["ms"].extend(times[one.name])
            ms = statistics.median(times[one.name])
            print(f"  {one.name}: {ms:.4f} ms, largest error {found['max_error']:.1e}", flush=True)

        mine = [stack.enter_context(ours(variant, problem, arrays, device)) for variant in variants]
        if mine:
            times = take_turns(mine)
            for one in mine:
                add(one, times)
        for candidate in theirs(problem, arrays, images, modes, budget):
            times = take_turns([*mine[-1:], candidate])
            for one in (*mine[-1:], candidate):
                add(one, times)
    print(table(list(rows.values())), flush=True)
    return list(rows.values())


def table(rows: Sequence[Row]) -> str:
    """One batch for people."""
    lines = ["| | ms | images/s | largest error of a score | |", "| --- | ---: | ---: | ---: | --- |"]
    for row in rows:
        ms = statistics.median(row["ms"])
        verdict = "agrees" if row["max_error"] <= row["bound"] else f"WRONG: the bound is {row['bound']:.1e}"
        speed = f"{row['batch'] / ms * 1e3:,.0f}"
        lines.append(f"| {row['name']} | {ms:.4f} | {speed} | {row['max_error']:.1e} | {verdict} |")
    return "\n".join(lines)


def label(step: Launch) -> str:
    """What a launch is about: the layer whose weights it reads, without the block's number, or the kernel."""
    names = [a.buffer if isinstance(a, TensorMap) else a for a in step.args if isinstance(a, str | TensorMap)]
    weights = [name.removesuffix("_half") for name in names if name.endswith("_half")]
    layer = re.sub(r"_[1-9]\d*_", "_n_", weights[0]) if weights else step.kernel
    return f"{layer} {step.kernel.removeprefix('convolve_')} {'x'.join(map(str, step.grid))}"


def measure_steps(variant: Variant, problem: ResNetShape, arrays: Arrays, device: Device) -> list[Row]:
    """Where the time goes: each kind of step in a row, behind a whole pass that leaves numbers for it."""
    planned = variant.planned(problem, device.max_shared_bytes)
    launches = [step for step in planned.steps if isinstance(step, Launch)]
    counts = Counter(label(step) for step in launches)
    kinds = {label(step): step for step in reversed(launches)}
    whole = _graph_ms(planned, arrays, device)
    rows: list[Row] = []
    for name, count in counts.items():
        more = replace(planned, steps=(*planned.steps, *[kinds[name]] * IN_A_ROW))
        us = (_graph_ms(more, arrays, device) - whole) * 1e3 / IN_A_ROW
        rows.append({"batch": problem.N, "variant": variant.name, "step": name, "us": us, "count": count})
    print("\n| step, kernel, grid | us | times |\n| --- | ---: | ---: |")
    for row in rows:
        print(f"| {row['step']} | {row['us']:.2f} | {row['count']} |")
    total = sum(row["us"] * row["count"] for row in rows)
    of_layers = sum(row["us"] * row["count"] for row in rows if row["step"].startswith("layer"))
    convolutions = problem.sizes.convolutions[1:]
    flops = 2 * problem.N * sum(c.P**2 * c.K * c.C * c.R**2 for c in convolutions)
    words = (
        f"{total:.1f} us in all steps, {whole * 1e3:.1f} us as they follow each other; convolutions behind"
    )
    rate = f"the first {of_layers:.1f} us, {flops / of_layers / 1e6:.0f} TFLOP/s"
    print(f"{variant.name}, batch {problem.N}: {words} {rate}", flush=True)
    return rows


def _graph_ms(planned: Planned, arrays: Arrays, device: Device) -> float:
    with opened(planned, arrays, device) as execution:
        execution.kernels()
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
    default = "networks/resnet18/v5_fused,networks/resnet18/v6_graph"
    parser.add_argument("--impl", default=default, help="networks; the last one takes all turns")
    parser.add_argument("--batches", default="1,8,32,64")
    parser.add_argument("--modes", default="eager,default,max-autotune", help="of PyTorch; empty: none")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing new after these")
    parser.add_argument("--steps", action="store_true", help="say where our time goes, step by step")
    parser.add_argument("--build", action="store_true", help="compile our kernels, and do nothing else")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(words)
    budget = Budget(time.monotonic() + given.seconds)
    variants = [find(name) for name in given.impl.split(",") if name]
    modes = [mode for mode in given.modes.split(",") if mode]
    problems = [
        replace(OPERATION.course["batch-1"], N=int(word), dtype="fp16") for word in given.batches.split(",")
    ]
    found: dict[str, Any] = {"rows": [], "steps": []}
    with closing(open_device("cuda")) as device:
        plans = [v.planned(problem, device.max_shared_bytes) for v in variants for problem in problems]
        build_plans(plans, device)
        if given.build:
            return 0
        import torch

        about = {"note": NOTE, "device": device.description, "commit": commit()}
        about |= {"versions": {**versions(), "torch": torch.__version__}}
        first = replace(problems[0], N=1)
        one = OPERATION.inputs(first, SEED)
        bound = float(OPERATION.bound(first, one, "fp16")["scores"].max())
        for problem in problems:
            if not budget.left(f"batch {problem.N}"):
                continue
            arrays = OPERATION.inputs(problem, SEED)
            found["rows"].extend(measure(variants, problem, arrays, bound, modes, device, budget))
            if given.steps:
                found["steps"].extend(measure_steps(variants[-1], problem, arrays, device))
            if given.out:  # after each, as compiling may take longer than one has
                given.out.write_text(json.dumps({**about, **found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
