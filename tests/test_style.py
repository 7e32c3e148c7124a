"""Style and types. One worker checks the types, which takes longest, while the others run tests."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from mini_dnn.paths import ROOT

BIN = Path(sys.executable).parent
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
CPP = ("*.cu", "*.cuh", "*.h", "*.hpp", "*.cpp", ":!mine/")  # students commit theirs to hand them in


def assert_passes(*words: object) -> None:
    done = subprocess.run([*map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_types() -> None:
    assert_passes(BIN / "mypy")


def test_python() -> None:
    assert_passes(BIN / "ruff", "check", "--quiet", ".")
    assert_passes(BIN / "ruff", "format", "--check", "--quiet", ".")


def is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.JoinedStr) or (
        isinstance(value, ast.Constant) and isinstance(value.value, str)
    )


def test_no_text_is_cut_off() -> None:
    """A string on a line of its own is the end of a message whose parentheses are missing."""
    alone = []
    for path in sorted((ROOT / "mini_dnn").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
        docstrings = {id(node.body[0]) for node in nodes if isinstance(node, DOCUMENTED) and node.body}
        statements = (node for node in nodes if isinstance(node, ast.Expr) and id(node) not in docstrings)
        alone += [f"{path}:{one.lineno}" for one in statements if is_text(one.value)]
    assert not alone


def test_cpp() -> None:
    listed = subprocess.run(["git", "ls-files", *CPP], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"git does not list the files: {listed.stderr.strip()}")
    assert_passes(BIN / "clang-format", "--dry-run", "--Werror", *listed.stdout.split())
