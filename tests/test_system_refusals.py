"""Closed or full standard streams, errors of the operating system, and the memory that is available."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mini_dnn.cli import main
from mini_dnn.device import host_memory
from mini_dnn.paths import ROOT


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [
        (">&-", 0, ""),
        ("<&- >&- 2>&-", 0, ""),
        (">/dev/full", 2, "error: the operating system reports: No space left on device"),
    ],
)
def test_standard_streams_may_be_closed_or_full(redirection: str, status: int, said: str) -> None:
    command = f"{sys.executable} run.py list {redirection}"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == bool(said)


def test_a_file_does_not_take_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """Kernels print to file descriptor 1, whatever it is."""
    code = f"""
import json, os, sys
from mini_dnn.cli import main
main(["list", "softmax"])
json.dump([os.open(os.devnull, os.O_RDONLY), sys.stdout.name], open({str(tmp_path / "said")!r}, "w"))
"""
    subprocess.run(["sh", "-c", 'exec "$0" "$@" <&- >&-', sys.executable, "-c", code], cwd=ROOT, check=True)
    number, _ = json.loads((tmp_path / "said").read_text())
    assert number > 2


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("can't start new thread"), "error: the system cannot start more threads. Free memory"),
        (MemoryError("Unable to allocate 9 GiB"), "error: out of memory: Unable to allocate 9 GiB. Use a"),
        (
            OSError(5, "Input/output error", "somewhere"),
            "error: the operating system reports: Input/output error (some",
        ),
    ],
)
def test_what_the_system_refuses_is_reported_in_a_line(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("mini_dnn.cli.list_variants.run", fail)
    assert main(["list"]) == 2
    assert capsys.readouterr().err.startswith(message)


def test_memory_is_known_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = host_memory.available_bytes()
    assert known > 0
    monkeypatch.setattr(host_memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(host_memory, "STATM", tmp_path / "statm")
    assert host_memory.available_bytes() > 0
    assert host_memory._address_space() > 0
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    monkeypatch.setattr(host_memory, "GROUPS", tmp_path)
    assert host_memory.available_bytes() == 2000
    (tmp_path / "memory.stat").write_text("file 800\ninactive_file 500\nactive_file 300\n")
    assert host_memory.available_bytes() == 2500
    (tmp_path / "memory").mkdir()
    for name, number in (("limit_in_bytes", 2000), ("usage_in_bytes", 900)):
        (tmp_path / "memory" / f"memory.{name}").write_text(f"{number}\n")
    assert host_memory.available_bytes() == 1100
    (tmp_path / "memory" / "memory.stat").write_text("inactive_file 100\ntotal_inactive_file 200\n")
    assert host_memory.available_bytes() == 1300
