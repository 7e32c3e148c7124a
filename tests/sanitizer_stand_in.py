"""A stand-in for compute-sanitizer, and the command that uses it."""

import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mini_dnn.checking import on_gpu as check_cuda
from mini_dnn.checking import sanitizer
from mini_dnn.cli import main
from mini_dnn.variant import Variant

TESTS = Path(__file__).parent
ODD = "2,1,9,21,3,2,5"
SHAPES = ["1,1,4,5,2,3,2", ODD]

ALL = dict(sanitizer.SUBTOOLS)
Install = Callable[..., None]


SCRIPT = """#!{python}
import sys
sys.path.insert(0, {tests!r})
{body}
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A function that puts the stand-in on PATH and replaces the program that needs a GPU.

    Only memcheck and the checkers that report something are run: each of them takes two processes per shape.
    """

    def put(body: str = "", **reports: str) -> None:
        program = tmp_path / "bin" / "compute-sanitizer"
        program.parent.mkdir(exist_ok=True)
        body = (
            body
            or f"import check_standin\nsys.exit(check_standin.sanitizer(sys.argv[1:], {reports!r}, {ODD!r}))"
        )
        program.write_text(SCRIPT.format(python=sys.executable, tests=str(TESTS), body=body))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        monkeypatch.setattr(check_cuda, "PROGRAM", (str(TESTS / "check_standin.py"),))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        used = {name: words for name, words in ALL.items() if name in ("memcheck", *reports)}
        monkeypatch.setattr(sanitizer, "SUBTOOLS", used)

    return put


def edited(folder: Path, variant: Variant, file: str, old: str, new: str) -> str:
    """A copy of a variant with a mistake."""
    shutil.copytree(variant.folder, folder / "mine")
    path = folder / "mine" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return str(folder / "mine")


def check(*words: str) -> int:
    return main(["check", "--device", "cuda", "--shapes", *SHAPES, *words])
