"""``bench --executor`` writes the same file as a single process, except for times."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from clocked import Clocked

from mini_dnn.cli import bench as verb
from mini_dnn.cli import main
from mini_dnn.errors import MiniDnnError
from mini_dnn.measuring import bench, bench_elsewhere
from mini_dnn.measuring.bench_elsewhere import Measurements
from mini_dnn.paths import ROOT
from mini_dnn.variant import exercise, find
from mini_dnn.variant.scaffold import create
from mini_dnn.work import Local

TIMES = ("started", "sha256", "layer_ms", "compile_ms", "host")
SEARCHED = """
from dataclasses import replace
from mini_dnn.variant import Sweep
FOUND = replace(VARIANT, defines={"ONE": 1, "TWO": 2})
def make(x, y):
    return replace(FOUND, defines={"ONE": x, "TWO": y})
SWEEP = Sweep("ONE", (1, 2), "TWO", (3,), make, best=(1, 3))
VARIANT = replace(FOUND, sweep=SWEEP)
"""


def untimed(file: Path) -> Any:
    """The content of a results file without times."""

    def without(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: without(inner) for name, inner in value.items() if name not in TIMES}
        return [without(inner) for inner in value] if isinstance(value, list) else value

    return without(json.loads(file.read_text()))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator with a clock on which each launch takes a millisecond."""
    monkeypatch.setattr(bench, "ceilings", lambda device: {"copy_gbps": 4000.0})
    for module in (verb, bench_elsewhere):
        monkeypatch.setattr(module, "open_device", lambda name: Clocked())


@pytest.fixture
def searched(tmp_path: Path) -> str:
    """A variant of the softmax with two candidates."""
    source, folder = ROOT / "ladders/softmax/v0_naive", tmp_path / "searched"
    folder.mkdir()
    (folder / "kernel.cu").write_text((source / "kernel.cu").read_text())
    (folder / "variant.py").write_text((source / "variant.py").read_text() + SEARCHED)
    return str(folder)


@pytest.mark.usefixtures("clock")
def test_an_interrupted_run_goes_on_and_writes_what_one_process_writes(
    searched: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, unsupported problems, and the candidates of a sweep keep their order."""
    words = ["bench", "--impl", searched, "softmax/v1", "--shapes", "3,5", "2,40", "--sweep"]
    assert main([*words, "--out", str(tmp_path / "one.json")]) == 0
    whole, parts = bench_elsewhere.op_ms_of, [*words, "--executor", "local", "--out", f"{tmp_path}/many.json"]
    done: list[int] = []

    def once(*given: Any) -> float | None:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(given[3])
        return whole(*given)

    monkeypatch.setattr(bench_elsewhere, "op_ms_of", once)
    assert main(parts) == 130
    assert not (tmp_path / "many.json").exists()
    monkeypatch.setattr(bench_elsewhere, "op_ms_of", lambda *given: (done.append(given[3]), whole(*given))[1])
    assert main(parts) == 0
    assert done == [1, 2, 1, 2], "each candidate once"
    assert untimed(tmp_path / "many.json") == untimed(tmp_path / "one.json")
    assert not (tmp_path / "many.json.parts").exists()
    found = json.loads((tmp_path / "many.json").read_text())
    assert (len(found["rows"]), [sweep["op_ms"] for sweep in found["sweeps"]]) == (4, [[[1.0, 1.0]]] * 2)


@pytest.mark.exhaustive
def test_processes_measure_layers_in_the_network(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text("workers = 2\n")
    words = ["bench", "--impl", "m1", "layers/fused", "--batch", "1", "--device", "emulator"]
    words += ["--data", "synthetic"]
    assert main([*words, "--out", str(tmp_path / "one.json")]) == 0
    more = ["--executor", "local", "--profile", str(tmp_path / "two.toml")]
    assert main([*words, *more, "--out", str(tmp_path / "many.json")]) == 0
    assert untimed(tmp_path / "many.json") == untimed(tmp_path / "one.json")


def test_what_the_device_cannot_run_is_left_out_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = str(create(str(tmp_path / "started"), find("gemm/v2_tiled"), exercise.make))
    monkeypatch.setattr(verb, "names", lambda op: ["gemm/v0_naive", "gemm/cublas", started])
    words = [
        "bench",
        "gemm",
        "--shapes",
        "3,4,5",
        "--device",
        "emulator",
        "--log",
        str(tmp_path / "log.jsonl"),
    ]
    assert main([*words, "--out", str(tmp_path / "one.json")]) == 0
    words += ["--executor", "local", "--out", str(tmp_path / "many.json")]
    assert main(words) == 0
    assert untimed(tmp_path / "many.json") == untimed(tmp_path / "one.json")
    out, log = capsys.readouterr().out, (tmp_path / "log.jsonl").read_text()
    assert out.count("left out  gemm/cublas needs a GPU") == 2
    assert out.count(f"left out  {started}/kernel.cu still has BLANK_1 (line ") == 2
    assert log.count('"variant":"gemm/v0_naive"') == log.count('"variant"') == 2
    assert main([*words, "--impl", "gemm/v0", "gemm/cublas"]) == 2
    assert "error: gemm/cublas needs a GPU" in capsys.readouterr().err


def test_a_wrong_result_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = ROOT / "ladders/softmax/v0_naive"
    (tmp_path / "variant.py").write_text((source / "variant.py").read_text())
    (tmp_path / "kernel.cu").write_text((source / "kernel.cu").read_text().replace("expf(", "1.0f + expf("))
    words = ["bench", "--impl", str(tmp_path), "softmax/v1", "--shapes", "3,5", "--device", "emulator"]
    assert main([*words, "--executor", "local", "--out", str(tmp_path / "x.json")]) == 1
    out, err = capsys.readouterr()
    assert "softmax/v1_warp" in out
    assert "1 of 2 measurements are not complete" in err
    assert "elements differ from float64" in err
    assert not (tmp_path / "x.json").exists()


@pytest.mark.usefixtures("clock")
def test_different_devices_are_refused(tmp_path: Path) -> None:
    todo = Measurements("cuda", 0.01, "auto", None, sweep=False)
    for shape in ("1,3", "2,3"):
        todo.at_random(find("softmax/v1"), shape, find("softmax/v1").operation.parse(shape))
    todo.run(Local(), tmp_path, lambda row: None)
    file = tmp_path / "results/000001.json"
    file.write_text(file.read_text().replace("CPU emulator", "another"))
    with pytest.raises(MiniDnnError, match=r"have different devices, .*: CPU emulator .*; another"):
        todo.run(Local(), tmp_path, lambda row: None)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--executor", "local"], "--executor local needs --out FILE"),
        (["--profile", "x.toml"], "--profile x.toml needs --executor"),
        (["--throughput", "--executor", "local"], "--executor measures op times only"),
        (["--executor", "local", "--out", "x.json", "--profile", "two.toml"], "would share one GPU"),
        (["--sweep", "--device", "emulator"], "there are none on the emulator"),
    ],
)
def test_wrong_use(
    flags: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two.toml").write_text("workers = 2\n")
    assert main(["bench", *flags]) == 2
    assert says in capsys.readouterr().err
