"""The notebook of the first hour is what its script writes, and it runs with the emulator."""

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import doc_scripts
import pytest

from mini_dnn.checking.launches import shared_limit
from mini_dnn.cli import VERBS, _parser
from mini_dnn.paths import ROOT
from mini_dnn.variant import SHORT_NAMES, find, names

NOTEBOOK = ROOT / "docs/first_hour.ipynb"
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
NotebookClient(notebook, timeout=300, resources={"metadata": {"path": sys.argv[2]}}).execute()
print(nbformat.writes(notebook))
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return doc_scripts.script("notebook")


def test_it_is_what_its_script_writes(script: ModuleType, tmp_path: Path) -> None:
    text = NOTEBOOK.read_text()
    repository = re.search(r'\\"MINI_DNN_REPOSITORY\\", \\"(.*?)\\"', text)
    assert repository
    script.main(repository[1], tmp_path)
    assert (tmp_path / "first_hour.ipynb").read_text() == text, "python docs/notebook.py"


def test_badges_lead_to_a_copy(script: ModuleType) -> None:
    first = "".join(script.notebook("https://github.com/ann/course.git")["cells"][0]["source"])
    assert "https://colab.research.google.com/github/ann/course/blob/main/docs/first_hour.ipynb" in first
    assert "src=https://github.com/ann/course/blob/main/docs/first_hour.ipynb" in first


def test_the_placeholder_is_explained_until_it_is_replaced(script: ModuleType) -> None:
    ours, theirs = (
        json.dumps(script.notebook(at)) for at in (script.REPOSITORY, "https://github.com/ann/course")
    )
    assert "python docs/notebook.py --repository" in ours
    assert "To the owner" not in theirs
    assert theirs.count("OWNER") == 1, "in the check of the first cell"


def test_all_cells_are_python(script: ModuleType) -> None:
    cells = script.notebook(script.REPOSITORY)["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) == 6
    for text in code:
        compile(text, "cell", "exec")


def test_in_a_checkout_nothing_is_cloned(script: ModuleType, tmp_path: Path) -> None:
    """Jupyter starts a notebook in the notebook's folder."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "run.py").touch()
    cell = "".join(script.notebook(script.REPOSITORY)["cells"][2]["source"])
    quiet = "def sh(*words, expect=0): print(os.getcwd(), *words[1:])\n\n\nGPU = "
    cell = re.sub(r"def sh\(.*?GPU = ", lambda _: quiet, cell, flags=re.DOTALL)
    words = [sys.executable, "-c", cell]
    done = subprocess.run(words, cwd=tmp_path / "docs", capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{tmp_path.resolve()} -m pip install")


def commands(text: str) -> list[list[str]]:
    """The arguments that the cells pass to run.py, on a GPU and without one. A variable stands for itself."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    given = [[ast.unparse(arg).strip("'") for arg in call.args] for call in calls]
    return [words[2:] for words in given if words[:2] == ["sys.executable", "run.py"]]


def test_its_commands_are_real_and_run_on_a_t4(script: ModuleType) -> None:
    """Its variants support sm_75 at the problems of the course."""
    cells = script.notebook(script.REPOSITORY)["cells"]
    given = [
        words for cell in cells if cell["cell_type"] == "code" for words in commands("".join(cell["source"]))
    ]
    last = re.findall(r"run\.py ([^`]*)`", "".join(cells[-1]["source"]))
    given += [text.split() for text in last if not text.startswith("-")]
    verbs = set()
    named = set()
    for words in given:
        args = _parser(VERBS).parse_args(words if words[0] in VERBS else ["infer", *words])
        verbs.add(args.verb)
        for flag in ("impl", "name", "source"):
            value = getattr(args, flag, None) or ()
            named |= {value} if isinstance(value, str) else set(value)
    assert verbs >= {"infer", "show", "new", "check", "bench", "report", "list", "hint"}
    known = [find(name) for name in named if name in (*names(), *SHORT_NAMES)]
    assert find("m1").name in {variant.name for variant in known}
    for variant in known:
        assert variant.min_arch <= 75
        for problem in variant.operation.course.values():
            planned = variant.planned(problem, shared_limit(75))
            assert all(launch.shared_bytes <= shared_limit(75) for launch in planned.launches)


@pytest.mark.exhaustive
def test_it_runs_in_the_emulator(tmp_path: Path) -> None:
    """The notebook clones this repository, and pip installs into a folder of the test."""
    folders = os.environ["PATH"].split(os.pathsep)
    hidden = [folder for folder in folders if not Path(folder, "nvidia-smi").exists()]
    ours = importlib.metadata.files("mini-dnn")
    environment = {
        **os.environ,
        "MINI_DNN_REPOSITORY": ROOT.as_uri(),
        "PATH": os.pathsep.join(hidden),
        "PIP_NO_DEPS": "1",
        "PIP_PREFIX": str(tmp_path / "installed"),
        "PIP_IGNORE_INSTALLED": "1",  # without this, pip would first remove this environment's mini_dnn
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(NOTEBOOK), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert importlib.metadata.files("mini-dnn") == ours, "the installation that runs these tests has changed"
    cells = [cell for cell in json.loads(done.stdout)["cells"] if cell["cell_type"] == "code"]
    told = ["".join("".join(output.get("text", "")) for output in cell["outputs"]) for cell in cells]
    said = [re.sub(r"\x1b\[[\d;]*m", "", text) for text in told]  # remove colours
    assert "no GPU: kernels run in the emulator" in said[0]
    assert "agrees with float64" in said[1]
    assert "conv_direct" in said[2]
    assert "1. out-of-bounds: " in said[3]
    assert "no findings at 1 shape" in said[4]
    assert "mine/first" in said[5]
