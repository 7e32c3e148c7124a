"""Write docs/first_hour.ipynb: the first hour with the project, for Jupyter, Colab and Kaggle.

The badges and the clone command contain the placeholder ``OWNER``. Replace it with the address of your copy:
``python docs/notebook.py --repository https://github.com/YOU/mini_dnn``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = "https://github.com/OWNER/mini_dnn"
TITLE = """# The first hour with mini_dnn

[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab})
[![Open in Kaggle](https://kaggle.com/static/images/open-in-kaggle.svg)]({kaggle})

{owner}A small network classifies pictures of clothes, and its convolutions run in CUDA kernels that you can read. In this notebook you
run a kernel, read it, make a mistake in a copy, let the checker find the mistake, and measure the kernel.

If there is a GPU (Colab: *Runtime, Change runtime type, T4*; Kaggle: *Accelerator, GPU T4*), the network and the measurement run on
it. Without a GPU, the network runs in an emulator on the CPU, and the measurement is skipped. The checker always uses the emulator.
Run the cells from top to bottom."""
OWNER = """**To the owner of this copy:** the badges and the first cell contain the placeholder `OWNER`. Replace it by running
`python docs/notebook.py --repository https://github.com/YOU/mini_dnn`, and commit the notebook.

"""
CELLS: tuple[tuple[str, str], ...] = (
    (
        "markdown",
        "## Get it\n\nThe first cell installs the project, which takes a minute or two. If this notebook is not part of a "
        "checkout, the cell first clones the project into the folder of the notebook.",
    ),
    (
        "code",
        '''import os, shutil, subprocess, sys
from pathlib import Path

REPOSITORY = os.environ.get("MINI_DNN_REPOSITORY", "{repository}")


def sh(*words, expect=0):
    """Run a program, print its output, and stop if it fails."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    assert done.returncode == expect, f"{{words}} ended with {{done.returncode}}"


GPU = shutil.which("nvidia-smi") is not None
if Path("../run.py").exists() and Path.cwd().name == "docs":  # this notebook is part of a checkout
    os.chdir("..")
if not Path("run.py").exists():
    if not Path("mini_dnn").exists():
        assert "/OWNER/" not in REPOSITORY, "first write the address of your copy into REPOSITORY, above"
        sh("git", "clone", "--quiet", "--depth", "1", REPOSITORY, "mini_dnn")
    os.chdir("mini_dnn")
sh(sys.executable, "-m", "pip", "install", "--quiet", "--editable", ".[gpu]" if GPU else ".")
print("a GPU" if GPU else "no GPU: kernels run in the emulator")''',
    ),
    (
        "markdown",
        "## Run a kernel\n\n`m1` is the simplest kernel: one thread for each output element. `--check` compares every element of both "
        "convolutions with float64. Test accuracy alone would not reveal wrong pixels.",
    ),
    ("code", 'sh(sys.executable, "run.py", "--batch", "100", "--impl", "m1", "--check")'),
    (
        "markdown",
        "## Read it\n\nThe comment at the top states the idea and the expected speed. Which line keeps the threads inside the image?",
    ),
    ("code", 'sh(sys.executable, "run.py", "show", "m1")'),
    (
        "markdown",
        "## Make a mistake\n\nYour own copy is in `mine/`. The next cell removes the line that keeps the threads inside the image. "
        "`check` reports the read out of bounds with its line, block and thread, and suggests a fix. Exit status 1 means "
        "that it found a mistake.",
    ),
    (
        "code",
        """if not Path("mine/first").exists():
    sh(sys.executable, "run.py", "new", "first", "--from", "m1")
kernel = Path("mine/first/kernel.cu")
right = Path("milestones/m1/direct/kernel.cu").read_text()
kernel.write_text(right.replace("if (pixel >= P * Q) return;", ""))
sh(sys.executable, "run.py", "check", "mine/first", "--shapes", "1,1,5,4,2,3,3", expect=1)""",
    ),
    (
        "markdown",
        "## Correct it\n\nWhen the line is restored, `check` finds nothing. Edit the file yourself, and run the next cell again without its first line.",
    ),
    (
        "code",
        """kernel.write_text(right)
sh(sys.executable, "run.py", "check", "mine/first", "--shapes", "1,1,5,4,2,3,3")""",
    ),
    (
        "markdown",
        "## Measure\n\nOn a GPU, `bench` times your copy and the first kernel in both layers, and `report` writes a page with the results. "
        "Without a GPU, the cell prints the variants that you could measure, because times in the emulator do not predict those of a GPU.",
    ),
    (
        "code",
        """if GPU:
    results = "first_hour.json"
    sh(sys.executable, "run.py", "bench", "--impl", "mine/first", "m1", "--batch", "1000", "--out", results)
    sh(sys.executable, "run.py", "report", results, "--out", "first_hour")
    from IPython.display import Markdown, display

    display(Markdown(Path("first_hour/report.md").read_text()))
else:
    sh(sys.executable, "run.py", "list", "conv2d")""",
    ),
    (
        "markdown",
        "## Go on\n\n- An exercise with blanks and hints: `run.py new --exercise m1/direct`, then `run.py hint mine/direct`.\n"
        "- The lesson of milestone 1: `milestones/m1/README.md`.\n"
        "- All commands: `README.md`, or `run.py --help`.\n\nIn a cell, write `!python` before such a command.",
    ),
)


def notebook(repository: str) -> dict[str, Any]:
    """Return the notebook's content."""
    path = repository.removeprefix("https://github.com/").removesuffix(".git")
    file = f"{path}/blob/main/docs/first_hour.ipynb"
    links = {
        "colab": f"https://colab.research.google.com/github/{file}",
        "kaggle": f"https://kaggle.com/kernels/welcome?src=https://github.com/{file}",
        "repository": repository,
        "owner": OWNER if repository == REPOSITORY else "",
    }
    cells = []
    for number, (kind, text) in enumerate((("markdown", TITLE), *CELLS)):
        filled = text.format(**links) if "{colab}" in text or "{repository}" in text else text
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        cell["source"] = filled.splitlines(keepends=True)
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": python, "language_info": {"name": "python"}, "accelerator": "GPU"}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def main(repository: str, out: Path = HERE) -> None:
    """Write the file."""
    text = json.dumps(notebook(repository), indent=1, ensure_ascii=False)
    (out / "first_hour.ipynb").write_text(text + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="write docs/first_hour.ipynb")
    parser.add_argument("--repository", default=REPOSITORY, help="where your copy is (default %(default)s)")
    main(parser.parse_args().repository)
