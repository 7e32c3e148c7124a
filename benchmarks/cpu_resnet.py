"""Compare ResNet-18 on the CPU: `mini_dnn.nn.folded`, and PyTorch.

``python benchmarks/cpu_resnet.py [--batch N ...] [--repeats K] [--threads T] [--out FILE.json]``

Both have the same weights with folded norms, fp32, and the same number of threads. PyTorch runs in eager
mode, in eager mode with channels last, and as an optimised TorchScript graph; its fastest way counts. All of
them run alternately in one process, so that the machine's load affects all equally. Each runs twice in its
turn, and the second run is timed: PyTorch's threads spin for some milliseconds after a run, on a core that
the next program needs, and its weights replace those of the others in the caches. Scores are compared before
anything is timed. In addition to wall time, the table shows the CPU time of all threads, which is more
reliable if other programs run. Without PyTorch, only our network is timed.
"""

import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from command_line import add_out, parser_of, positive
from cpu_conv import provenance
from rich.console import Console
from rich.table import Table
from whole_networks import about, sizes, write

from mini_dnn import ops
from mini_dnn.cli import status_of
from mini_dnn.errors import CheckError
from mini_dnn.measuring.machine import cpu_name, load
from mini_dnn.measuring.records import Place
from mini_dnn.nn import folded, folded_layers
from mini_dnn.nn.folded import FoldedResNet
from mini_dnn.nn.models.resnet import RESNET18
from mini_dnn.nn.models.resnet_arrays import fold

try:
    import torch
except ModuleNotFoundError:
    torch = None

ALLOWED = 1e-4  # of the largest score: both are rounded to fp32
OURS = "ours"
OPERATION = ops.find("resnet")
# Fields of the file
KEPT = ("cores", "torch_threads", "source_sha256", "warm_up", "repeats", "threads", "load")

Calls = dict[str, Callable[[], np.ndarray]]


def random_arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights of ResNet-18 that preserve the magnitude of the values."""
    found = {}
    for name, shape in RESNET18.shapes.items():
        value = rng.standard_normal(shape)
        if len(shape) > 1:
            value *= np.sqrt(2 / np.prod(shape[1:]))
        elif name.endswith("running_var"):
            value = rng.uniform(0.5, 2, shape)
        elif name.endswith(".weight"):
            value = 1 + 0.2 * value
        found[name] = value.astype(np.float32)
    return found


def torch_network(folded: Mapping[str, np.ndarray]) -> Any:
    """The same network in PyTorch, with folded norms."""
    nn = torch.nn

    def conv(c: Any) -> Any:
        layer = nn.Conv2d(c.C, c.K, c.R, c.stride, c.padding)
        layer.weight.data = torch.from_numpy(folded[f"{c.name}.weight"].copy())
        layer.bias.data = torch.from_numpy(folded[f"{c.name}.bias"].copy())
        return layer

    class Block(nn.Module):
        def __init__(self, block: Any) -> None:
            super().__init__()
            self.conv1, self.conv2 = conv(block.conv1), conv(block.conv2)
            self.down = conv(block.downsample) if block.downsample else nn.Identity()

        def forward(self, x: Any) -> Any:
            return torch.relu(self.conv2(torch.relu(self.conv1(x))) + self.down(x))

    last = nn.Linear(RESNET18.widths[-1], RESNET18.classes)
    last.weight.data, last.bias.data = (
        torch.from_numpy(folded[f"fc.{n}"].copy()) for n in ("weight", "bias")
    )
    stem = [conv(RESNET18.conv1), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks = [Block(block) for block in RESNET18.all_blocks]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last).eval()


def torch_calls(arrays: Mapping[str, np.ndarray], x: np.ndarray, threads: int) -> Calls:
    """PyTorch's ways by name."""
    torch.set_num_threads(threads)
    given = torch.from_numpy(x)
    last = given.contiguous(memory_format=torch.channels_last)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, but faster than eager execution
        eager = torch_network(fold(RESNET18, arrays))
        by_pixels = torch_network(fold(RESNET18, arrays)).to(memory_format=torch.channels_last)
        script = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(eager, given)))

    def call(network: Any, images: Any) -> Callable[[], np.ndarray]:
        def run() -> np.ndarray:
            with torch.inference_mode():
                found: np.ndarray = network(images).numpy()
            return found

        return run

    return {
        "torch, eager": call(eager, given),
        "torch, channels last": call(by_pixels, last),
        "torch, TorchScript": call(script, given),
    }


def check(calls: Calls) -> None:
    """Compare all scores with ours.

    Raises
    ------
    CheckError
        Some scores differ.
    """
    ours = calls[OURS]()
    for who, call in calls.items():
        error = np.abs(call() - ours).max() / np.abs(ours).max()
        if not error <= ALLOWED:
            raise CheckError(f"{who} differs from {OURS} by {error:.1e} of the largest score")


def measure(batch: int, repeats: int, threads: int) -> dict[str, dict[str, float]]:
    """Check, then time. Return milliseconds of wall time and of all threads, medians and minima."""
    rng = np.random.default_rng(0)
    arrays = random_arrays(rng)
    x = rng.standard_normal((batch, 3, RESNET18.image, RESNET18.image), np.float32)
    fast = FoldedResNet(RESNET18, arrays, threads)
    calls: Calls = {OURS: lambda: fast.scores(x)}
    if torch is not None:
        calls |= torch_calls(arrays, x, threads)
    check(calls)
    wall: dict[str, list[float]] = {who: [] for who in calls}
    cpu: dict[str, list[float]] = {who: [] for who in calls}
    for repeat in range(repeats + 1):
        for who, call in calls.items():
            call()
            start, used = time.perf_counter(), time.process_time()
            call()
            if repeat:  # the first one is a warm-up
                wall[who].append((time.perf_counter() - start) * 1e3)
                cpu[who].append((time.process_time() - used) * 1e3)
    return {
        who: {
            "wall_ms": statistics.median(wall[who]),
            "least_wall_ms": min(wall[who]),
            "cpu_ms": statistics.median(cpu[who]),
            "least_cpu_ms": min(cpu[who]),
        }
        for who in calls
    }


def main(words: Sequence[str] | None = None) -> int:
    """Parse the flags, measure, print, and write the requested file."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--batch", type=positive, nargs="+", default=[1, 8], help="batch sizes (default: 1 8)")
    add("--repeats", type=positive, default=20, help="timed rounds after one warm-up (default: %(default)s)")
    cores = int(load()["cores"])
    add("--threads", type=positive, default=cores, help="number of threads (default: one per core)")
    add_out(parser)
    args = parser.parse_args(words)
    if torch is None:
        print("PyTorch is not installed here: ours is timed alone (pip install torch for the comparison)")
    place = Place(name=cpu_name(), cpu=cpu_name(), state=None)
    head = about(place, OPERATION, {"torch": torch.__version__} if torch else {})
    rows = {batch: measure(batch, args.repeats, args.threads) for batch in args.batch}
    facts = provenance(args.repeats, folded, folded_layers) | {"threads": args.threads}
    title = f"{facts['cpu']}, {args.threads} threads, load {facts['load']:.1f}; ms a batch, median (least)"
    table = Table("batch", "", "wall", "all threads", "GFLOP a CPU second", title=title)
    for batch, found in rows.items():
        for who, row in found.items():
            rate = RESNET18.flops * batch / row["least_cpu_ms"] / 1e6
            cells = [f"{row[f'{k}_ms']:.1f} ({row[f'least_{k}_ms']:.1f})" for k in ("wall", "cpu")]
            table.add_row(str(batch), who, *cells, f"{rate:.0f}")
    Console().print(table)
    if args.out:
        kept = {name: facts[name] for name in KEPT}
        write(args.out, head, kept, {"rows": rows_of(rows, args.threads)})
    return 0


def rows_of(found: Mapping[int, Mapping[str, Mapping[str, float]]], threads: int) -> list[dict[str, Any]]:
    """The rows of the results file. ``found`` has milliseconds by batch size and program."""
    setting = f"fp32, {threads} thread{'s' * (threads > 1)}"
    return [
        {
            "kind": "host" if who == OURS else "library",
            "program": f"{'NumPy' if who == OURS else who}, {setting}",
            "problem": sizes(OPERATION.course["batch-1"]),
            "batch": batch,
            "ms": [row["wall_ms"]],
            "agrees": True if torch else None,  # see `check`
            **{name: value for name, value in row.items() if name != "wall_ms"},
        }
        for batch, by_who in found.items()
        for who, row in by_who.items()
    ]


if __name__ == "__main__":
    sys.exit(status_of(main))
