"""The option --watch: a verdict after each change of a kernel, until Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

from mini_dnn.cli import main
from mini_dnn.cli import watch as flag
from mini_dnn.device.sources import source_files
from mini_dnn.paths import ROOT
from mini_dnn.variant import find
from mini_dnn.variant.folders import folder_of
from mini_dnn.variant.scaffold import create


def change(folder: Path, kernel: str) -> None:
    """Replace a kernel atomically, so that one change is noticed."""
    (folder / ".new").write_text(kernel)
    (folder / ".new").replace(folder / "kernel.cu")


def test_checks_again_after_each_change(tmp_path: Path) -> None:
    folder = create(str(tmp_path / "mine"), find("m1"))
    words = [
        sys.executable,
        str(ROOT / "run.py"),
        "check",
        str(folder),
        "--shapes",
        "1,1,4,5,1,2,2",
        "--watch",
    ]
    said = tmp_path / "said.txt"

    def restore() -> None:  # the tests may have been started with the signal ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with said.open("w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, preexec_fn=restore)
    try:
        right = (folder / "kernel.cu").read_text()
        wait_until(lambda: said.read_text().count("watching") == 1)
        assert said.read_text().count("no findings") == 1
        change(folder, right.replace("] = acc;", "] = -acc;"))
        wait_until(lambda: said.read_text().count("watching") == 2)
        assert "1 finding at 1 shape" in said.read_text()
        change(folder, "this is no C++")
        wait_until(lambda: said.read_text().count("watching") == 3)
        change(folder, right)
        wait_until(lambda: said.read_text().count("watching") == 4)
        assert said.read_text().count("no findings") == 2
        os.kill(process.pid, signal.SIGINT)
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()


def test_needs_a_variant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--watch"]) == 2
    assert "--watch needs a variant's name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--watch"], "layers/custom"),
        (["--watch", "--impl", "m1"], "m1/direct"),
        (["--watch", "--resident", "whole"], "networks/lenet/whole"),
        (["--watch", "--resident", "layers", "--network", "vit"], "networks/vit/layer_by_layer"),
        (["check", "m1", "--watch"], "m1/direct"),
    ],
)
def test_watches_the_variant_that_runs(words: list[str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[Path] = []
    monkeypatch.setattr(flag, "watch", lambda name, once: watched.append(folder_of(name)) or 0)
    assert main(words) == 0
    assert watched == [folder_of(name)]


@pytest.mark.parametrize("network", ["vit", "resnet18"])
def test_needs_a_variant_if_the_device_decides(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The default of one network is the best variant for the device, and that of the other is NumPy."""
    assert main(["--watch", "--network", network]) == 2
    assert "--watch needs a variant's name" in capsys.readouterr().err


def test_a_kernel_may_vanish_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some editors remove a file before they write it again."""
    folder = create(str(tmp_path / "mine"), find("m1"))
    before = flag._state(folder)
    assert folder / "kernel.cu" in before

    def vanish(source: Path) -> list[Path]:
        source.unlink()
        return source_files(source)

    monkeypatch.setattr(flag, "source_files", vanish)
    assert set(before) - set(flag._state(folder)) == {folder / "kernel.cu"}
