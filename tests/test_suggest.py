"""Suggestions for misspelled verbs, options, values, variants, operations, problems and files."""

from pathlib import Path

import pytest

from mini_dnn.cli import main
from mini_dnn.errors import meant, meant_file, nearest
from mini_dnn.paths import ROOT

Output = pytest.CaptureFixture[str]
WEIGHTS = "data/lenet-fashion-mnist.h5"


def status_of(words: list[str]) -> int:
    try:
        return main(words)
    except SystemExit as end:  # argparse's
        return int(end.code or 0)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["chek", "m1"], "check"),
        (["--bacth", "10"], "--batch"),
        (["check", "m1", "--schedle=random"], "--schedules"),
        (["weights", "shwo", WEIGHTS], "show"),
        (["run", "m1", "--device", "emulater"], "emulator"),
        (["show", "m1", "--expand", "--as", "torhc"], "torch"),
        (["--data", "fashion-mnits"], "fashion-mnist"),
        (["list", "sofmax"], "softmax"),
        (["bench", "sofmax"], "softmax"),
        (["run", "m1/tiled_dirct"], "m1/tiled_direct"),
        (["run", "m1", "--at", "cov1", "--device", "emulator"], "conv1"),
        (["profile", "m1", "--tool", "emulator", "--gpu", "h20"], "h200"),
        (["--weights", str(ROOT / "data/lenet-fashoin-mnist.h5")], str(ROOT / WEIGHTS)),
    ],
)
def test_the_command_line_says_what_was_meant(words: list[str], found: str, capsys: Output) -> None:
    assert status_of(words) == 2
    assert f"(did you mean '{found}'?)" in capsys.readouterr().err


def test_a_picture_is_suggested(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "shoe.png").write_bytes(b"")
    assert main(["classify", str(tmp_path / "sheo.png")]) == 1
    found = capsys.readouterr()
    assert f"(did you mean '{tmp_path / 'shoe.png'}'?)" in found.out + found.err


@pytest.mark.parametrize("words", [["xyz"], ["--qqq"], ["run", "zzz"], ["--weights", "/nowhere/at/all"]])
def test_nothing_is_suggested_that_is_not_alike(words: list[str], capsys: Output) -> None:
    assert status_of(words) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_what_is_most_alike() -> None:
    assert nearest("conv", ["gemm", "conv2d", "softmax"]) == "conv2d"
    assert nearest("80", [75, 86, 8]) == "8"
    assert meant("conv2d", []) == ""


def test_a_file_that_is_there_is_not_suggested_for_itself(tmp_path: Path) -> None:
    (tmp_path / "a_file").touch()
    assert meant_file(tmp_path / "a_file") == ""
    assert meant_file(tmp_path / "a_flie") == f" (did you mean '{tmp_path / 'a_file'}'?)"
    (tmp_path / ".weights.h5.lock").touch()
    assert meant_file(tmp_path / "weights.h5") == ""


def test_a_message_names_the_flag_of_the_verb(tmp_path: Path, capsys: Output) -> None:
    words = ["explain", "m1", "--out", str(tmp_path / "page.html"), "--shape", "1,1,6"]
    assert main(words) == 2
    assert "error: --shapes '1,1,6' does not have the form" in capsys.readouterr().err
    assert main([*words, "--at", "conv1"]) == 2
    assert "--at names problems of the course, and --shapes gives sizes" in capsys.readouterr().err
