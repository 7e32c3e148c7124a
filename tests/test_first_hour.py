"""Obstacles that a new user met in the first hour; other tests cover some of them."""

import errno
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import conftest
import pytest

from mini_dnn import datasets
from mini_dnn.cli import main, status_of
from mini_dnn.datasets import DataError
from mini_dnn.errors import MiniDnnError, reason
from mini_dnn.paths import ROOT
from mini_dnn.variant import find, names
from mini_dnn.variant.scaffold import create

Output = pytest.CaptureFixture[str]
WIDEST = 130  # characters of a line without a path


def test_the_list_says_where_a_variant_runs(capsys: Output) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in names():
        (line,) = (line for line in lines if f" {name} " in line)
        variant = find(name)
        anywhere = "on the host" if variant.host else "on a GPU or the emulator"
        assert ("on a GPU" if variant.needs_gpu else anywhere) in line.split(", ")


def test_lines_fit_a_window(capsys: Output) -> None:
    assert main(["list"]) == 0
    assert main(["run", "m3", "--shapes", "1,1,9,8,4,3,3", "--device", "emulator"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert len(line) <= WIDEST, line


def test_the_note_about_the_data_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise DataError("there is no network " * 30)

    monkeypatch.delenv("FASHION_MNIST_DIR", raising=False)
    monkeypatch.setattr("mini_dnn.datasets.fashion_mnist.load", missing)
    note = datasets.load("auto", "test").note
    assert "using synthetic images" in note
    assert len(note) <= 200


def test_a_locale_that_has_ascii_alone(tmp_path: Path) -> None:
    """A user's kernel may contain other characters. They are copied, and a terminal shows the rest."""
    kernel = create(str(tmp_path / "mine"), find("m1")) / "kernel.cu"
    kernel.write_text(f"// Idea: √K – “quoted”\n{kernel.read_text()}", encoding="utf-8")

    def run(*words: str, **settings: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, str(ROOT / "run.py"), *words]
        return subprocess.run(command, env=os.environ | settings, capture_output=True, check=False)

    ascii_alone = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for settings in (ascii_alone, {"PYTHONUTF8": "1", "PYTHONIOENCODING": "ascii"}):
        done = run("show", str(kernel.parent), **settings)
        assert done.returncode == 0, done.stderr
        assert b"Idea: ?K ? ?quoted?" in done.stdout
    done = run("new", str(tmp_path / "copy"), "--from", str(kernel.parent), **ascii_alone)
    assert done.returncode == 0, done.stderr
    assert "Idea: √K – “quoted”" in (tmp_path / "copy/kernel.cu").read_text(encoding="utf-8")


def test_a_text_that_the_locale_cannot_write_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(lambda: len("√K".encode("ascii"))) == 2
    assert capsys.readouterr().err.endswith("Set PYTHONUTF8=1\n")


def test_a_python_without_the_packages() -> None:
    """This is the system's Python, if .venv is not activated."""
    words = [sys.executable, "-S", "-E", str(ROOT / "run.py"), "list"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {sys.executable} has no package '")
    assert done.stderr.endswith("'. .venv/bin/activate' in each shell\n")


def test_a_python_that_cannot_be_used(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    cases = {"python9": "PYTHON=python9: there is no such program", "false": "or newer; false is"}
    for python, why in cases.items():
        words = ["make", "-C", str(tmp_path), f"PYTHON={python}", "setup"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert why in done.stdout
        assert "ry: make PYTHON=python3.12" in done.stdout
        assert not (tmp_path / ".venv").exists()


def test_the_program_that_pip_installs() -> None:
    assert 'mini-dnn = "mini_dnn.cli:main"' in (ROOT / "pyproject.toml").read_text()


def test_skipped_tests_are_a_line_a_reason() -> None:
    lines: list[str] = []
    skipped = [SimpleNamespace(longrepr=("file", at, "Skipped: no GPU")) for at in range(54)]
    skipped += [SimpleNamespace(longrepr=("file", 1, "Skipped: no nvcc"))]
    reporter: Any = SimpleNamespace(stats={"skipped": skipped}, write_line=lines.append)
    config: Any = SimpleNamespace(stash={conftest.LEFT_OUT: 7}, getoption={"sample": "word"}.get)
    conftest.pytest_terminal_summary(reporter, config)
    assert lines == [
        "not in the sample 'word': 7 tests; `make test EXHAUSTIVE=1` runs all",
        *("skipped 54: no GPU", "skipped 1: no nvcc"),
    ]


def test_a_full_disk_leaves_nothing_of_a_new_variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fails(*_: object, **__: object) -> None:
        raise full

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", fails)
        with pytest.raises(MiniDnnError, match=r"cannot be written: .*No space left on device"):
            create(str(tmp_path / "mine"), find("m1"))
    assert not list(tmp_path.iterdir())
    assert create(str(tmp_path / "mine"), find("m1")) == tmp_path / "mine"


def test_files_that_were_not_copied_are_one_reason(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    for name in "ab":
        (tmp_path / "from" / name).symlink_to(tmp_path / "nowhere")
    with pytest.raises(shutil.Error) as caught:
        shutil.copytree(tmp_path / "from", tmp_path / "to")
    assert reason(caught.value) == "No such file or directory"


def test_own_variants_are_not_looked_at_as_the_projects() -> None:
    """git ignores them, so the tests of style and headers do not see them."""
    ignored = subprocess.run(["git", "check-ignore", "-q", "mine/idea/kernel.cu"], cwd=ROOT, check=False)
    assert ignored.returncode == 0
    assert Counter(name.partition("/")[0] for name in names())["mine"] == 0
