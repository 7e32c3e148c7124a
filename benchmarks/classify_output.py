"""Measure the CPU time of ``run.py classify`` after the network: the likeliest classes, and each format.

``python benchmarks/classify_output.py``

Scores are random. The lines for people are written to a file, as if standard output were redirected.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import numpy as np
from command_line import parser_of

from mini_dnn.cli import status_of
from mini_dnn.cli.classified import FORMATS, Writer
from mini_dnn.cli.formats import COLUMNS, Rows
from mini_dnn.datasets.names import class_names
from mini_dnn.measuring.answers import GPU_BATCH, Answers
from mini_dnn.measuring.likeliest import softmax, top

BATCHES, TOP, CLASSES = 200, 5, 1000


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print the time per picture."""
    start = time.process_time()
    yield
    us = (time.process_time() - start) / (BATCHES * GPU_BATCH) * 1e6
    print(f"{what:8} {us:.2f} us of CPU time per picture", file=sys.stderr)


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser_of(__doc__).parse_args(words)
    rng, classes = np.random.default_rng(0), class_names("imagenet", CLASSES)
    scores = [2.5 * rng.standard_normal((GPU_BATCH, CLASSES), np.float32) for _ in range(BATCHES)]
    with timed("softmax"):
        probabilities = [softmax(some) for some in scores]
    with timed("classes"):
        found = [top(some, TOP) for some in probabilities]
    names = [f"/data/planes.npy[{i}]" for i in range(GPU_BATCH)]
    with tempfile.TemporaryDirectory() as name:
        for kind in ("lines", *FORMATS):
            rows = Rows(Path(name) / kind, COLUMNS, classes) if kind == "parquet" else None
            with (Path(name) / f"{kind}.txt").open("w") as stream, timed(kind), redirect_stdout(stream):
                writer = Writer({f"--{kind}": stream}, rows, kind == "lines", {}, classes, labelled=False)
                for best, likeliest in found:
                    writer.add(Answers(names, [""] * len(names), best, likeliest))
                if rows:
                    rows.close()
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
