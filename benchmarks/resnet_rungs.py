"""Measure the rungs of `networks/resnet18` by batch size: time, copies, launches and memory.

``python benchmarks/resnet_rungs.py --out FILE.json``

The network is ResNet-18 at 224 pixels, with images in halves and the same random weights for all. Each rung
is a CUDA graph. It is timed with the kernels only, then with images from page-locked memory and scores to it,
and then without round trips of buffers if it has some. Scores of the first images are compared with float64,
and a row with wrong scores is marked as wrong. With ``--seconds``, nothing new begins after that time.
`cpu_resnet.py` measures the CPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import numpy as np
from command_line import add_out, check_variants, counts, listed, parser_of
from products import build_plans
from whole_networks import SEED, Budget, Row, about, opened, place_of, program, replayed, sizes, turns, write

from mini_dnn import ops
from mini_dnn.cli import status_of
from mini_dnn.device import Device, open_device
from mini_dnn.ops import Arrays
from mini_dnn.ops.compare import compare
from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.running.execute import Execution
from mini_dnn.variant import Launch, Planned, RoundTrip, Variant, find, names

OPERATION = ops.find("resnet")
COMPARED = 2  # images


def without_trips(planned: Planned) -> Planned:
    """The plan without round trips: every buffer stays where it is."""
    return replace(planned, steps=tuple(step for step in planned.steps if not isinstance(step, RoundTrip)))


def memory(planned: Planned) -> dict[str, int]:
    """Bytes of weights, including those created by the set-up, of maps, and for kernels of other variants."""
    setup = [step for step in planned.setup if isinstance(step, Launch)]
    made = {arg for step in setup for arg in step.args if isinstance(arg, str)}
    found = {"weights": 0, "activations": 0, "workspace": 0, "images and scores": 0}
    for name, array in planned.arrays.items():
        if array.role == "weight" or (name in planned.scratch and name in made):
            found["weights"] += array.nbytes
        elif name not in planned.scratch:
            found["images and scores"] += array.nbytes
        else:
            found["workspace" if name.startswith(("call_", "product_")) else "activations"] += array.nbytes
    return found


@contextmanager
def graph_of(work: Callable[[], None], device: Device) -> Iterator[Callable[[int], float]]:
    """Yield a function that returns the milliseconds of a replay, averaged over consecutive ones."""
    graph = device.capture(work)
    try:
        yield lambda count: replayed(graph, device, count)
    finally:
        graph.free()


@dataclass(frozen=True)
class Right:
    """Scores of the first images in float64, and their error bounds in each precision."""

    scores: np.ndarray
    bounds: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, problem: ResNetShape, arrays: Arrays, precisions: Iterable[str]) -> Right:
        """Compute them for the whole problem."""
        bounds = {p: OPERATION.bound(problem, arrays, p)["scores"] for p in precisions}
        return cls(OPERATION.answer(problem, arrays)["scores"], bounds)

    def compared(self, scores: np.ndarray, precision: str) -> Row:
        """Compare scores of these images. There may be more scores, or fewer."""
        count = min(len(scores), len(self.scores))
        found = compare(scores[:count], self.scores[:count], self.bounds[precision][:count])
        largest = float(np.abs(self.scores).max())
        return {"agrees": found.ok, "max_error": found.max_error, "largest_score": largest}


def served_ms(execution: Execution, problem: ResNetShape, arrays: Arrays, device: Device) -> list[float]:
    """Measure with images from page-locked memory, and scores to it."""
    images = device.pinned(arrays["images"].shape, arrays["images"].dtype)
    images[:] = arrays["images"]
    scores = device.pinned((problem.N, problem.classes))

    def work() -> None:
        device.copy_in(execution.buffers["images"], images)
        execution.kernels()
        device.copy_out(execution.buffers["scores"], scores, wait=False)

    with graph_of(work, device) as timed:
        return turns(timed)


def measure(variant: Variant, problem: ResNetShape, arrays: Arrays, right: Right, device: Device) -> Row:
    """Measure one rung at one batch size."""
    planned = variant.planned(problem, device.max_shared_bytes)
    build_plans([planned], device.arch)
    trips = [step.buffer for step in planned.steps if isinstance(step, RoundTrip)]
    row: Row = {**program(variant.name), "problem": sizes(problem), "batch": problem.N}
    row["memory"] = memory(planned)
    row["launches"] = sum(isinstance(step, Launch) for step in planned.steps)
    row["round_trips"] = len(trips)
    row["copied_bytes"] = 2 * sum(planned.arrays[name].nbytes for name in trips)
    before = device.free_bytes()
    with opened(planned, arrays, device) as execution:
        row["taken_bytes"] = before - device.free_bytes()
        execution.kernels()  # the first launch of a kernel loads it
        scores = np.empty((problem.N, problem.classes), np.float32)
        device.copy_out(execution.buffers["scores"], scores)
        row |= right.compared(scores, variant.precision)
        with graph_of(execution.kernels, device) as timed:
            row["ms"] = turns(timed)
        row["served_ms"] = served_ms(execution, problem, arrays, device)
    if trips:
        staying = without_trips(planned)
        with opened(staying, arrays, device) as execution, graph_of(execution.kernels, device) as timed:
            row["stay_ms"] = turns(timed)
    return row


def said(row: Row) -> str:
    """Format a row as text."""
    ms = statistics.median(row["ms"])
    text = f"{row['program']}, batch {row['batch']}: {ms:.3f} ms, {row['batch'] / ms * 1e3:,.0f} images/s"
    if "served_ms" in row:
        text += f", {statistics.median(row['served_ms']):.3f} with copies"
    return text + ("" if row["agrees"] else f"; WRONG by {row['max_error']:.1e}")


def arguments() -> argparse.ArgumentParser:
    """The flags."""
    parser = parser_of(__doc__)
    parser.add_argument("--impl", type=listed, help="networks, separated by commas (default: all)")
    parser.add_argument(
        "--batches",
        type=counts,
        default="1,8,64,4,16,32",
        help="batch sizes, measured in this order (default: %(default)s)",
    )
    parser.add_argument(
        "--problem", default="batch-1", help="a problem of the operation (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin nothing new after this time"
    )
    add_out(parser)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write. Return 1 if a row is wrong."""
    given = arguments().parse_args(words)
    budget = Budget(time.monotonic() + given.seconds)
    chosen, batches = given.impl or list(names("resnet")), given.batches
    check_variants(chosen, OPERATION.name)
    rows: list[Row] = []
    with closing(open_device("cuda")) as device:
        head = about(place_of(device), OPERATION)
        whole = OPERATION.course.get(given.problem) or OPERATION.parse(given.problem)
        drawn = OPERATION.inputs(whole.with_batch(max(batches)), SEED)
        few = whole.with_batch(min(COMPARED, max(batches)))
        variants = [find(name) for name in chosen]
        precisions = {"fp32", *(variant.precision for variant in variants)}
        right = Right.of(few, {**drawn, "images": drawn["images"][: few.N]}, precisions)
        for batch in batches:
            problem, arrays = whole.with_batch(batch), {**drawn, "images": drawn["images"][:batch]}
            for variant in variants:
                if limit := variant.limit_for(problem):
                    print(f"  {variant.name}, batch {batch}: {limit}", flush=True)
                    continue
                if not budget.left(f"{variant.name}, batch {batch}"):
                    continue
                rows.append(measure(variant, problem, arrays, right, device))
                print(said(rows[-1]), flush=True)
                write(given.out, head, {"rows": rows})
    return 0 if all(row["agrees"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(status_of(main))
