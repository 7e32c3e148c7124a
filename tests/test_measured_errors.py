"""Errors that an H200 had with images: the emulator's, digit for digit, as it forms the same sums."""

from pathlib import Path

import pytest

from mini_dnn.cli import main
from mini_dnn.datasets import fashion_mnist
from mini_dnn.measuring.files import bench_file, read_json
from mini_dnn.paths import ROOT
from mini_dnn.report.board import is_stale

# Products of halves by wgmma and mma.sync, three of each number's parts; WMMA of TF32 numbers, and of halves.
VARIANTS = ["layers/custom", "m3/fp32_split", "m3/tensor_cores", "m3/tensor_cores_fp16"]
BATCH = 100


def errors(file: Path, fresh: bool) -> dict[tuple[str, str], float]:
    """Largest errors by variant and problem; ``fresh``: of those whose code is still the same."""
    return {
        (row.variant, row.problem): row.max_error
        for row in bench_file(read_json(file), file).rows
        if row.batch == BATCH
        and row.variant in VARIANTS
        and not (fresh and (row.code_hash is None or is_stale(row.variant, row.code_hash)))
    }


def test_errors_of_an_h200(tmp_path: Path) -> None:
    if fashion_mnist.named_folder(None) is None:
        pytest.skip(f"needs the images that were measured: {fashion_mnist.VARIABLE}")
    measured: dict[tuple[str, str], float] = {}
    for results in (ROOT / "benchmarks" / "results").glob("h200-?.json"):
        measured |= errors(results, fresh=True)
    if not measured:
        pytest.skip("the kernels have changed since they were measured")
    file = tmp_path / "bench.json"
    words = ["--batch", str(BATCH), "--device", "emulator", "--data", "fashion-mnist", "--budget", "0.01"]
    names = dict.fromkeys(name for name, _ in measured)
    assert main(["bench", *words, "--out", str(file), "--impl", *names]) == 0
    assert errors(file, fresh=False) == measured
