"""Confined processes and the fork server: how they start, answer and end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from grading_helpers import honest
from waiting import wait_until

from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.emulator.runtime_build import header_folder, runtime_path
from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.errors import ShapeError
from mini_dnn.grading import plans
from mini_dnn.grading.confined import wire
from mini_dnn.grading.confined.forkserver import ForkServer
from mini_dnn.grading.confined.process import Answered, Confined, Ended, Limits
from mini_dnn.grading.confined.sandbox import Isolation, Policy
from mini_dnn.grading.subject import new_cache
from mini_dnn.ops import Array
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.paths import ROOT
from mini_dnn.variant import find

pytestmark = pytest.mark.skipif(not Isolation().full, reason=f"no isolation here: {Isolation()}")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    opened = ForkServer(tmp_path)
    yield opened
    opened.close()


def test_a_child_is_ended_however_early(server: ForkServer) -> None:
    """It is ended even if it does not lead a process group yet."""
    for _ in range(100):
        pipes = [os.pipe() for _ in range(3)]
        pid = server.start("planner", Policy(), {"folder": "/"}, [pipes[0][0], pipes[1][1], pipes[2][1]])
        assert server.end(pid) == signal.SIGKILL
        for pipe in pipes:
            os.close(pipe[0])
            os.close(pipe[1])


def test_processor_time_is_counted_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A correct kernel does not use more processor time in the emulator if it runs on many cores."""
    found: list[Policy] = []

    class Server:
        def start(self, role: str, policy: Policy, *more: object) -> int:
            found.append(policy)
            return 1

        def end(self, pid: int) -> int:
            return 0

    for cores in (1, 64):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, cores=cores: set(range(cores)))
        Confined(Server(), "planner", {}, Policy(), Limits(seconds=100)).close()  # type: ignore[arg-type]
    assert [policy.cpu_seconds for policy in found] == [1010, 64 * 1010]


def test_files_that_grow_are_seen(server: ForkServer, tmp_path: Path) -> None:
    source, private = tmp_path / "kernel", tmp_path / "private"
    source.mkdir()
    private.mkdir()
    (source / "variant.py").write_text("while True:\n    pass\n")
    arguments = {"folder": str(source)}
    policy = Policy(readable=(str(source),))
    with Confined(server, "planner", arguments, policy, Limits(30, files_mb=1), private) as process:
        (private / "large").write_bytes(bytes(2 << 20))
        with pytest.raises(Ended, match="more than 1 MB of files"):
            process.ask({"head": True})


def test_an_answer_that_is_cut_short(server: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "variant.py").write_text("import os\nos.write(4, b'\\0\\0\\0')\nos._exit(3)\n")
    policy = Policy(readable=(str(tmp_path),))
    with (
        Confined(server, "planner", {"folder": str(tmp_path)}, policy, Limits(30)) as process,
        pytest.raises(Ended, match="status 3"),
    ):
        process.ask({"head": True})
    assert wire.REPLY.size == 12


def test_answers_that_all_come_late(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer is in time, but hundreds of them would keep the machine busy for hours."""
    lines = ["import time", "from mini_dnn.variant import Variant", "def plan(s):", "    time.sleep(0.3)"]
    lines += ["    return []", "VARIANT = Variant(op='conv2d', plan=plan, idea='')"]
    (tmp_path / "variant.py").write_text("\n".join(lines))
    (tmp_path / "kernel.cu").touch()
    policy = Policy(readable=(str(tmp_path),))
    question = {"plan": [1, 1, 1, 1, 1, 1, 1], "op": "conv2d", "max_shared_bytes": 0}
    monkeypatch.setattr("mini_dnn.grading.confined.process.ANSWERS", 0.02)
    with Confined(server, "planner", {"folder": str(tmp_path)}, policy, Limits(60)) as process:

        def ask_often() -> None:
            for _ in range(30):
                process.ask(question)

        with pytest.raises(Ended, match=r"took more than 1\.2 s in total; the limit for one is 60"):
            ask_often()


def test_all_end_with_the_fork_server(server: ForkServer, tmp_path: Path) -> None:
    """This includes processes that were forked in between, although nothing notifies them."""
    (tmp_path / "variant.py").write_text("while True:\n    pass\n")
    policy = Policy(readable=(str(tmp_path),))
    process = Confined(server, "planner", {"folder": str(tmp_path)}, policy, Limits(1))
    assert processes_of(tmp_path)
    assert server._process is not None
    os.kill(server._process.pid, signal.SIGKILL)
    wait_until(lambda: not processes_of(tmp_path), lambda: processes_of(tmp_path))
    with pytest.raises(Ended):
        process.ask({"head": True})
    Confined(server, "planner", {"folder": str(tmp_path)}, policy, Limits(1)).close()
    apart = server.apart
    os.kill(server._process.pid, signal.SIGKILL)
    wait_until(lambda: not processes_of(tmp_path), lambda: processes_of(tmp_path))
    Confined(server, "planner", {"folder": str(tmp_path)}, policy, Limits(1)).close()
    assert server.apart == apart, "a submission that ends it does not get less isolation for the next one"


def processes_of(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={folder}\0".encode() in (process / "environ").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def test_without_namespaces(tmp_path: Path) -> None:
    server = ForkServer(tmp_path, apart=False)
    (tmp_path / "variant.py").write_text("while True:\n    pass\n")
    policy = Policy(readable=(str(tmp_path),))
    with (
        Confined(server, "planner", {"folder": str(tmp_path)}, policy, Limits(1)) as process,
        pytest.raises(Ended, match="within 1 s"),
    ):
        process.ask({"head": True})
    server.close()


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc")
def test_nvcc_compiles_confined(server: ForkServer, tmp_path: Path) -> None:
    source, private = tmp_path / "kernel", tmp_path / "private"
    source.mkdir()
    private.mkdir()
    (tmp_path / "secret.h").write_text("int secret = 42;")
    (source / "kernel.cu").write_text('extern "C" __global__ void k(float* x) { x[0] = VALUE; }')
    arguments = {"source": str(source / "kernel.cu"), "arch": "sm_90", "cache": str(private)}
    policy = Policy(readable=(str(source),), programs=True)
    with Confined(server, "compiler", arguments, policy, Limits(120), private) as process:
        assert process.ask({"defines": {"VALUE": 3}, "checked": False}) == b""
        assert len(list(private.glob("nvcc/*.cubin"))) == 1
        (source / "kernel.cu").write_text('#include "../secret.h"')
        with pytest.raises(Answered, match=r"secret\.h"):
            process.ask({"defines": {}, "checked": False})


def test_a_process_that_is_trusted_compiles_nothing(server: ForkServer, tmp_path: Path) -> None:
    """The process that has the GPU is less confined, and this file differs each time that it is hashed."""
    folder, cache = honest(tmp_path), tmp_path / "cache"
    kernel = folder / "kernel.cu"
    kernel.write_text(f'#if 0\n#include "/proc/self/stat"\n#endif\n{kernel.read_text()}')
    shape = ConvShape(1, 1, 3, 3, 1, 2, 2)
    planned = find(folder).planned(shape, 0)
    message = {"run": plans.encode_values(planned), "head": ["conv2d", "fp32", 75, "", False]}
    x, w = np.ones(shape.x, np.float32), np.ones(shape.w, np.float32)
    with Confined(
        server,
        "compiler",
        {"source": str(kernel), "arch": "emulator", "cache": str(cache)},
        Policy(readable=(str(folder),), programs=True),
        Limits(60),
        new_cache(cache),
    ) as compiler:
        compiler.ask({"defines": {}, "checked": False})
    arguments = {"source": str(kernel), "device": "emulator", "cache": str(cache)}
    with (
        Confined(server, "executor", arguments, Policy(trusted=True), Limits(60)) as executor,
        pytest.raises(Answered, match="may have changed since"),
    ):
        executor.ask(message, x, w)
    assert len(list(cache.glob("emulator/honest-*.so"))) == 1, "that of the confined compiler"


def test_a_new_cache_has_the_emulator_of_this_version_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files count as the submission's, and an old cache also contains those of earlier versions."""
    monkeypatch.setenv("MINI_DNN_CACHE", str(tmp_path))
    paths = [runtime_path(find_compiler(), ucontext=False, checked=checked) for checked in (False, True)]
    paths[0].parent.mkdir()
    for path in (*paths, paths[0].with_name("runtime-of_before.so")):
        path.touch()
    headers = [
        header_folder(find_compiler(), path, checked)
        for path, checked in zip(paths, (False, True), strict=True)
    ]
    for header in headers:
        header.mkdir()
        (header / "emulator.h.gch").touch()
    found = list((new_cache(tmp_path / "new") / "emulator").iterdir())
    assert {path.name for path in found} == {path.name for path in (*paths, *headers)}
    assert {path.name for path in found if path.is_symlink()} == {path.name for path in headers}


def test_an_answer_to_no_question(server: ForkServer, tmp_path: Path) -> None:
    answer = b"import os, struct\nos.write(4, struct.pack('<IQ', 0, 1) + b'1')\n"
    (tmp_path / "variant.py").write_bytes(answer)
    policy = Policy(readable=(str(tmp_path),))
    with Confined(server, "planner", {"folder": str(tmp_path)}, policy, Limits(30)) as process:
        assert process.ask({"head": True}) == b"1"
        select.select([process._replies], [], [])  # the true answer arrives, but nobody waits for it
        with pytest.raises(Ended, match="before it was asked"):
            process.ask({"plan": [1, 1, 1, 1, 1, 1, 1]})


def test_arrays_travel_as_their_bytes() -> None:
    known = {"odd": Array((3,), "uint8"), "x": Array((2, 2)), "halves": Array((1, 2), "float16")}
    given = {name: np.ones(array.shape, array.dtype) for name, array in known.items()}
    data = b"".join(wire.packed(given.values()))
    assert len(data) == 3 + 16 + 4
    found = wire.unpacked(data, known)
    for name, array in given.items():
        assert np.array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert found[name].flags.aligned
    for wrong in (data[:-1], data + b"1", b""):
        with pytest.raises(
            ShapeError, match=f"found {len(wrong)} bytes; expected 23, those of odd, x, halves"
        ):
            wire.unpacked(wrong, known)


def test_confined_processes_import_little() -> None:
    """What they import could be used against the grader, and costs time and memory in each process."""
    code = "from mini_dnn import ops; from mini_dnn.grading.confined import forkserver, roles; ops.names(); "
    code += "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "mini_dnn" in found.stdout.split()
    assert not {"h5py", "PIL", "pooch", "requests", "matplotlib", "tqdm"} & set(found.stdout.split())
