"""Confined processes find packages in folders on PYTHONPATH, where a cluster's modules put them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from grading_helpers import DENIED, GOOD, QUICK, ROOM, ending, honest

from mini_dnn.grading.confined import sandbox
from mini_dnn.grading.confined.forkserver import ForkServer
from mini_dnn.grading.confined.process import Answered, Confined, Limits
from mini_dnn.grading.confined.sandbox import Isolation, Policy
from mini_dnn.paths import ROOT

pytestmark = pytest.mark.skipif(not Isolation().full, reason=f"no isolation here: {Isolation()}")


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with a package as an installer writes it."""
    folder = tmp_path / "packages"
    (folder / "tiny-1.0.dist-info").mkdir(parents=True)
    (folder / "tiny").mkdir()
    (folder / "tiny" / "__init__.py").write_text("WHERE = 'installed'\n")
    return folder


@pytest.fixture
def server(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    """Confined processes of a grader that was started with that folder on its path."""
    monkeypatch.syspath_prepend(packages)
    (tmp_path / "home").mkdir()
    opened = ForkServer(tmp_path / "home")
    yield opened
    opened.close()


def plan_with_import(server: ForkServer, folder: Path) -> bytes:
    """The answer of a confined process whose variant imports the package in its plan."""
    source = honest(folder)
    (source / "tiny.py").write_text("WHERE = 'submitted'\n")
    text = (source / "variant.py").read_text()
    (source / "variant.py").write_text(f"{text}\nimport tiny\nassert tiny.WHERE == 'installed'\n")
    policy = Policy(readable=(str(source),))
    with Confined(server, "planner", {"folder": str(source)}, policy, Limits(30)) as process:
        return process.ask({"head": True})


def test_the_executor_takes_pycuda_from_pythonpath(packages: Path, tmp_path: Path) -> None:
    """A stand-in replaces the GPU: the kind of failure shows that PyCUDA was imported."""
    (packages / "pycuda").mkdir()
    (packages / "pycuda" / "__init__.py").touch()
    (packages / "pycuda" / "driver.py").write_text("raise ImportError(f'stand-in {__file__}')\n")
    (tmp_path / "quick.toml").write_text(QUICK)
    words = ["grade", str(honest(tmp_path)), "--rubric", str(tmp_path / "quick.toml")]
    words += ["--out", str(tmp_path / "out"), "--device", "cuda"]
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *words],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert f"PyCUDA cannot be imported (stand-in {packages}/pycuda/driver.py)" in found.stderr
    assert found.returncode


def test_a_confined_process_imports_what_is_installed(server: ForkServer, tmp_path: Path) -> None:
    """It does not import a module of the same name from the submission's folder."""
    assert b"fp32" in plan_with_import(server, tmp_path)


def test_other_folders_on_the_path_stay_closed(server: ForkServer, packages: Path, tmp_path: Path) -> None:
    """A user's own modules are not accessible if no installer recorded them."""
    (packages / "tiny-1.0.dist-info").rmdir()
    with pytest.raises(Answered, match="No module named 'tiny'"):
        plan_with_import(server, tmp_path)


def test_packages_are_read_and_not_written(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, policy = packages / "tiny" / "__init__.py", Policy(memory_bytes=ROOM, file_bytes=1 << 20)
    assert ending(module.read_text, policy) == DENIED
    monkeypatch.syspath_prepend(packages)
    assert ending(module.read_text, policy) == GOOD
    assert ending(lambda: module.write_text(""), policy) == DENIED
    assert ending((packages / "more").mkdir, policy) == DENIED


def test_a_folder_that_holds_mini_dnn_stays_closed(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rubrics are in it: PYTHONPATH is often the checkout, and an editable install leaves records there."""
    monkeypatch.syspath_prepend(packages)
    assert packages in sandbox.code_folders()
    monkeypatch.setattr(sandbox, "PACKAGE", packages / "tiny")
    assert packages not in sandbox.package_folders()


def test_where_confined_processes_look(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is that of this process, without the current folder and without unreadable folders."""
    library = str(Path(os.__file__).parent)
    monkeypatch.setattr(sys, "path", ["", "relative", str(tmp_path), str(packages), library, str(ROOT)])
    assert sandbox.search_path() == [str(packages), library]
