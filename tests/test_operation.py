"""A new operation is a file in ``mini_dnn/ops`` and a folder per variant. No other file has to change."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mini_dnn import ops
from mini_dnn.errors import VariantError
from mini_dnn.paths import ROOT

EXAMPLE = "softmax"  # the example in CONTRIBUTING
NEW = "gibbs"  # the same under a name that no file of the project contains
VARIANTS = ("v0_naive", "v1_warp")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RUBRIC = f"""
name = "{NEW}"
op = "{NEW}"

[correct]
shapes = [[3, 40]]

[checked]
shapes = [[2, 33]]

[[variant]]
name = "ladders/{NEW}/v1_warp"
points = {{ correct = 1, checked = 1 }}
"""


@pytest.mark.whole
def test_the_example_of_contributing_is_the_code_of_this_repository() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.split("## An operation in ten minutes")[1].split("\n## ")[0]
    assert BLOCK.findall(section) == [(ROOT / f"mini_dnn/ops/{EXAMPLE}.py").read_text()]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the example's files under another name, and no other change."""
    copy = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", EXAMPLE, f"{EXAMPLE}.py")
    for name in ("mini_dnn", "milestones", "layers", "networks", "ladders", "data"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in ("run.py", "README.md"):
        shutil.copyfile(ROOT / name, copy / name)
    files = [Path(f"mini_dnn/ops/{EXAMPLE}.py")]
    files += [Path(f"ladders/{EXAMPLE}/{v}/{f}") for v in VARIANTS for f in ("variant.py", "kernel.cu")]
    for file in files:
        target = copy / str(file).replace(EXAMPLE, NEW)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((ROOT / file).read_text().replace(EXAMPLE, NEW))
    return copy


def run(checkout: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "run.py", *words], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def test_list(checkout: Path) -> None:
    found = run(checkout, "list", NEW)
    assert f"{NEW}: {NEW} of each row" in found
    assert all(f"{NEW}/{variant}" in found for variant in VARIANTS)


def test_a_broken_file_is_named_with_its_line(checkout: Path) -> None:
    file = checkout / "mini_dnn/ops/unfinished.py"
    file.write_text('"""Nothing yet."""\n\nOPERATION = Operation(name="unfinished")\n')
    words = [sys.executable, "run.py", "list"]
    done = subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=False)
    file.unlink()
    line = "line 3 (OPERATION = Operation(name=\"unfinished\")): NameError: name 'Operation' is not defined"
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{file} cannot be loaded: {line}; CONTRIBUTING.md shows" in done.stderr


@pytest.mark.parametrize(
    ("found", "message"),
    [(ops.find(EXAMPLE), f"has the name '{EXAMPLE}'"), (3, "is 3")],
    ids=["copied", "number"],
)
def test_an_operation_has_the_name_of_its_file(
    found: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops, "_load", lambda file: SimpleNamespace(OPERATION=found))
    with pytest.raises(VariantError, match=rf"mine.py: OPERATION {message}; expected Operation\(name='mine'"):
        ops._defines_operation(Path("mine.py"))


def test_run(checkout: Path) -> None:
    found = run(
        checkout, "run", "--impl", f"{NEW}/v1", "--shapes", "5,300", "--check", "--device", "emulator"
    )
    assert "agrees with float64" in found


@pytest.mark.exhaustive
def test_check_show_diff(checkout: Path) -> None:
    assert "no findings at 6 shapes" in run(checkout, "check", "--impl", f"{NEW}/v0")
    assert "1,000 rows of 50,000" in run(checkout, "show", f"{NEW}/v1", "--expand", "--at", "tokens")
    assert f"+++ {NEW}/v1_warp/kernel.cu" in run(checkout, "diff", f"{NEW}/v1")


def test_new(checkout: Path) -> None:
    assert f"run.py check mine/{NEW}/idea" in run(checkout, "new", f"{NEW}/idea", "--from", f"{NEW}/v1")
    assert (checkout / "mine" / NEW / "idea" / "kernel.cu").is_file()
    assert f"mine/{NEW}/idea" in run(checkout, "list", NEW)
    shutil.rmtree(checkout / "mine")


@pytest.mark.exhaustive
def test_bench_and_report(checkout: Path) -> None:
    words = ("--device", "emulator", "--shapes", "40,100", "--out", "results.json")
    run(checkout, "bench", NEW, *words)
    rows = json.loads((checkout / "results.json").read_text())["rows"]
    assert {row["variant"] for row in rows} == {f"{NEW}/{variant}" for variant in VARIANTS}
    assert all(row["op"] == NEW and row["shape"] == {"N": 40, "L": 100} for row in rows)
    run(checkout, "report", "results.json", "--out", "page")
    page = (checkout / "page" / "report.md").read_text()
    assert all(f"`{NEW}/{variant}`" in page for variant in VARIANTS)


def test_grade(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(RUBRIC)
    submission = tmp_path / "submissions" / "someone"
    shutil.copytree(checkout / "ladders" / NEW / "v1_warp", submission)
    words = (
        "--rubric",
        str(tmp_path / "rubric.toml"),
        "--out",
        str(tmp_path / "grades"),
        "--device",
        "emulator",
    )
    assert "2 of 2" in run(checkout, "grade", str(submission), *words)
