"""The command lines of the benchmarks: help, wrong use, and results files."""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import classify_memory
import command_line
import counters
import cpu_resnet
import gpus
import products
import products_picture
import pytest
import scale

from mini_dnn.errors import DataError, MiniDnnError, UsageError
from mini_dnn.measuring.bench import code_of
from mini_dnn.nn import folded, folded_layers
from mini_dnn.paths import ROOT
from mini_dnn.variant import find

TEXTS = {file.stem: file.read_text() for file in sorted((ROOT / "benchmarks").glob("*.py"))}
PROGRAMS = [name for name, text in TEXTS.items() if "__name__ ==" in text]


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_is_shown_and_an_unknown_flag_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else is done."""
    module = import_module(name)
    for words, status in ((["--help"], 0), (["--no-such-flag"], 2)):
        with pytest.raises(SystemExit) as ended:
            module.main(words)
        assert ended.value.code == status
    said = capsys.readouterr()
    assert said.out.startswith("usage: ")
    assert module.__doc__.splitlines()[0] in said.out
    assert f"python benchmarks/{name}.py" in said.out


@pytest.mark.parametrize("name", PROGRAMS)
def test_errors_are_messages(name: str) -> None:
    assert "status_of(" in TEXTS[name]


@pytest.mark.parametrize(
    ("kind", "right", "found", "wrong", "message"),
    [
        (command_line.positive, "7", 7, ["0", "-1", "x", ""], "expected an integer of 1 or more"),
        (command_line.whole, "0", 0, ["-1", "1.5"], "expected an integer of 0 or more"),
        (command_line.counts, "1,8", [1, 8], ["", "1,,2", "1,x"], "expected an integer of 1 or more"),
        (command_line.some_of(("burst", "rest")), "rest,burst", ["rest", "burst"], ["brust"], "did you mean"),
        (command_line.output, "x.json", Path("x.json"), ["/no/such/x.json"], "there is no folder /no/such"),
    ],
)
def test_flags(kind: Callable[[str], Any], right: str, found: Any, wrong: list[str], message: str) -> None:
    assert kind(right) == found
    for text in wrong:
        with pytest.raises(argparse.ArgumentTypeError, match=message):
            kind(text)


def test_variants_of_another_operation_are_refused() -> None:
    command_line.check_variants(["gemm/v3"], "gemm")
    for names in ([], ["gemm/v3", "m1"]):
        with pytest.raises(UsageError, match=r"'run\.py list gemm' shows"):
            command_line.check_variants(names, "gemm")
    with pytest.raises(UsageError, match="runs on a GPU"):
        command_line.check_variants(["m1/cpu"], "conv2d")


def test_without_pytorch_or_its_gpu_a_benchmark_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"cannot be imported: .*pip install torch"):
        command_line.pytorch()
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(UsageError, match="needs a GPU"):
        command_line.pytorch()


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, r"cannot be read: .*did you mean"), ("{", "not a results file"), ('{"rows": []}', "has no rows")],
)
def test_a_file_without_results(text: str | None, message: str, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(text or "")
    with pytest.raises(DataError, match=message):
        command_line.read(tmp_path / ("result.json" if text else "results.json"))


def test_a_file_says_what_was_measured() -> None:
    found = command_line.head(["gemm/v3"], device="a GPU")
    assert found["code_hashes"] == {"gemm/v3": code_of(find("gemm/v3"))}
    assert found["commit"].keys() == {"commit", "dirty"}
    assert {"device", "started", "cpu", "versions"} < found.keys()


def test_an_interrupted_run_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(problem: Any, *rest: Any) -> list[dict[str, Any]]:
        if problem.m == 16:
            raise KeyboardInterrupt
        return [{"problem": problem.text, "variant": "gemm/v3", "us": [1.0]}]

    monkeypatch.setattr(products, "measure", measure)
    monkeypatch.setattr(products, "build_ahead", lambda *_: None)
    device = SimpleNamespace(description="a GPU", close=lambda: None)
    monkeypatch.setattr(products, "open_device", lambda _: device)
    out = tmp_path / "found.json"
    words = ["--impl", "gemm/v3", "--shapes", "8,8,8", "--shapes", "16,8,8", "--out", str(out)]
    with pytest.raises(KeyboardInterrupt):
        products.main(words)
    assert [row["us"] for row in json.loads(out.read_text())["rows"]] == [[1.0]]


def test_a_picture_needs_products_of_both(tmp_path: Path) -> None:
    file = tmp_path / "random.json"
    row = {"problem": "8,8,8,fp16,fp16", "variant": "gemm/v14", "us": [1.0]}
    file.write_text(json.dumps({"rows": [row]}))
    with pytest.raises(DataError, match=r"no product with both gemm/cublas and gemm/v8, but with gemm/v14\."):
        products_picture.ratios(file, "gemm/cublas", "gemm/v8")


def test_a_file_of_the_cpu_has_the_hash_of_the_measured_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = dict.fromkeys(("wall_ms", "least_wall_ms", "cpu_ms", "least_cpu_ms"), 2.0)
    monkeypatch.setattr(cpu_resnet, "measure", lambda *_: {cpu_resnet.OURS: times})
    assert cpu_resnet.main(["--batch", "1", "--out", str(tmp_path / "cpu.json")]) == 0
    found = json.loads((tmp_path / "cpu.json").read_text())
    code = b"".join(Path(module.__file__ or "").read_bytes() for module in (folded, folded_layers))
    assert found["source_sha256"] == hashlib.sha256(code).hexdigest()


def test_a_group_that_ran_out_of_time_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file would be taken for that of the whole group."""
    lines = ("device a GPU", '"ID","Kernel Name","Grid Size","Block Size"', '"","","",""')
    text = "\n".join([*lines, '"0","move","(1,1,1)","(64,1,1)"', ""])
    for end, suffix in (("", ".json"), (counters.OUT_OF_TIME, ".txt")):
        monkeypatch.setattr(counters, "watched", lambda *_, end=end: text + end)
        counters.measure(f"probes{suffix}", [], tmp_path)
        assert (tmp_path / f"probes{suffix}{suffix}").exists()
    assert json.loads((tmp_path / "probes.json.json").read_text())["device"] == "a GPU"
    assert len(list(tmp_path.iterdir())) == 2


def test_programs_that_fail_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = SimpleNamespace(returncode=0, stdout="no such flag\n[2, 1000, 1000]\n")
    monkeypatch.setattr(classify_memory.subprocess, "run", lambda *_, **__: run)
    with pytest.raises(MiniDnnError, match=r"run\.py classify .* failed with the exit status 2"):
        classify_memory.measure(tmp_path, 1, folder=False, flags=["--none"])


def test_engines_that_are_missing_are_named_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale.scale_slurm, "why_not", lambda: "slurmd not found")
    monkeypatch.setattr(scale, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"Slurm: slurmd not found\. Dask: pip install .* MPI: apt-get"):
        scale.check_engines()


def test_pictures_have_to_be_created_first(tmp_path: Path) -> None:
    words = ["--folder", str(tmp_path), "--repeat", "2", "--jpeg", "3"]
    assert gpus.files_of(gpus.arguments().parse_args([*words, "--inputs", "pinned"]))["jpeg"] == []
    with pytest.raises(UsageError, match=r"create them first: python benchmarks/gpus\.py --make"):
        gpus.files_of(gpus.arguments().parse_args(words))
    for name in ("decoded.npy", "0.jpg", "1.jpg"):
        (tmp_path / name).touch()
    found = gpus.files_of(gpus.arguments().parse_args(words))
    assert [Path(file).name for file in found["jpeg"]] == ["0.jpg", "1.jpg", "0.jpg"]
    assert len(found["decoded"]) == 2
