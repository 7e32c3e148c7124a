"""Errors measured on an H100 or H200 equal the emulator's in every digit, because it forms the same sums."""

from pathlib import Path

import pytest

from mini_dnn.cli import main
from mini_dnn.datasets import fashion_mnist
from mini_dnn.measuring.files import bench_file, read_json
from mini_dnn.paths import ROOT
from mini_dnn.report.stale import why_stale

Errors = dict[tuple[str, str], float]  # the largest error of a variant at a problem

# Products of halves by wgmma and mma.sync, three of each number's parts; WMMA of TF32 numbers, and of halves.
ON_IMAGES = ["layers/custom", "m3/fp32_split", "m3/tensor_cores_fp16"]


def errors(file: Path, names: list[str], batch: int, at: str = "") -> Errors:
    """The errors of variants in a results file."""
    return {
        (row.variant, row.problem): row.max_error
        for row in bench_file(read_json(file), file).rows
        if row.variant in names and row.batch == batch and at in ("", row.problem)
    }


def measured(names: list[str], batch: int, at: str = "") -> Errors:
    """Errors on such a GPU for variants whose code has not changed."""
    found: Errors = {}
    for file in (ROOT / "benchmarks" / "results").glob("h[12]00-*.json"):
        content = read_json(file)
        if not isinstance(content["schema"], int):  # files of other programs than `bench`
            continue
        code = {row.variant: row.code_hash for row in bench_file(content, file).rows}
        fresh = [name for name in names if (known := code.get(name)) and not why_stale(name, known)]
        found |= errors(file, fresh, batch, at)
    if not found:
        pytest.skip("the kernels have changed since they were measured")
    return found


@pytest.mark.exhaustive
def test_errors_on_images_are_the_measured_ones(tmp_path: Path) -> None:
    if fashion_mnist.named_folder(None) is None:
        pytest.skip(f"needs the images that were measured: {fashion_mnist.VARIABLE}")
    wanted, file = measured(ON_IMAGES, 100), tmp_path / "bench.json"
    names = list(dict.fromkeys(name for name, _ in wanted))
    words = ["--batch", "100", "--device", "emulator", "--data", "fashion-mnist", "--budget", "0.01"]
    assert main(["bench", "--impl", *names, *words, "--out", str(file)]) == 0
    assert errors(file, names, 100) == wanted


@pytest.mark.exhaustive
def test_errors_of_fp32_from_halves_are_the_measured_ones(tmp_path: Path) -> None:
    names, problem, file = ["gemm/v9_fp32"], "fp32-1024", tmp_path / "bench.json"
    wanted = measured(names, 1, problem)
    words = ["--at", problem, "--device", "emulator", "--budget", "0.01"]
    assert main(["bench", "gemm", "--impl", *names, *words, "--out", str(file)]) == 0
    assert errors(file, names, 1) == wanted
