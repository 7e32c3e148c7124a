"""Measure ResNet-18 from picture files to classes on a GPU: latency, throughput, and page-locked inputs.

``python benchmarks/pictures.py --out FILE.json``

The pictures are JPEG and PNG files with random smooth content, similar to photographs. The weights are
random, because neither decoding nor kernels depend on them. The measurements are:

- one file at a time, from its name to the probabilities: the whole time, and the time without decoding and
  resizing, at the median and at the 99th percentile;
- a folder as processed by ``run.py classify``: decoded on all cores, concurrently with copies and kernels;
- the same pictures already decoded, in files of bytes that are mapped to memory, as rows and as planes;
- these files with ``run.py classify`` itself, with the limit that it reports, also with ``--gpus 1``;
- batches of bytes in page-locked memory, compared with their copies alone and the kernels alone.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
from command_line import add_out, check_variants, head, parser_of, positive, write
from PIL import Image
from whole_networks import Row, opened, replayed, turns

from mini_dnn import ops
from mini_dnn.cli import status_of
from mini_dnn.device import Device, open_device
from mini_dnn.errors import MiniDnnError
from mini_dnn.measuring.answers import GPU_BATCH
from mini_dnn.measuring.pictures import Classifier
from mini_dnn.measuring.pipeline import Spent
from mini_dnn.nn.models.resnet import RESNET18, build
from mini_dnn.nn.weights import WeightsInfo, save
from mini_dnn.ops import Arrays
from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.paths import ROOT
from mini_dnn.pictures.decode import decode
from mini_dnn.pictures.feed import Feed
from mini_dnn.pictures.recipe import Recipe
from mini_dnn.pictures.sources import sources
from mini_dnn.running.resident import Resident
from mini_dnn.variant import Variant, find

WIDE, HIGH = 500, 375  # pixels of a picture, as for most pictures of ImageNet
COARSE = 16  # the content is smoothed noise of this many pixels
BATCHES = 200  # timed batches from page-locked memory
ONE_BY_ONE = 300  # files, at most, that are read one at a time
WARM = 10  # of them that are read before, and not counted
SEED = 0
TIMES, REPEATS = 64, 32  # how often pictures are in a file, and how often a file is named
END_BYTES = 2000  # of the program's output, which contain its last lines
NOTE = "milliseconds; pictures drawn at random"


def draw_pictures(folder: Path, count: int) -> list[Path]:
    """Create files of pictures: every fourth one is PNG, the others are JPEG."""
    rng, found = np.random.default_rng(SEED), []
    for i in range(count):
        noise = rng.integers(0, 256, (HIGH // COARSE, WIDE // COARSE, 3), np.uint8)
        picture = Image.fromarray(noise).resize((WIDE, HIGH), Image.Resampling.BICUBIC)
        found.append(folder / f"{i:05}.{'png' if i % 4 == 3 else 'jpg'}")
        picture.save(found[-1], **({} if i % 4 == 3 else {"quality": 90}))
    return found


def classifier_at_random(folder: Path) -> Classifier:
    """ResNet-18 for ImageNet, with random weights as at the start of training."""
    file = folder / "weights.h5"
    info = WeightsInfo("synthetic", {}, SEED, "", description=RESNET18.to_json())
    save(file, build(RESNET18, np.random.default_rng(SEED)), info)
    return Classifier.load("resnet18", file)


def latency(classifier: Classifier, variant: Variant, files: Sequence[Path], device: Device) -> Row:
    """Measure one file at a time."""
    whole, decoding, first = [], [], files[:WARM]
    with classifier.on_device(variant, 1, device) as (serve, _):
        for file in [*first, *files]:
            start = time.perf_counter()
            pixels = decode(file, classifier.recipe)
            decoded = time.perf_counter()
            next(serve([pixels[np.newaxis]], Spent()))
            whole.append((time.perf_counter() - start) * 1e3)
            decoding.append((decoded - start) * 1e3)
    whole, decoding = whole[len(first) :], decoding[len(first) :]
    row: Row = {"kind": "latency", "variant": variant.name, "pictures": len(files)}
    for name, values in (("whole", whole), ("decoding", decoding), ("rest", np.subtract(whole, decoding))):
        row |= {f"{name}_p50_ms": np.percentile(values, 50), f"{name}_p99_ms": np.percentile(values, 99)}
    return row


def throughput(
    classifier: Classifier, variant: Variant, names: Sequence[Path], batch: int, device: Device, kind: str
) -> Row:
    """Measure a folder, or a file of pixels, with concurrent decoding, copies and kernels."""
    found, spent = sources([str(name) for name in names], None, classifier.recipe), Spent()
    with classifier.on_device(variant, batch, device) as (serve, size):
        feed = Feed(found, classifier.recipe, size, os.cpu_count() or 1)
        start = time.perf_counter()
        count = sum(len(part) for part in serve((part.pixels for part in feed), spent))
        seconds = time.perf_counter() - start
    return {
        **{"kind": kind, "variant": variant.name, "batch": size, "pictures": count, "seconds": seconds},
        **{"images_per_s": count / seconds, "waited_share": feed.waited_s / seconds},
        **{"copying_share": spent.copying / seconds, "network_share": spent.network / seconds},
        **{"decoding_s": feed.decoding_s, "workers": feed.workers},
    }


def program(weights: Path, variant: Variant, names: Sequence[Path], kind: str, flags: Sequence[str]) -> Row:
    """Run ``run.py classify`` and parse its output.

    Raises
    ------
    MiniDnnError
        It failed, and has printed why.
    """
    words = [sys.executable, str(ROOT / "run.py"), "classify", *map(str, names), "--network", "resnet18"]
    words += ["--weights", str(weights), "--impl", variant.name, *flags]
    with tempfile.TemporaryFile("w+") as out:
        done = subprocess.run(words, stdout=out, check=False)
        if done.returncode:
            raise MiniDnnError(f"run.py classify failed with the exit status {done.returncode}; see above")
        out.seek(max(0, out.tell() - END_BYTES))
        said = out.read().splitlines()[-2:]
    rate = re.search(r"^([\d,]+) of .* in ([\d.]+) s: ([\d,.]+) per second$", said[0])
    assert rate, said
    count, seconds, per_s = (float(text.replace(",", "")) for text in rate.groups())
    row: Row = {"kind": kind, "variant": variant.name, "flags": list(flags), "pictures": count}
    return {**row, "seconds": seconds, "images_per_s": per_s, "limit": said[1].partition(" ")[2].strip()}


def decoded_files(folder: Path, files: Iterable[Path], recipe: Recipe, times: int) -> dict[str, Path]:
    """Write all pictures ``times`` times, as a file of rows of pixels and as one of planes."""
    pixels = np.array([decode(file, recipe) for file in files])
    forms = {"rows": pixels, "planes": np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))}
    for name, form in forms.items():
        np.save(folder / f"{name}.npy", np.concatenate([form] * times))
    return {name: folder / f"{name}.npy" for name in forms}


def served_ms(
    variant: Variant, problem: ResNetShape, arrays: Arrays, device: Device, count: int
) -> list[float]:
    """Measure consecutive batches in page-locked memory: milliseconds a batch, in some runs of ``count``."""
    weights = {name: arrays[name] for name in problem.named("weight")}
    resident = Resident(variant, problem, weights, device)
    left = 0

    def fill(inputs: np.ndarray) -> int:
        """Write nothing: the present content is sent again."""
        nonlocal left
        left -= 1
        return len(inputs) if left >= 0 else 0

    def served() -> Iterator[float]:
        nonlocal left
        for _ in range(4):
            left = count
            start = time.perf_counter()
            for _ in resident.serve_in_place(fill):
                pass
            yield (time.perf_counter() - start) * 1e3 / count

    with closing(resident):
        return list(served())[1:]


def pinned(variant: Variant, problem: ResNetShape, device: Device, count: int = BATCHES) -> Row:
    """Measure consecutive batches in page-locked memory, and copies and kernels alone."""
    arrays = dict(ops.find("resnet").inputs(problem, SEED))
    ms = served_ms(variant, problem, arrays, device, count)
    images = device.pinned(arrays["images"].shape, arrays["images"].dtype)
    images[:] = arrays["images"]
    planned = variant.planned(problem, device.max_shared_bytes)
    row: Row = {"kind": "pinned", "variant": variant.name, "batch": problem.N, "ms": ms}
    with opened(planned, arrays, device) as execution:
        execution.kernels()

        def copy() -> None:
            device.copy_in(execution.buffers["images"], images)

        for name, work in (("kernels_ms", execution.kernels), ("copy_ms", copy)):
            graph = device.capture(work)
            row[name] = turns(lambda many, graph=graph: replayed(graph, device, many))  # type: ignore[misc]
            graph.free()
    row["over_longer"] = statistics.median(ms) / max(
        statistics.median(row["kernels_ms"]), statistics.median(row["copy_ms"])
    )
    return row


def said(row: Row) -> str:
    """Format a row as text."""
    if row["kind"] == "latency":
        parts = [
            f"{name} {row[f'{name}_p50_ms']:.3f}, p99 {row[f'{name}_p99_ms']:.3f}"
            for name in ("whole", "decoding", "rest")
        ]
        return f"{row['variant']}, a file at a time, ms: {'; '.join(parts)}"
    if row["kind"] == "pinned":
        parts = [
            f"{name} {statistics.median(row[key]):.4f}"
            for name, key in (("served", "ms"), ("kernels alone", "kernels_ms"), ("copies alone", "copy_ms"))
        ]
        words = f"{', '.join(parts)} ms; {row['over_longer']:.3f} of the longer"
        return f"{row['variant']}, {row['batch']} images of bytes in pinned memory: {words}"
    words = f"{row['variant']}, {row['kind']}: {row['images_per_s']:,.0f} images/s"
    if "limit" in row:
        return " ".join([words, *row["flags"], f"\n  limit: {row['limit']}"])
    shares = [f"{name} {row[f'{name}_share']:.0%}" for name in ("waited", "copying", "network")]
    return f"{words} in batches of {row['batch']}, {row['workers']} workers; of the time: {', '.join(shares)}"


def measured(variant: Variant, pictures: int, batch: int, device: Device) -> Iterator[Row]:
    """Yield a row for each measurement."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        classifier = classifier_at_random(folder)
        (folder / "pictures").mkdir()
        files = draw_pictures(folder / "pictures", pictures)
        decoded = decoded_files(folder, files[:batch], classifier.recipe, TIMES)
        yield pinned(variant, replace(ResNetShape.like(RESNET18, batch), dtype="uint8"), device)
        yield latency(classifier, variant, files[:ONE_BY_ONE], device)
        for form, file in decoded.items():
            kind, named = f"decoded, {form}", [file] * REPEATS
            yield throughput(classifier, variant, named, GPU_BATCH, device, kind)
            for flags in ([], ["--gpus", "1"]):
                yield program(folder / "weights.h5", variant, named, f"classify, {form}", flags)
        yield throughput(classifier, variant, [folder / "pictures"], batch, device, "files")


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--impl", default="networks/resnet18/v6_graph", help="a variant of the network (default: %(default)s)"
    )
    parser.add_argument(
        "--pictures", type=positive, default=1024, help="number of files (default: %(default)s)"
    )
    parser.add_argument(
        "--batch",
        type=positive,
        default=64,
        help="batch size of all parts except the first (default: %(default)s)",
    )
    add_out(parser)
    given = parser.parse_args(words)
    check_variants([given.impl], "resnet")
    rows: list[Row] = []
    with closing(open_device("cuda")) as device:
        about = head([given.impl], note=NOTE, device=device.description)
        for row in measured(find(given.impl), given.pictures, given.batch, device):
            rows.append(row)
            print(said(row), flush=True)
            write(given.out, {**about, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
