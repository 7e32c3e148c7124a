"""Style and types. One worker checks the types, which takes the longest, while the others run tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from mini_dnn.paths import ROOT

BIN = Path(sys.executable).parent
CPP = ("*.cu", "*.cuh", "*.h", "*.hpp", "*.cpp")


def assert_passes(*words: object) -> None:
    done = subprocess.run([*map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_types() -> None:
    assert_passes(BIN / "mypy")


def test_python() -> None:
    assert_passes(BIN / "ruff", "check", "--quiet", ".")
    assert_passes(BIN / "ruff", "format", "--check", "--quiet", ".")


def test_cpp() -> None:
    listed = subprocess.run(["git", "ls-files", *CPP], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"git does not list the files: {listed.stderr.strip()}")
    assert_passes(BIN / "clang-format", "--dry-run", "--Werror", *listed.stdout.split())
