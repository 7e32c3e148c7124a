"""Compare whole residual networks: networks of `networks/resnet18` as CUDA graphs, and PyTorch.

``python benchmarks/resnet.py --batches 1,8,32,64 --out FILE.json``

The network is ResNet-18 at 224 pixels, with images and weights in halves and the same random weights for all.
PyTorch uses channels last in its fastest ways: eager with separate and with folded batch norm, as a CUDA
graph, and with torch.compile. Each candidate takes turns of a tenth of a second with ours. Scores of some
images from both ends of the batch are compared with float64. A candidate with wrong scores is marked as
wrong.

``--steps`` also shows where our time goes: each kind of launch, repeated in its own graph, and the rate of
all convolutions together. With ``--seconds``, nothing new begins after that time.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace

import numpy as np
from command_line import check_variants
from network_steps import measure_steps
from products import build_plans
from whole_networks import (
    SEED,
    Budget,
    Candidate,
    Row,
    about,
    arguments,
    measured,
    ours,
    place_of,
    sizes,
    theirs,
    torch_version,
    verdict,
    write,
)

from mini_dnn import ops
from mini_dnn.cli import status_of
from mini_dnn.device import Device, open_device
from mini_dnn.ops import Arrays
from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.variant import Launch, Planned, TensorMap, Variant, find

OPERATION = ops.find("resnet")
ENDS = 4  # images from each end of a batch that are compared
FIRST, BEHIND = "the first convolution", "convolutions behind the first"  # parts of the network


def measure(
    variants: Sequence[Variant],
    problem: ResNetShape,
    arrays: Arrays,
    bound: float,
    modes: Sequence[str],
    device: Device,
    budget: Budget,
) -> list[Row]:
    """Measure one batch size: ours, then PyTorch."""
    import resnet_torch as peer
    import torch

    print(f"\nbatch {problem.N}: {problem}", flush=True)
    seen = sorted({*range(min(ENDS, problem.N)), *range(max(0, problem.N - ENDS), problem.N)})
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        images = torch.from_numpy(arrays["images"]).cuda()
        weights = {name: arrays[name] for name in problem.weights}
        right = peer.reference(problem.sizes, images[seen], weights).cpu().numpy()

        def figures(one: Candidate) -> Row:
            error = float(np.abs(one.scores()[seen] - right).max())
            return {
                "problem": sizes(problem),
                "batch": problem.N,
                "max_error": error,
                "largest": float(np.abs(right).max()),
                "bound": bound,
            }

        mine = [stack.enter_context(graph(variant, problem, arrays, device)) for variant in variants]
        ways = peer.ways(problem.sizes, images, weights, modes)
        rows = measured(mine, theirs(ways, budget, np.asarray), figures)
    print(table(rows), flush=True)
    return rows


def graph(
    variant: Variant, problem: ResNetShape, arrays: Arrays, device: Device
) -> AbstractContextManager[Candidate]:
    """Yield one of our networks as a candidate."""
    return ours(variant, problem, arrays, device, "scores", np.asarray)


def table(rows: Sequence[Row]) -> str:
    """Format one batch size as a table."""
    lines = ["| | ms | images/s | largest error of a score | |", "| --- | ---: | ---: | ---: | --- |"]
    for row in rows:
        ms = statistics.median(row["ms"])
        speed = f"{row['batch'] / ms * 1e3:,.0f}"
        lines.append(f"| {row['program']} | {ms:.4f} | {speed} | {row['max_error']:.1e} | {verdict(row)} |")
    return "\n".join(lines)


def label(step: Launch, planned: Planned) -> str:
    """Name a launch by the layer whose weights it reads, without the block's number, or by the kernel."""
    names = [a.buffer if isinstance(a, TensorMap) else a for a in step.args if isinstance(a, str | TensorMap)]
    weights = [name.removesuffix("_half") for name in names if name.endswith("_half")]
    layer = re.sub(r"_[1-9]\d*_", "_n_", weights[0]) if weights else step.kernel
    return f"{layer} {step.kernel.removeprefix('convolve_')} {'x'.join(map(str, step.grid))}"


def counted(rows: Sequence[Row], problem: ResNetShape) -> list[Row]:
    """Add to each row the part of the network that a launch belongs to, and the FLOPs of its products.

    Products with padding do not count. The second convolution of a block includes the products of its
    shortcut. The rows are unchanged if the launches do not correspond to the convolutions.
    """
    convolutions = problem.sizes.convolutions
    flops = {c.name.replace(".", "_"): 2 * problem.N * c.P**2 * c.K * c.C * c.R**2 for c in convolutions}
    parts = {name: BEHIND if at else FIRST for at, name in enumerate(flops)}
    for block in problem.sizes.all_blocks:
        if block.downsample:
            shortcut = flops.pop(block.downsample.name.replace(".", "_"))
            flops[block.conv2.name.replace(".", "_")] += shortcut
    layers = [row["step"].split()[0].replace("_n_", "_1_") for row in rows]
    of = [{"part": parts[it], "flops": flops[it]} if it in flops else {} for it in layers]
    if sum(row["count"] * its.get("flops", 0) for row, its in zip(rows, of, strict=True)) != sum(
        flops.values()
    ):
        return list(rows)
    return [{**row, **its} for row, its in zip(rows, of, strict=True)]


def rate(rows: Sequence[Row]) -> str:
    """The rate of all convolutions after the first."""
    of = [row for row in rows if row.get("part") == BEHIND]
    if not of:
        return "no rate of the convolutions, as launches and convolutions are not the same"
    us, flops = (sum(row[what] * row["count"] for row in of) for what in ("us", "flops"))
    return f"{BEHIND}: {us:.1f} us, {flops / us / 1e6:.0f} TFLOP/s"


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write. Return 1 if a row is wrong."""
    impl = "networks/resnet18/v5_fused,networks/resnet18/v6_graph"
    parser = arguments(__doc__ or "", impl, batches="1,8,32,64")
    parser.add_argument("--build", action="store_true", help="only compile our kernels")
    given = parser.parse_args(words)
    budget = Budget(time.monotonic() + given.seconds)
    check_variants(given.impl, OPERATION.name)
    used = {} if given.build else torch_version()
    variants = [find(name) for name in given.impl]
    course = OPERATION.course["batch-1"]
    problems = [replace(course, N=batch, dtype="fp16") for batch in given.batches]
    found: dict[str, list[Row]] = {"rows": [], "steps": []}
    with closing(open_device("cuda")) as device:
        plans = [v.planned(p, device.max_shared_bytes) for v in variants for p in problems]
        build_plans(plans, device.arch)
        if given.build:
            return 0
        head = about(place_of(device), OPERATION, used)
        first = replace(problems[0], N=1)
        one = OPERATION.inputs(first, SEED)
        bound = float(OPERATION.bound(first, one, "fp16")["scores"].max())
        for problem in problems:
            if not budget.left(f"batch {problem.N}"):
                continue
            arrays = OPERATION.inputs(problem, SEED)
            found["rows"] += measure(variants, problem, arrays, bound, given.modes, device, budget)
            if given.steps:
                write(given.out, head, found)
                steps = counted(measure_steps(variants[-1], problem, arrays, device, label), problem)
                found["steps"] += steps
                print(rate(steps), flush=True)
            write(given.out, head, found)  # after each one, because compilation may exceed the time limit
    return 0 if all(row["agrees"] for row in found["rows"]) else 1


if __name__ == "__main__":
    sys.exit(status_of(main))
