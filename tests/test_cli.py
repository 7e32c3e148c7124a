"""The command line: its output, the files that it writes, and its messages for wrong use."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mini_dnn.cli import common, main, one
from mini_dnn.paths import ROOT
from mini_dnn.report.page import TITLE
from mini_dnn.variant import find

SYNTHETIC = ["--data", "synthetic"]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("impl", ["cpu", "m1", "m3"])
def test_classifies(impl: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    device = [] if impl == "cpu" else ["--device", "emulator"]
    words = ["--batch", "100", "--impl", impl, *SYNTHETIC, *device, "--check", "--json", str(file)]
    status, out, _ = run(capsys, *words)
    assert status == 0
    head = out.splitlines()[:4]
    assert [line.split()[0] for line in head] == ["variant", "device", "data", "weights"]
    assert "synthetic" in head[2]
    assert len(re.findall(r"^Layer Time: \d+\.\d+ ms$", out, re.MULTILINE)) == 2
    assert out.count("agrees with float64") == 2
    found = re.search(r"^Test Accuracy: (0\.\d{4}) \(agrees with", out, re.MULTILINE)
    assert found
    figures = json.loads(file.read_text())
    assert set(figures) == {
        *("impl", "device", "device_name", "data", "batch", "accuracy", "expected_accuracy"),
        *("network", "linear", "layers", "total_s", "versions"),
    }
    assert (figures["impl"], figures["data"]) == (impl, "synthetic")
    assert figures["accuracy"] == pytest.approx(float(found[1]), abs=1e-4)
    assert [layer["name"] for layer in figures["layers"]] == ["conv1", "conv2"]
    times = [layer["op_ms"] for layer in figures["layers"]]
    if impl == "cpu":
        assert min(times) > 0
    else:
        assert times == [None, None]  # an emulated time says nothing about a GPU
        assert out.count("Op Time: n/a") == 2


def test_a_students_folder_without_registration(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    source = Path(__file__).parent.parent / "milestones" / "m1" / "direct"
    for name in ("variant.py", "kernel.cu"):
        (folder / name).write_text((source / name).read_text())
    words = ["--batch", "10", "--impl", str(folder), *SYNTHETIC, "--device", "emulator", "--check"]
    status, out, _ = run(capsys, *words)
    assert status == 0
    assert f"variant   {folder}" in out
    kernel = (folder / "kernel.cu").read_text()
    (folder / "kernel.cu").write_text(kernel.replace("q + s]", "q + S - 1 - s]"))  # mirrored filter
    status, out, err = run(capsys, *words)
    assert status == 1
    message = r"error: .*mine, conv1: \d+ of 256000 elements differ from float64; the first at \(0, 0, "
    assert re.search(message, err)


def test_wrong_accuracy_is_reported_and_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = Path(__file__).parent.parent / "milestones" / "m1" / "direct"
    (tmp_path / "variant.py").write_text((source / "variant.py").read_text())
    kernel = (source / "kernel.cu").read_text()
    (tmp_path / "kernel.cu").write_text(kernel.replace("] = acc;", "] = -acc;"))
    words = ["--batch", "100", "--impl", str(tmp_path), *SYNTHETIC, "--device", "emulator"]
    status, out, _ = run(capsys, *words)
    assert status == 1
    assert re.search(r"Test Accuracy: 0\.\d{4} \(DIFFERS from 0\.\d{4}, stored with the weights", out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--impl", "m4"], r"no variant 'm4'"),
        (["--batch", "0"], r"--batch 0: expected 1 or more images"),
        (["--batch", "10001", *SYNTHETIC, "--impl", "cpu"], r"synthetic has only 10000 test images"),
        (["--repeat", "0"], r"--repeat 0"),
        (["--impl", "cpu", "--device", "cuda"], r"runs on the host; remove --device cuda"),
        (["--json", "no/such/folder/x.json"], r"there is no folder .*no/such/folder; create it first"),
        (["--data", "fashion-mnist", "--data-dir", "/nowhere"], r"/nowhere"),
        (["--weights", "none.h5", *SYNTHETIC, "--impl", "cpu"], r"none\.h5"),
        (["bench", "--batch", "ten"], r"--batch ten: expected integers"),
        (["bench", "--impl", "m9"], r"no variant 'm9'"),
        (["bench", "--out", "no/such/x.json"], r"there is no folder"),
        (["bench", "--out", "."], r"--out \. is a folder; name a file in it"),
        (["bench", "--out", "-"], r"--out -: the output is a file here, not standard output; name a file"),
        (["report", "--readmes", "--out", "x"], r"--out and --force are for a report"),
        (["report", "--check", "--force"], r"--readmes and --check are about the READMEs; use them in two"),
        (["bench", "--budget", "nan"], r"--budget nan: expected"),
        (["bench", "--batch", "\u00b2"], r"expected integers separated by commas"),
        (["bench", "--impl", "m1,m3/cublas", "--device", "emulator", *SYNTHETIC], r"m3/cublas needs a GPU"),
        (["new", "m3", "--from", "m2"], r"'m3' is already a variant"),
        (["check"], r"name a variant, such as 'run\.py check m1'"),
        (["check", "m1", "--impl", "m2"], r"m1 and --impl m2 both name a variant"),
        (["bench", "m9"], r"m9 is neither an operation \(conv2d, .*\) nor a variant: no variant 'm9'"),
        (["--resident", "whole", "--impl", "m2"], r"--impl m2 names a variant for some layers; use only one"),
    ],
)
def test_wrong_use_is_explained(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, *words)
    assert status == 2
    assert err.startswith("error: ")
    assert re.search(message, err)


def test_the_folder_of_all_pages_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fresh clone has no folder ``build``."""
    monkeypatch.setattr(common, "BUILD", tmp_path / "build")
    monkeypatch.chdir(tmp_path)
    words = ["--shapes", "1,1,3,3,1,2,2", "--json", "build/check.json"]
    status, _, err = run(capsys, "check", "m1", *words)
    assert (status, err) == (0, "")
    assert (tmp_path / "build" / "check.json").is_file()


def test_list_shows_every_variant(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "list")
    assert status == 0
    for name in ("m1/direct", "m2/unroll_gemm", "m3/streams", "layers/custom", "networks/lenet/whole"):
        assert name in out


@pytest.mark.whole
def test_list_follows_the_ladder(capsys: pytest.CaptureFixture[str]) -> None:
    """Each variant is listed after its parent, whatever their names are."""
    _, out, _ = run(capsys, "list")
    found = re.findall(r"^(?: {5}|\S+ +)(\w+(?:/\w+)+) .*?(?:improves on (\S+))?$", out, re.MULTILINE)
    names = [name for name, _ in found]
    assert len(names) > 50
    parents = [(name, parent) for name, parent in found if parent in names and parent != "layers/custom"]
    assert len(parents) > 40
    assert all(names.index(parent) < names.index(name) for name, parent in parents)
    assert names.index("gemm/v0_naive") < names.index("gemm/cublas")


@pytest.mark.parametrize("verb", ["check", "run"])
def test_a_name_alone_is_enough(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [verb, "m1", "--shapes", "1,1,5,4,2,3,2", "--device", "emulator"]
    status, out, _ = run(capsys, *words)
    assert status == 0
    assert "m1/direct" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--version")
    assert status == 0
    assert re.match(r"mini_dnn (\d+\.\d+\.\d+|not installed).*, Python 3\.", out)
    done = subprocess.run([sys.executable, "-m", "mini_dnn", "--version"], capture_output=True, text=True)
    assert done.stdout == out


def test_unknown_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["infre"])
    assert stop.value.code == 2
    assert "invalid choice: 'infre'" in capsys.readouterr().err


def test_bench_writes_what_a_figure_needs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    words = ["bench", "--impl", "cpu", "m1", "--batch", "20", "--device", "emulator", *SYNTHETIC]
    status, _, _ = run(capsys, *words, "--budget", "0.1", "--out", str(file))
    assert status == 0
    record = json.loads(file.read_text())
    assert {"schema", "started", "commit", "dirty", "device", "versions", "method", "rows"} <= set(record)
    assert [(row["variant"], row["problem"]) for row in record["rows"]] == [
        *(("m1/cpu", "conv1"), ("m1/cpu", "conv2"), ("m1/direct", "conv1"), ("m1/direct", "conv2"))
    ]
    assert record["rows"][2]["op_ms"] is None
    assert [row["state"] for row in record["rows"]] == [None] * 4  # there is no GPU
    assert [sorted(row["host"] or ()) for row in record["rows"]] == [["cores", "load"]] * 2 + [[]] * 2
    assert len(record["rows"][2]["code_hash"]) == 64
    assert len(record["rows"][2]["source_hash"]) == 64
    assert record["rows"][3]["flops"] == 2 * 16 * 196 * 20 * 34 * 34


def test_bench_keeps_what_it_has_when_a_later_variant_fails(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    source = Path(__file__).parent.parent / "milestones" / "m1" / "direct"
    (wrong / "variant.py").write_text((source / "variant.py").read_text())
    (wrong / "kernel.cu").write_text((source / "kernel.cu").read_text().replace("] = acc;", "] = -acc;"))
    file = tmp_path / "bench.json"
    words = ["bench", "--impl", "m1", str(wrong), "--batch", "10", "--device", "emulator", *SYNTHETIC]
    status, _, err = run(capsys, *words, "--out", str(file))
    assert status == 1
    assert "differ from float64" in err
    assert {row["variant"] for row in json.loads(file.read_text())["rows"]} == {"m1/direct"}
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []


def test_elements_that_nobody_wrote_are_reported_without_a_check(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = Path(__file__).parent.parent / "milestones" / "m1" / "direct"
    (tmp_path / "variant.py").write_text((source / "variant.py").read_text())
    kernel = (source / "kernel.cu").read_text()
    (tmp_path / "kernel.cu").write_text(
        kernel.replace("if (pixel >= P * Q)", "if (n == 5 || pixel >= P * Q)")
    )
    words = ["--batch", "10", "--impl", str(tmp_path), *SYNTHETIC, "--device", "emulator"]
    status, _, err = run(capsys, *words)
    assert status == 1
    assert re.search(r", conv1: 25600 of 256000 output elements are NaN, the first at \(5, 0, 0, 0\)", err)


def test_a_wrong_result_ends_with_the_mistake_and_the_next_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for file in ("variant.py", "kernel.cu"):
        (tmp_path / file).write_text((ROOT / "milestones/m1/direct" / file).read_text())
    kernel = (tmp_path / "kernel.cu").read_text()
    mirrored = kernel.replace("* R + r) * S + s]", "* R + R - 1 - r) * S + S - 1 - s]")
    words = ["--batch", "3", "--impl", str(tmp_path), *SYNTHETIC, "--device", "emulator", "--check"]
    (tmp_path / "kernel.cu").write_text(mirrored)
    status, _, err = run(capsys, *words)
    assert (status, mirrored == kernel) == (1, False)
    assert "the result is the same as when the filter is mirrored" in err
    assert err.endswith(f"run.py check {tmp_path} --shapes 2,1,86,86,4,7,7\n")
    (tmp_path / "kernel.cu").write_text(kernel.replace("if (pixel >= P * Q) return;", ""))
    status, _, err = run(capsys, *words)
    assert status == 2
    assert "used memory that is not its own" in err
    assert err.endswith("--shapes 2,4,40,40,16,7,7\n")


def test_a_file_of_somebody_else_is_not_replaced(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    words = ["run", "softmax/v0", "--shapes", "2,3", "--device", "emulator", "--json", str(file)]
    for theirs in ("my notes", '{"notes": 1}', "[1, 2]"):
        file.write_text(theirs)
        status, _, err = run(capsys, *words)
        assert status == 2
        assert "but mini_dnn did not write it; name another file, or use --force to replace it" in err
        assert file.read_text() == theirs
    assert run(capsys, *words, "--force")[0] == 0
    assert run(capsys, *words)[0] == 0, "this one is ours"
    assert json.loads(file.read_text())["variant"] == "softmax/v0_naive"


def test_problems_that_run_leaves_out() -> None:
    variant = find("gemm/v17")
    course = variant.operation.course
    refused = {name: problem for name, problem in course.items() if name != "fp32-row"}
    skipped = one._skipped(variant, course, clock=True)
    assert skipped["gemm/v17_vectors does not support these problems"] == list(refused)
    assert not one._skipped(variant, refused, clock=True), "the first one raises an error with its limit"


def page(title: str) -> bytes:
    return f"<title>{title}</title>".encode()


def test_a_report_replaces_reports_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mini_dnn.report.page._blocks", lambda *_: [])
    monkeypatch.setattr("mini_dnn.report.page._files", lambda *_: {"index.html": page(TITLE)})
    (tmp_path / "index.html").write_text("<title>my page</title>")
    results = str(ROOT / "benchmarks/results/h200-attention.json")
    words = ["report", results, "--out", str(tmp_path)]
    status, _, err = run(capsys, *words)
    assert status == 2
    assert re.search(r"contains index.html, but not a report of mini_dnn; name another folder", err)
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    assert run(capsys, *words, "--force")[0] == 0
    assert run(capsys, *words)[0] == 0
    status, _, err = run(capsys, "report", str(ROOT / "README.md"))
    assert status == 2
    assert "README.md is not a results file" in err
    assert "bench --out FILE.json" in err


def test_help_does_not_wait_for_matplotlib() -> None:
    """``--help`` imports all verbs, and it is the first command that many people try."""
    code = "import atexit, sys; from mini_dnn.cli import main\n"
    code += "atexit.register(lambda: print('matplotlib' in sys.modules)); main(['--help'])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "usage: run.py" in found.stdout
    assert found.stdout.endswith("\nFalse\n")
