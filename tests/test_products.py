"""The picture of products of random sizes, and the plans of chains of products."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import chains
import numpy as np
import products
import products_checks
import products_picture
import products_table
import pytest

from mini_dnn.cli.common import DIFFERS
from mini_dnn.device import Device, open_device
from mini_dnn.device.base import Graph
from mini_dnn.device.emulator.emulator import EmulatorDevice
from mini_dnn.errors import DataError
from mini_dnn.ops import Arrays
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.paths import ROOT
from mini_dnn.report.readmes import replaced
from mini_dnn.running.execute import Execution
from mini_dnn.variant import find


def test_ratios_are_of_medians(tmp_path: Path) -> None:
    text = "8,16,32,fp16,fp16"
    rows = [
        {"problem": text, "variant": "a", "mode": "random", "us": [4.0, 5.0, 60.0]},
        {"problem": text, "variant": "b", "mode": "random", "us": [2.0, 2.5, 1.0]},
        {"problem": "1,1,1,fp16,fp16", "variant": "a", "mode": "random", "us": [1.0]},
    ]
    file = tmp_path / "random.json"
    file.write_text(json.dumps({"rows": rows}))
    assert products_picture.ratios(file, "a", "b") == [(2 * 8 * 16 * 32, 2.5)]
    assert (
        products_picture.main(
            [
                str(file),
                f"again={file}",
                "--picture",
                str(tmp_path / "p.svg"),
                "--base",
                "a",
                "--variant",
                "b",
            ]
        )
        == 0
    )
    assert (tmp_path / "p.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize("name", ["products", "chains"])
def test_without_a_gpu_a_benchmark_says_so(name: str) -> None:
    sizes = {"products": ["--shapes", "8,8,8,fp16,fp16"], "chains": ["--chains", "8x8"]}
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / f"{name}.py", "--impl", "gemm/v8", *sizes[name]],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: .+\n", done.stderr)


def test_the_table_of_the_readme_is_that_of_the_results() -> None:
    text = products_table.README.read_text(encoding="utf-8")
    assert replaced(text, products_table.MARKER, products_table.table(), products_table.README) == text


def test_late_plans_wait_for_what_is_ahead() -> None:
    planned = find("gemm/v8").planned(products.OPERATION.parse("100,100,100,fp16,fp16"), 232448)
    assert any(launch.early for launch in planned.launches)
    assert not any(launch.early for launch in products.late(planned).launches)


def test_sets_are_more_than_the_cache() -> None:
    for text in ("4096,4096,4096,fp16,fp16", "512,512,512,fp16,fp16"):
        problem = products.OPERATION.parse(text)
        count = products.sets_of(problem)
        assert count == products.MOST_SETS or count * problem.min_bytes > products.MOVED


def test_products_of_a_chain_share_scratch_and_nothing_else() -> None:
    device = open_device("emulator")
    planned = find("gemm/v10").planned(products.OPERATION.parse("512,512,8192,fp16,fp16"), 232448)
    module = device.compile(planned.source, planned.defines)
    first, second = (Execution(planned, module, device) for _ in range(2))
    products.share(second, first, planned.scratch)
    same = {name for name, buffer in second.buffers.items() if buffer is first.buffers[name]}
    assert same == set(planned.scratch) == {"partial"}
    second.free()
    first.free()


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the benchmark use the emulator, which has no clock. Work runs once when it is captured."""

    def capture(device: EmulatorDevice, work: Callable[[], None], stream: int = 0) -> Graph:
        work()
        return captured(device, work, stream)

    captured = EmulatorDevice.capture
    monkeypatch.setattr(EmulatorDevice, "capture", capture)
    monkeypatch.setattr(products, "open_device", lambda _: open_device("emulator"))
    monkeypatch.setattr(products, "build_ahead", lambda *_: None)
    monkeypatch.setattr(products, "take_turns", lambda candidates, *_: {c.name: [2.0] for c in candidates})


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("problems", [["--shapes", "33,17,20,fp16,fp16"], ["--random", "1"]])
@pytest.mark.usefixtures("emulated")
def test_a_wrong_product_is_marked_and_the_run_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    problems: list[str],
    wrong: bool,
) -> None:
    right, calls = products.outputs_of, count()

    def spoiled(execution: Execution, problem: GemmShape, device: Device) -> Arrays:
        found = right(execution, problem, device)
        if next(calls) == 1 and wrong:  # of the second variant
            found["c"][..., -1, :] += 1
        return found

    monkeypatch.setattr(products, "outputs_of", spoiled)
    monkeypatch.setattr(products_checks, "LARGEST", 64)
    out = tmp_path / "found.json"
    words = ["--impl", "gemm/v2,gemm/v3", *problems, "--modes", "burst", "--out", str(out)]
    assert products.main(words) == (DIFFERS if wrong else 0)
    rows = json.loads(out.read_text())["rows"]
    assert [(row["variant"], "wrong" in row, row["us"]) for row in rows] == [
        ("gemm/v2", False, [2.0]),
        ("gemm/v3", wrong, [2.0]),
    ]
    said = capsys.readouterr()
    assert ("WRONG" in said.out) == wrong
    assert (f"WRONG: gemm/v3 at {rows[0]['problem']}: " in said.err) == wrong


@pytest.mark.usefixtures("emulated")
def test_the_audit_repeats_with_the_same_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products_checks, "LARGEST", 16)
    drawn: list[float] = []

    def audit(rng: np.random.Generator, *_: object) -> products_checks.Verdict:
        drawn.append(rng.random())
        return products_checks.Verdict(True, "")

    monkeypatch.setattr(products, "audit", audit)
    for seed in "776":
        assert products.main(["--impl", "gemm/v2", "--random", "1", "--seed", seed]) == 0
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_file_with_wrong_products_is_not_drawn(tmp_path: Path) -> None:
    row = {"problem": "8,8,8,fp16,fp16", "variant": "a", "mode": "random", "us": [1.0]}
    file = tmp_path / "random.json"
    file.write_text(json.dumps({"rows": [row, {**row, "variant": "b", "wrong": "2 of 64"}]}))
    with pytest.raises(DataError, match=r"b at 8,8,8,fp16,fp16 is wrong: 2 of 64\. Correct the variant"):
        products_picture.ratios(file, "a", "b")


@pytest.mark.parametrize(
    ("end", "in_order", "words"),
    [
        ([1.0, 2.0], [1.0, 2.0], []),
        ([1.0, 2.5], [1.0, 2.0], ["the chain ends with other bits than in order"]),
        ([np.inf, 2.0], [np.inf, 2.0], ["the chain does not end with numbers"]),
    ],
)
def test_the_end_of_a_chain(end: list[float], in_order: list[float], words: list[str]) -> None:
    assert chains.wrong_end(np.array(end), np.array(in_order)) == words


def test_the_table_needs_every_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products_table, "medians", lambda *_: {})
    with pytest.raises(DataError, match="has no time of early, gemm in order, gemm/cublas at 128,128,128"):
        products_table.table()
