"""Measure the peak memory of `run.py classify` for growing numbers of pictures: it should stay constant.

``python benchmarks/classify_memory.py --counts 1000 10000 100000 --out FILE.json``

The pictures are PNG files of 28×28 pixels in one ``.tar`` archive, or in one folder. The network is a small
residual network with few channels, in NumPy, which takes little time. Results are written as CSV and as
Parquet, and finished shards are stored during the run, as in any long run. All files are removed afterwards.
"""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from command_line import add_out, parser_of, positive, write
from PIL import Image

from mini_dnn.cli import status_of
from mini_dnn.errors import MiniDnnError
from mini_dnn.measuring.machine import commit, cpu_name, versions
from mini_dnn.nn.models.resnet import ResNetSizes, build
from mini_dnn.nn.weights import WeightsInfo, save
from mini_dnn.paths import ROOT

SIZES = ResNetSizes(12, 1, "small", (4, 4, 4, 4), (1, 1, 1, 1), 10)  # the small network
RECIPE = {"resize": 12, "crop": 12, "mean": [0], "deviation": [1]}
DISTINCT = 64
PEAK = (  # starts `classify` and reports its peak memory, and that of its children, in KB
    "import json, resource, sys; from mini_dnn.cli import main; status = main(sys.argv[1:]); "
    "whose = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN; "
    "print(json.dumps([status, *(resource.getrusage(who).ru_maxrss for who in whose)]))"
)


def pictures() -> list[bytes]:
    """Create some PNG files."""
    found = []
    for seed in range(DISTINCT):
        file = io.BytesIO()
        noise = np.random.default_rng(seed).integers(0, 256, (7, 7), np.uint8)
        Image.fromarray(noise).resize((28, 28)).save(file, "PNG")
        found.append(file.getvalue())
    return found


def make(where: Path, count: int, folder: bool) -> Path:
    """Create this many pictures in an archive, or in a folder."""
    some = pictures()
    if folder:
        (path := where / f"{count}").mkdir()
        for number in range(count):
            (path / f"{number:07}.png").write_bytes(some[number % DISTINCT])
        return path
    path = where / f"{count}.tar"
    with tarfile.open(path, "w") as archive:
        for number in range(count):
            member = tarfile.TarInfo(f"{number:07}.png")
            member.size = len(some[number % DISTINCT])
            archive.addfile(member, io.BytesIO(some[number % DISTINCT]))
            archive.members.clear()  # it would keep all of them
    return path


def measure(where: Path, count: int, folder: bool, flags: list[str]) -> dict[str, Any]:
    """Measure the peak of one run.

    Raises
    ------
    MiniDnnError
        The run failed, and has printed why.
    """
    given = make(where, count, folder)
    words = ["classify", str(given), "--network", "resnet18", "--weights", str(where / "weights.h5")]
    words += ["--recipe", str(where / "recipe.json"), "--csv", str(where / f"{count}.csv")]
    words += ["--parquet", str(where / f"{count}.parquet"), "--batch", "250", *flags]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    seconds = time.perf_counter() - start
    lines = done.stdout.splitlines()
    status, own, children = json.loads(lines[-1]) if done.returncode == 0 else (done.returncode, 0, 0)
    if status:
        raise MiniDnnError(f"run.py {shlex.join(words)} failed with the exit status {status}; see above")
    with (where / f"{count}.csv").open() as table:
        rows = sum(1 for _ in table) - 1
    return {
        "pictures": count,
        "in": "a folder" if folder else "an archive",
        "flags": flags,
        "rows": rows,
        "seconds": seconds,
        "peak_mb": own / 1e3,
        "peak_mb_of_the_largest_child": children / 1e3,
        "said": [line for line in lines if line.startswith("limit") or "a second" in line],
    }


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--counts",
        type=positive,
        nargs="+",
        default=[1_000, 10_000, 100_000],
        help="numbers of pictures (default: %(default)s)",
    )
    parser.add_argument(
        "--folder", action="store_true", help="use a folder of pictures instead of an archive"
    )
    parser.add_argument(
        "--flags", default="--impl cpu --top 1", help="flags of classify (default: %(default)s)"
    )
    add_out(parser)
    args = parser.parse_args(words)
    found: dict[str, Any] = {**commit(), "cpu": cpu_name(), "versions": versions(), "rows": []}
    for count in args.counts:
        with tempfile.TemporaryDirectory() as name:
            where = Path(name)
            (where / "recipe.json").write_text(json.dumps(RECIPE))
            network = build(SIZES, np.random.default_rng(0))
            about = WeightsInfo(
                "unknown", {}, 0, "benchmarks/classify_memory.py", description=SIZES.to_json()
            )
            save(where / "weights.h5", network, about)
            row = measure(where, count, args.folder, args.flags.split())
        found["rows"].append(row)
        print(json.dumps(row), flush=True)
        write(args.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
