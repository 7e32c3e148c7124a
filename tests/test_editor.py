"""Files for editors: clangd's file, VS Code's tasks, and the container's set-up."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from mini_dnn.checking.results import Report, Result
from mini_dnn.cli import main
from mini_dnn.cli.check import problems_in
from mini_dnn.cli.editor import entry
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.finding import Finding, Party, Place
from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.paths import ROOT
from mini_dnn.variant import find, names
from mini_dnn.variant.signatures import Kernels

Output = pytest.CaptureFixture[str]
KERNELS = [name for name in ("m1/tiled_direct", "m3/fusion", "softmax/v1_warp") if name in names()]
TASKS = json.loads((ROOT / ".vscode/tasks.json").read_text())["tasks"]


def test_each_kernel_has_an_entry(tmp_path: Path, capsys: Output) -> None:
    assert main(["editor", "--out", str(tmp_path)]) == 0
    entries = json.loads((tmp_path / "compile_commands.json").read_text())
    assert {entry["file"] for entry in entries} >= {
        str(find(name).source) for name in names() if find(name).plan
    }
    assert f"{len(entries)} kernels" in capsys.readouterr().out


def test_a_folder_that_does_not_exist_is_refused_as_by_other_verbs(tmp_path: Path, capsys: Output) -> None:
    assert main(["editor", "--out", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles_as_its_entry_says(name: str) -> None:
    arguments = entry(find(name))["arguments"]
    assert isinstance(arguments, list)
    command = [str(find_compiler().path), *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")
def test_with_cuda_it_names_the_toolkit(tmp_path: Path) -> None:
    assert main(["editor", "--cuda", "--out", str(tmp_path)]) == 0
    arguments = json.loads((tmp_path / "compile_commands.json").read_text())[0]["arguments"]
    toolkit = next(word for word in arguments if word.startswith("--cuda-path="))
    assert Path(toolkit.partition("=")[2], "bin").is_dir()
    assert "-xcuda" in arguments


KERNEL = 'extern "C" __global__ void k(float* x) { x[0] = 1; }'


def test_findings_are_lines_that_vs_code_reads() -> None:
    source = find("m1").source
    here, there = Place("kernel.cu", 29, "x[1]"), Place("kernel.cu", 31, "y[1]")
    race = Finding("race", "write of y[0]", "conv", own=Party(here, (), ()), other=Party(there, (), ()))
    launch = Finding("launch", "too many threads", own=Party(Place("variant.py", 12, "x"), (), ()))
    nowhere = Finding("unwritten", "nobody wrote y[0]")
    lines = []
    for finding in (race, launch, nowhere):
        lines += problems_in(Report("m1", "conv2d", 0, (Result("3,5", finding),), "emulator", 90), source)
    (pattern,) = {task["problemMatcher"]["pattern"]["regexp"] for task in TASKS if task["problemMatcher"]}
    found = [match.groups() for line in lines if (match := re.fullmatch(pattern, line))]
    assert found == [
        (str(source), "29", "error", "race: write of y[0]"),
        (str(source), "31", "note", "the other one of 'race: write of y[0]'"),
        (str(source.with_name("variant.py")), "12", "error", "launch: too many threads"),
        (str(source), "1", "error", "unwritten: nobody wrote y[0]"),
    ]


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """A kernel may include another one. A cached library may have been compiled in another checkout."""
    own, other = (tmp_path / name / "kernel.cu" for name in ("own", "other"))
    for file, text in ((own, '#include "../other/kernel.cu"'), (other, KERNEL)):
        file.parent.mkdir()
        file.write_text(text)
    place = Place("../other/kernel.cu", 1, KERNEL)
    assert Kernels(own).signatures["k"].place == place
    for named in (str(other), "/elsewhere/other/kernel.cu"):
        assert Place.at(own, named, 1) == place
    assert Place.at(own, "kernel.cu", 1) == Place("kernel.cu", 1, '#include "../other/kernel.cu"')
    finding = Finding("fault", "it stopped", own=Party(place, (), ()))
    report = Report("own", "conv2d", 0, (Result("3,5", finding),), "emulator", 90)
    assert problems_in(report, own) == [f"{other}:1: error: fault: it stopped"]


def test_tasks_have_real_verbs_and_flags(capsys: Output) -> None:
    for task in TASKS:
        assert task["args"][0] == "run.py"
        with pytest.raises(SystemExit, match=r"^0$"):
            main([task["args"][1], "--help"])
        text = capsys.readouterr().out
        assert all(word in text for word in task["args"][2:] if word.startswith("--"))


def test_a_task_in_the_background_sees_where_a_check_begins_and_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mini_dnn.cli.watch.time.sleep", stop)
    (task,) = (task for task in TASKS if task.get("isBackground"))
    words = [find("m1").name if word == "${fileDirname}" else word for word in task["args"][1:]]
    assert main([*words, "--shapes", "1,1,4,5,1,2,2"]) == 0
    said = capsys.readouterr()
    lines = [*said.out.splitlines(), *said.err.splitlines()]
    for name in ("beginsPattern", "endsPattern"):
        pattern = task["problemMatcher"]["background"][name]
        assert sum(bool(re.search(pattern, line)) for line in lines) == 1, (name, lines)


@pytest.mark.parametrize("there", [True, False], ids=["all is there", "nothing is there"])
def test_the_containers_set_up(there: bool, tmp_path: Path) -> None:
    """The set-up runs with stand-ins for the programs that it calls. It installs only what is missing."""
    (tmp_path / ".devcontainer").mkdir()
    script = tmp_path / ".devcontainer/setup.sh"
    script.write_text((ROOT / ".devcontainer/setup.sh").read_text())
    tools, log = tmp_path / "bin", tmp_path / "log"
    tools.mkdir()
    (tmp_path / ".venv/bin").mkdir(parents=True)
    present = ["apt-get", "make", "sudo", *(["g++", "git", "clangd"] if there else [])]
    body = {"python3": f"exit {0 if there else 1}", "sudo": 'exec "$@"'}
    for name in (*present, "python3"):
        said = body.get(name, f'echo "{name} $*" >> {log}')
        (tools / name).write_text(f"#!/bin/bash\n{said}\n")
        (tools / name).chmod(0o755)
    (tmp_path / ".venv/bin/python").write_text(f'#!/bin/bash\necho "python $*" >> {log}\n')
    (tmp_path / ".venv/bin/python").chmod(0o755)
    for name in ("bash", "dirname", "id", "env"):
        (tools / name).symlink_to(Path("/usr/bin", name))
    done = subprocess.run(
        ["/usr/bin/bash", str(script)],
        env={**os.environ, "PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    installed = ["apt-get update -q", "apt-get install -qy g++ git python3-venv clangd"]
    assert lines == [*([] if there else installed), "make setup", "python run.py editor"]


def test_the_container_runs_that_script() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert container["postCreateCommand"] == "bash .devcontainer/setup.sh"
    assert os.access(ROOT / ".devcontainer/setup.sh", os.X_OK)
    assert "\nsetup: $(STAMP)\n" in (ROOT / "Makefile").read_text()
