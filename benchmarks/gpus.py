"""Measure several GPUs of one host: throughput on one and on all, equal results, and a killed worker.

``python benchmarks/gpus.py --gpus all --folder /dev/shm/pictures --out FILE.json``

There are three inputs, fastest first. Each runs on one GPU, and on all at the same time:

- pinned: LeNet on 28×28 bytes and ResNet-18 on 224×224 bytes, in page-locked memory;
- decoded: `run.py classify` with ResNet-18 on an array of decoded pictures in memory;
- jpeg: the same on JPEG files of 500×375 pixels, which workers decode.

ResNet-18 has random weights. For ``decoded`` and ``jpeg``, one GPU is measured with all cores, and with the
cores that it has when all GPUs work. All runs must give the same answers, bit for bit. In the last run, the
process of the last GPU is killed after a third of the pictures. The exit status is 1 if a run had other
answers, or not all.

Create the pictures first: ``python benchmarks/gpus.py --make --folder /dev/shm/pictures``
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from command_line import add_out, parser_of, positive, write
from PIL import Image
from products import build_plans

from mini_dnn.checking.launches import shared_limit
from mini_dnn.cli import status_of
from mini_dnn.cli.common import say_lost
from mini_dnn.device.gpus import Place, places
from mini_dnn.errors import UsageError
from mini_dnn.measuring.answers import Job, Kept, by_team
from mini_dnn.measuring.inference import Program
from mini_dnn.measuring.machine import commit, cpu_name, versions
from mini_dnn.measuring.pipeline import Spent
from mini_dnn.measuring.scaling import Serving, rates
from mini_dnn.measuring.served import Served
from mini_dnn.measuring.serving import Service
from mini_dnn.nn.models.resnet import RESNET18, build
from mini_dnn.nn.weights import WeightsInfo, save
from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.pictures.decode import decode
from mini_dnn.pictures.recipe import IMAGENET
from mini_dnn.pictures.sources import sources
from mini_dnn.running.team import Team
from mini_dnn.variant import find

VARIANT = "networks/resnet18/v6_graph"
DISTINCT = 512  # pictures, which the array and the list repeat
SIZE = (500, 375)  # pixels of a JPEG file
BATCH, SHARD = 128, 2048
CHECKED = 4  # images of ResNet-18 that are compared with float64 in each process
WARM_UP = 4  # shards per GPU
INPUTS = ("pinned", "decoded", "jpeg")
SEED = 0


@dataclass(frozen=True)
class Bytes:
    """ResNet-18 on random bytes, with random weights."""

    count: int

    def __call__(self) -> Service:
        """Return the network with entries and weights."""
        problem = ResNetShape.like(RESNET18, self.count, "uint8")
        return Service.at_random(find(VARIANT), "uint8", problem)


def make(folder: Path, decoded: int) -> None:
    """Create weights, JPEG files, and an array of ``decoded`` decoded pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    network = build(RESNET18, np.random.default_rng(SEED))
    save(
        folder / "weights.h5",
        network,
        WeightsInfo("unknown", {}, SEED, "benchmarks/gpus.py", description=RESNET18.to_json()),
    )
    rows, columns, channels = IMAGENET.shape
    shape = (decoded, channels, rows, columns)
    pixels = np.lib.format.open_memmap(folder / "decoded.npy", "w+", np.uint8, shape)

    def one(number: int) -> None:
        rng = np.random.default_rng(number)
        coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8))
        fine = np.asarray(coarse.resize(SIZE, Image.Resampling.BICUBIC)).astype(np.int16)
        noisy = np.clip(fine + rng.integers(-12, 13, fine.shape), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(noisy).save(file, "JPEG", quality=88)
        (folder / f"{number:05}.jpg").write_bytes(file.getvalue())
        pixels[number::DISTINCT] = decode(file.getvalue(), IMAGENET).transpose(2, 0, 1)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(one, range(min(DISTINCT, decoded))))
    pixels.flush()


def compile_all(arch: int) -> None:
    """Compile all kernels for a compute capability, one compiler per core. No GPU is needed."""
    lenet = Program.load("fashion-mnist")
    serving = [Served.of(find("networks/lenet/tensor_cores"), "uint8-28", 10_000, lenet)(), Bytes(BATCH)()]
    build_plans((service.variant.planned(service.problem, shared_limit(arch)) for service in serving), arch)


def pinned(some: Sequence[Place], counts: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield rows of networks whose inputs are in page-locked memory."""
    lenet = Program.load("fashion-mnist")
    makes: dict[str, Served | Bytes] = {
        "lenet": Served.of(find("networks/lenet/tensor_cores"), "uint8-28", 10_000, lenet),
        "resnet18": Bytes(BATCH),
    }
    for name, served in makes.items():
        with Team(some, Serving(served, CHECKED), say_lost) as team:
            one = 0.0
            for rate in rates(team, served.count, counts):
                one = one or rate.per_s
                yield {"input": "pinned", "network": name, **asdict(rate), "scaling": rate.per_s / one}


@dataclass(frozen=True)
class Run:
    """The result of one run of classify."""

    seconds: float
    pictures: int
    digest: str  # hash of all answers
    spent: Spent
    said: Sequence[str]


def classified(
    some: Sequence[Place], folder: Path, named: Sequence[str], workers: int, kill: bool = False
) -> Run:
    """Classify pictures after a warm-up. With ``kill``, the last GPU's process is killed on the way."""
    job = Job("resnet18", folder / "weights.h5", IMAGENET, VARIANT, BATCH, 5, workers, many=True)
    found = sources(named, None, IMAGENET)
    said: list[str] = []
    digest, spent, done = hashlib.sha256(), Spent(), 0
    with Team(some, job, said.append) as team:
        warm = iter(found.shards(SHARD))
        for _ in team.map(next(warm) for _ in range(WARM_UP * len(some))):
            pass
        start = time.perf_counter()
        for answers in by_team(team, found.shards(SHARD), Kept(None, None), spent):
            digest.update(json.dumps(list(answers.errors)).encode())
            digest.update(np.ascontiguousarray(answers.classes).tobytes())
            digest.update(np.ascontiguousarray(answers.probabilities).tobytes())
            done += len(answers.names)
            if kill and done > found.count // 3:
                os.kill(list(team.pids)[-1], signal.SIGKILL)
                kill = False
        seconds = time.perf_counter() - start
    return Run(seconds, done, digest.hexdigest(), spent, said)


def rows_of(
    name: str, some: Sequence[Place], folder: Path, named: Sequence[str], alone: Place
) -> Iterator[dict[str, Any]]:
    """Yield rows for one input: one GPU with its share of cores, one with all cores, all GPUs, one killed."""
    share = max(1, len(some[0].cores))
    settings = [
        ("one GPU, its share of the cores", some[:1], False),
        ("all GPUs", some, False),
        ("one GPU, all cores", [alone], False),
        ("all GPUs, one killed", some, True),
    ]
    first, count = None, sources(named, None, IMAGENET).count
    for title, used, kill in settings:
        if kill and len(some) < 2:
            continue
        run = classified(used, folder, named, len(used[0].cores), kill)
        first = first or run
        yield {
            "input": name,
            "network": "resnet18",
            "setting": title,
            "gpus": len(used),
            "cores_each": len(used[0].cores) if used[0] is alone else share,
            "pictures": run.pictures,
            "complete": run.pictures == count,
            "seconds": run.seconds,
            "per_s": run.pictures / run.seconds,
            "scaling": run.pictures / run.seconds * first.seconds / first.pictures,
            "same_bits": run.digest == first.digest,
            "spent": asdict(run.spent),
            "said": list(run.said),
        }


def arguments() -> argparse.ArgumentParser:
    """The flags."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--gpus", default="all", help="the GPUs, as for run.py classify (default: %(default)s)")
    add("--device", default="cuda", help="cuda or emulator (default: %(default)s)")
    add("--folder", type=Path, required=True, help="the folder for pictures and weights")
    add("--decoded", type=positive, default=4096, help="number of decoded pictures (default: %(default)s)")
    add("--repeat", type=positive, default=16, help="how often they are classified (default: %(default)s)")
    add("--jpeg", type=positive, default=24576, help="number of JPEG pictures (default: %(default)s)")
    add("--inputs", nargs="+", choices=INPUTS, default=INPUTS, help="default: all")
    add("--make", action="store_true", help="only create the pictures")
    add("--arch", type=int, help="with --make: compile for this compute capability, such as 90")
    add_out(parser)
    return parser


def files_of(args: argparse.Namespace) -> dict[str, list[str]]:
    """The files of each input that is read from files.

    Raises
    ------
    UsageError
        They have not been created.
    """
    jpeg, decoded = sorted(str(path) for path in args.folder.glob("*.jpg")), args.folder / "decoded.npy"
    if set(args.inputs) - {"pinned"} and not (jpeg and decoded.exists()):
        raise UsageError(
            f"--folder {args.folder} has no pictures; create them first: python benchmarks/gpus.py --make "
            f"--folder {args.folder}"
        )
    return {
        "decoded": [str(decoded)] * args.repeat,
        "jpeg": (jpeg * -(-args.jpeg // max(1, len(jpeg))))[: args.jpeg],
    }


def measured(args: argparse.Namespace, some: Sequence[Place]) -> Iterator[dict[str, Any]]:
    """Yield the rows of all inputs."""
    files = files_of(args)
    alone = replace(some[0], cores=tuple(sorted({core for place in some for core in place.cores})))
    for name in args.inputs:
        if name == "pinned":
            yield from pinned(some, sorted({1, len(some)}))
        else:
            yield from rows_of(name, some, args.folder, files[name], alone)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and write the results as they arrive. Return 1 if answers differ or are missing."""
    args = arguments().parse_args(words)
    if args.make:
        make(args.folder, args.decoded)
        if args.arch:
            compile_all(args.arch)
        return 0
    some = places(args.gpus, args.device)
    found: dict[str, Any] = {
        **commit(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": versions(),
        "places": [asdict(place) for place in some],
        "rows": [],
    }
    for row in measured(args, some):
        found["rows"].append(row)
        brief = {k: v for k, v in row.items() if not isinstance(v, dict)}
        print(json.dumps(brief), flush=True)
        write(args.out, found)
    wrong = [row for row in found["rows"] if not row.get("same_bits", True) or not row.get("complete", True)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(status_of(main))
