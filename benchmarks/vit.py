"""Compare whole vision transformers: a network of `networks/vit` as a CUDA graph, and PyTorch.

``python benchmarks/vit.py --models base,tiny --batches 32,1,256 --out FILE.json``

The networks are ViT-tiny/16 and ViT-B/16 at 224 pixels, with images and weights in halves and the same random
weights for all. PyTorch runs in its fastest ways: eager and with torch.compile, with its own choice of
attention and with cuDNN's, and as a CUDA graph unless it uses one anyway. Each candidate takes turns of a
tenth of a second with ours. Scores are compared with float64. A candidate with wrong scores is marked as
wrong.

``--steps`` also shows where our time goes: each step of a plan, repeated in its own graph. Models, batch
sizes and ways of PyTorch are measured in the given order. With ``--seconds``, nothing new begins after that
time. ``--quick`` measures ViT-B/16 with 32 images for 60 seconds, with max-autotune last.
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
from command_line import check_variants, some_of
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
from mini_dnn.ops.vit import VitShape, score_bound
from mini_dnn.variant import Launch, Planned, TensorMap, Variant, find

OPERATION = ops.find("vit")
QUICK = {"models": ["base"], "batches": [32], "modes": ["default", "eager", "max-autotune"], "seconds": 60.0}


def centred(scores: np.ndarray) -> np.ndarray:
    """Subtract each image's mean, which a softmax ignores."""
    found: np.ndarray = scores - scores.mean(axis=1, keepdims=True)
    return found


def graph(
    variant: Variant, problem: VitShape, arrays: Arrays, device: Device
) -> AbstractContextManager[Candidate]:
    """Yield our network as a candidate. Its scores differ from PyTorch's by a constant for each image."""

    def scores(probabilities: np.ndarray) -> np.ndarray:
        return centred(np.log(probabilities))

    return ours(variant, problem, arrays, device, "probabilities", scores)


def measure(
    title: str,
    variants: Sequence[Variant],
    problem: VitShape,
    arrays: Arrays,
    modes: Sequence[str],
    device: Device,
    budget: Budget,
) -> list[Row]:
    """Measure one model and batch size: ours, then PyTorch."""
    import torch
    import vit_torch as peer

    print(f"\n{title}, batch {problem.N}: {problem}", flush=True)
    bound = 2 * score_bound(problem, arrays, "fp16")  # of a score, and of the mean of all
    build_plans([variant.planned(problem, device.max_shared_bytes) for variant in variants], device.arch)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        images = torch.from_numpy(arrays["images"]).cuda()
        weights = {name: arrays[name] for name in problem.weights}
        right = centred(peer.reference(problem.sizes, images, weights).cpu().numpy())

        def figures(one: Candidate) -> Row:
            error = np.abs(one.scores() - right)
            found = {"max_error": float(error.max()), "rms_error": float(np.sqrt((error**2).mean()))}
            return {"problem": sizes(problem), "batch": problem.N, **found, "bound": bound}

        mine = [stack.enter_context(graph(variant, problem, arrays, device)) for variant in variants]
        rows = measured(
            mine, theirs(peer.ways(problem.sizes, images, weights, modes), budget, centred), figures
        )
    print(table(rows), flush=True)
    return rows


def table(rows: Sequence[Row]) -> str:
    """Format one model and batch size as a table."""
    medians = {row["program"]: statistics.median(row["ms"]) for row in rows}
    first = rows[0]["program"]
    library = [ms for name, ms in medians.items() if "torch.compile" in name]
    lines = [
        f"| | ms | images/s | {first} is faster by | largest error of a score | rms | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        ms = medians[row["program"]]
        errors = f"{row['max_error']:.1e} | {row['rms_error']:.1e}"
        lines.append(
            f"| {row['program']} | {ms:.3f} | {row['batch'] / ms * 1e3:,.0f} | {ms / medians[first]:.3f} "
            f"| {errors} | {verdict(row)} |"
        )
    if library:
        lines.append(f"{first}: {min(library) / medians[first]:.3f} x torch.compile's best")
    return "\n".join(lines)


def label(step: Launch, planned: Planned) -> str:
    """Name a launch by the weights that it reads, without the block's number, or by the kernel."""
    names = [a.buffer if isinstance(a, TensorMap) else a for a in step.args if isinstance(a, str | TensorMap)]
    of = [planned.views[name][0] for name in names if name in planned.views]
    weights = [name.removesuffix(".half") for name in of if name.endswith(".half")]
    word = re.sub(r"\d+", "", weights[0]) if weights else step.kernel
    return f"{word} {'x'.join(map(str, step.grid))}"


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write. Return 1 if a row is wrong."""
    parser = arguments(__doc__ or "", "networks/vit/fused", batches="32,1,256")
    parser.add_argument(
        "--models",
        type=some_of(("base", "tiny")),
        default="base,tiny",
        help="models at 224 pixels, in this order (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="ViT-B/16 with 32 images, in a minute")
    given = parser.parse_args(words)
    for name, value in QUICK.items() if given.quick else ():
        setattr(given, name, value)
    budget = Budget(time.monotonic() + given.seconds)
    check_variants(given.impl, OPERATION.name)
    used = torch_version()
    variants = [find(name) for name in given.impl]
    found: dict[str, list[Row]] = {"rows": [], "steps": []}
    with closing(open_device("cuda")) as device:
        head = about(place_of(device), OPERATION, used)
        for title in given.models:
            for batch in given.batches:
                if not budget.left(f"{title}, batch {batch}"):
                    continue
                problem = replace(OPERATION.course[title], N=batch, dtype="fp16")
                arrays = OPERATION.inputs(problem, SEED)
                if given.steps:
                    found["steps"] += measure_steps(variants[-1], problem, arrays, device, label)
                found["rows"] += measure(title, variants, problem, arrays, given.modes, device, budget)
                write(given.out, head, found)  # after each one, because compilation may take long
    return 0 if all(row["agrees"] for row in found["rows"]) else 1


if __name__ == "__main__":
    sys.exit(status_of(main))
