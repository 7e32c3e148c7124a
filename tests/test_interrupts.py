"""Ctrl-C while a program starts: it imports modules, or starts processes that work for it."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from mini_dnn.paths import ROOT
from mini_dnn.work import children
from mini_dnn.work.children import SPAWN

PRESS = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"


@pytest.mark.usefixtures("interruptible")
def test_a_module_that_catches_everything_does_not_hide_ctrl_c(tmp_path: Path) -> None:
    """NumPy's own modules report a bad installation if Ctrl-C comes while they are imported."""
    (tmp_path / "numpy.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    signal.pause()\n"
        "except BaseException:\n    raise ImportError('numpy is not installed properly')\n"
    )
    done = subprocess.run(
        [sys.executable, ROOT / "run.py", "list"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.usefixtures("interruptible")
def test_a_process_that_is_starting_never_sees_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python imports ``sitecustomize`` before anything of ours."""
    (tmp_path / "sitecustomize.py").write_text(PRESS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = SPAWN.Process(target=os.getpid)
    process.start()
    process.join()
    assert process.exitcode == 0
    with ProcessPoolExecutor(1, SPAWN) as pool:
        assert pool.submit(abs, -1).result() == 1
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_waits_until_a_process_has_all_that_it_reads() -> None:
    reached: list[str] = []

    def start() -> None:
        with children._ctrl_c_later():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("end")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert reached == ["end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_other_threads_start_processes_too() -> None:
    processes = []

    def start() -> None:
        processes.append(SPAWN.Process(target=os.getpid))
        processes[0].start()
        processes[0].join()

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert processes[0].exitcode == 0
