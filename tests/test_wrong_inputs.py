"""Wrong inputs of newcomers: each gets an answer of one or two lines that names the next step."""

import os
import signal
import subprocess
import sys
from errno import ENOSPC
from pathlib import Path

import pytest

from mini_dnn.cli import main
from mini_dnn.device import Device
from mini_dnn.errors import CompileError
from mini_dnn.paths import ROOT
from mini_dnn.variant import exercise, find
from mini_dnn.variant.scaffold import create

Output = pytest.CaptureFixture[str]
SHAPE = ["--shapes", "1,1,4,5,1,2,2"]


def said(words: list[str], capsys: Output) -> str:
    try:
        status = main(words)
    except SystemExit as end:  # argparse's
        status = int(end.code or 0)
    assert status == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch", "ten"], "argument --batch: 'ten' is not an integer. "),
        (["train", "--rate", "fast"], "argument --rate: 'fast' is not a number. "),
        (["--impl", ""], "argument --impl: the value is empty; a shell variable may not be set"),
        (["check", ""], "the value is empty"),
        (["check", "gemm"], "gemm is an operation; name one of its variants, such as gemm/"),
        (["list", "m1"], "m1 is a variant of conv2d: 'run.py show m1' prints it, and 'run.py list conv2d'"),
        (["run", "m1", "--seed", "-7"], "argument --seed: '-7' is not a seed: expected an integer of 0 or"),
        (["check", "--watch", "nowhere_at_all"], "error: no variant 'nowhere_at_all'"),
    ],
)
def test_the_message(words: list[str], message: str, capsys: Output) -> None:
    assert message in said(words, capsys)


@pytest.mark.parametrize(
    "words", [["--batch", "ten"], ["grade", "x"], ["show", "m1", "--ptx", "--sass"], ["x"]]
)
def test_a_wrong_argument_is_one_line(words: list[str], capsys: Output) -> None:
    err = said(words, capsys)
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "--help' explains the arguments" in err


@pytest.mark.usefixtures("unplotted")
@pytest.mark.parametrize("words", [["assign", "m1"], ["report", "benchmarks/results/h200-d.json"]])
def test_a_file_where_a_folder_is_needed(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(ROOT)
    own = tmp_path / "own.txt"
    own.write_text("precious")
    assert "a file is where a folder is needed; name another " in said([*words, "--out", str(own)], capsys)
    assert own.read_text() == "precious"


def test_a_json_of_another_program_is_no_results_file(tmp_path: Path, capsys: Output) -> None:
    own = tmp_path / "own.json"
    own.write_text('{"my": "data"}')
    message = said(["report", str(own), "--out", str(tmp_path / "out")], capsys)
    assert "own.json is not a results file: it has no field 'schema'" in message
    assert "bench --out FILE.json" in message


def test_weights_that_are_a_folder(tmp_path: Path, capsys: Output) -> None:
    assert "it is a folder; expected a file. Next:" in said(["--weights", str(tmp_path)], capsys)


@pytest.mark.parametrize(
    "words",
    [
        *(["check"], ["run"], ["profile"], ["explain", "--out", "build/x.html"], ["--batch", "1", "--impl"]),
        *(["show", "--ptx"], ["bench", "--at", "conv1", "--device", "emulator"]),
    ],
)
def test_the_blanks_of_an_exercise_are_named(words: list[str], tmp_path: Path, capsys: Output) -> None:
    folder = create(str(tmp_path / "mine"), find("m1"), exercise.make)
    kernel = folder / "kernel.cu"
    kernel.write_text(kernel.read_text().replace("BLANK_1", "// BLANK_1", 1))
    message = said([*words, str(folder)], capsys)
    assert "kernel.cu still has BLANK_2 (line " in message
    assert "BLANK_1" not in message
    assert f"run.py hint {folder}' prints a hint" in message


@pytest.mark.parametrize("missing", ["}", ")"])
def test_a_missing_bracket_is_about_the_kernel_alone(missing: str, tmp_path: Path, emulator: Device) -> None:
    folder = create(str(tmp_path / "mine"), find("m1"))
    kernel = folder / "kernel.cu"
    start, end = kernel.read_text().rsplit(missing, 1)
    kernel.write_text(start + end)
    variant = find(folder)
    with pytest.raises(CompileError) as error:
        emulator.compile(variant.source, variant.defines_for(variant.operation.course["conv1"]))
    message = str(error.value)
    assert "wrapper" not in message
    assert "emulator_" not in message
    assert f"{kernel}:" in message
    assert ("a '{' has no matching '}' before the end of the file" in message) == (missing == "}")


def test_ctrl_c_during_a_check_ends_the_watch(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mini_dnn.cli.check.check", interrupted)
    assert main(["check", "m1", "--watch"]) == 128 + signal.SIGINT
    assert "watching" not in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_behind_standard_output() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, str(ROOT / "run.py"), "list"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert f"{os.strerror(ENOSPC)}. Free some space on that disk, then repeat the command" in done.stderr
    assert done.stderr.count("\n") == 1


def test_make_run_ends_with_three_next_steps() -> None:
    done = subprocess.run(["make", "-n", "run"], cwd=ROOT, capture_output=True, text=True, check=True)
    steps = done.stdout.partition("Next:")[2]
    assert [word for word in ("list", "show m1", "new my_kernel --from m1") if f"run.py {word}" in steps] == [
        "list",
        "show m1",
        "new my_kernel --from m1",
    ]
