"""Files of the cache are either complete or made again."""

import errno
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from mini_dnn.device import cache
from mini_dnn.device.cache import WORK, kept, key, store, stored, work
from mini_dnn.device.emulator import runtime_build
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.emulator.runtime_build import build_runtime
from mini_dnn.errors import DeviceError
from mini_dnn.paths import ABANDONED_S, remove_abandoned, replacing, workplace, write_atomically


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "file"
    assert stored(file) is None
    store(file, b"content")
    assert stored(file) == b"content"


@pytest.mark.parametrize("damage", [b"", b"x", b"content", b"Content" + bytes(32)])
def test_damage_is_seen(tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(damage)
    assert stored(file) is None


def test_a_damaged_kernel_is_compiled_again(tmp_path: Path) -> None:
    def convolve() -> None:  # in a process of its own, because a process has only one cache
        code = (
            "import numpy as np; from mini_dnn import conv2d; one = np.ones((1, 1, 2, 2), np.float32); "
            "assert (conv2d(one, one, 'm1', 'emulator') == 4).all()"
        )
        environment = {**os.environ, "MINI_DNN_CACHE": str(tmp_path)}
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)

    (tmp_path / "emulator").mkdir()
    runtime = build_runtime(find_compiler(), ucontext=False, checked=False)
    shutil.copyfile(runtime, tmp_path / "emulator" / runtime.name)
    convolve()
    (kernels,) = (file for file in tmp_path.glob("emulator/*.so") if file.name != runtime.name)
    kernels.write_bytes(kernels.read_bytes()[:3000])
    convolve()


def test_a_damaged_runtime_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*_: object) -> Path:
        (tmp_path / "made").write_bytes(b"anew")
        return tmp_path / "made"

    monkeypatch.setenv("MINI_DNN_CACHE", str(tmp_path))
    monkeypatch.setattr(runtime_build, "_build", made)
    runtime = build_runtime(find_compiler(), ucontext=False)
    runtime.write_bytes(runtime.read_bytes()[:-1])
    assert stored(runtime) is None
    assert stored(build_runtime(find_compiler(), ucontext=False)) == b"anew"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A new cache with its own place for temporary files."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("MINI_DNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    for one in (cache._spare, cache.say):
        one.cache_clear()
    yield tmp_path
    for one in (cache._spare, cache.say):
        one.cache_clear()


def full(*folders: Path) -> Callable[..., None]:
    """A function that writes files, except to the given folders."""

    def write(path: Path, *rest: Any) -> None:
        if any(path.is_relative_to(folder) for folder in folders):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_atomically(path, *rest)

    return write


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_full_disk_costs_the_cache_and_not_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache, "write_atomically", full(folder / "cache"))
    made: list[int] = []
    target = folder / "cache" / "emulator" / "kernels.so"
    for _ in range(3):
        found = kept(target, lambda: made.append(1) or b"code")  # type: ignore[func-returns-value]
        assert stored(found) == b"code"
        assert found.name == target.name  # by this name others find it once it is loaded
    assert len(made) == 1
    (said,) = warnings_of(caplog)
    assert "cannot store the compiled kernel (No space left on device), so it is not kept" in said
    monkeypatch.setattr(cache, "write_atomically", full(folder))
    with pytest.raises(
        DeviceError, match=r"neither .*other\.so nor the folder for temporary files.*No space"
    ):
        kept(target.with_name("other.so"), lambda: b"code")


def test_threads_share_the_folder_for_what_cannot_be_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow() -> AbstractContextManager[Path]:
        time.sleep(0.2)
        return work()

    monkeypatch.setattr(cache, "write_atomically", full(folder / "cache"))
    monkeypatch.setattr(cache, "work", slow)
    with ThreadPoolExecutor(4) as pool:
        targets = [folder / "cache" / "emulator" / f"{number}.so" for number in range(4)]
        found = list(pool.map(lambda target: kept(target, lambda: b"code"), targets))
    assert len({path.parent for path in found}) == 1


def test_a_file_is_locked_until_it_is_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def late(temporary: Path, target: Path) -> Path:
        os.utime(temporary, (0, temporary.stat().st_mtime - 2 * ABANDONED_S))
        remove_abandoned([temporary])
        return replace(temporary, target)

    monkeypatch.setattr(Path, "replace", late)
    write_atomically(tmp_path / "file", b"content")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"content")]


def refuse_to_open(path: Path) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (
            lambda file, patch: patch.setattr(cache, "_trusted", lambda: {os.getuid() + 1}),
            "belongs to another user",
        ),
        (lambda file, patch: patch.setattr(cache, "open_regular", refuse_to_open), "Permission denied"),
        (lambda file, patch: file.write_bytes(b"damage" * 20), "is damaged"),
        (lambda file, patch: (file.unlink(), os.mkfifo(file)), "found a pipe"),
        (lambda file, patch: (file.unlink(), file.mkdir()), "Is a directory"),
        (lambda file, patch: (file.unlink(), file.symlink_to(file)), "Too many levels"),
    ],
)
def test_what_cannot_be_used_is_made_anew(
    spoil: Callable[[Path, pytest.MonkeyPatch], Any],
    word: str,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = folder / "cache" / "emulator" / "kernels.so"
    assert kept(file, lambda: b"code") == file
    with pytest.MonkeyPatch.context() as patch:
        spoil(file, patch)
        found = kept(file, lambda: b"anew")
    assert stored(found) == b"anew"
    assert word in warnings_of(caplog)[0]


def test_files_may_be_shared(folder: Path) -> None:
    store(folder / "cache" / "emulator" / "file", b"content")
    assert (folder / "cache" / "emulator" / "file").stat().st_mode & 0o777 == 0o644


KILLED = """
import os, signal, sys
from pathlib import Path
from mini_dnn.device.cache import store, work
os.fchmod = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # when the data is written
with work() as made:
    (made / "header.gch").write_bytes(bytes(1000))
    store(Path(sys.argv[1]), bytes(100_000))
"""


def test_what_killed_processes_leave_is_removed(folder: Path) -> None:
    file = folder / "cache" / "emulator" / f"kernels-{key('kernels')}.so"
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    done = subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False, env=environment)
    assert done.returncode == -signal.SIGKILL
    left = [*file.parent.glob(".*"), *(folder / "tmp").glob(f"{WORK}*")]
    assert len(left) == 2
    with work() as mine, workplace("other-") as other:
        for path in (*left, mine, other):
            os.utime(path, (0, path.stat().st_mtime - 2 * ABANDONED_S))
        store(file, b"content")
        assert [path.exists() for path in (*left, mine, other)] == [False, False, True, True]
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    "name",
    [
        ".file.settings",
        ".file.12345678",
        "emulator/.file.settings",
        "emulator/.venv.orig/file",
        "emulator/.loaded-settings.so/file",
        f"mine/.kernels-{key('mine')}.so.12345678",
    ],
)
def test_files_of_the_user_stay(name: str, folder: Path) -> None:
    """The cache may be a folder with other files, such as the home folder."""
    mine = folder / "cache" / name
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    for path in (mine, mine.parent):
        os.utime(path, (0, path.stat().st_mtime - 2 * ABANDONED_S))
    store(folder / "cache" / "emulator" / "file", b"content")
    assert mine.read_bytes() == b"mine"


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_no_mutation_of_a_file_is_taken_for_its_content(count: int, folder: Path) -> None:
    rng = random.Random(count)
    file, data = folder / "cache" / "file", rng.randbytes(3000)
    store(file, data)
    whole = file.read_bytes()
    for _ in range(count):
        at, length = rng.randrange(len(whole)), rng.choice([1, 1, 2, 32, 1000])
        middle = [rng.randbytes(length), b"", whole[at : at + length] * 2][rng.randrange(3)]
        file.write_bytes(whole[:at] + middle + whole[at + length :])
        assert stored(file) == (data if file.read_bytes() == whole else None)


def test_what_killed_writers_of_images_and_weights_leave_is_removed(tmp_path: Path) -> None:
    left = [tmp_path / f"set.h5.{n:032x}.tmp" for n in range(2)]
    other = tmp_path / "other.h5.1.tmp"
    for path in (*left, other):
        path.write_bytes(b"half a file")
    with replacing(tmp_path / "set.h5") as mine:
        for path in (left[0], other, mine):
            os.utime(path, (0, path.stat().st_mtime - 2 * ABANDONED_S))
        with replacing(tmp_path / "set.h5") as another:
            another.write_bytes(b"another")
        mine.write_bytes(b"mine")
    assert (tmp_path / "set.h5").read_bytes() == b"mine"
    assert sorted(tmp_path.iterdir()) == [other, tmp_path / "set.h5", left[1]]


def test_a_user_without_a_home_has_a_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a user who is not in /etc/passwd."""

    def unknown(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("MINI_DNN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", unknown)
    monkeypatch.chdir(folder)
    assert cache.cache_dir() == folder / "tmp" / f"mini_dnn-{os.getuid()}"
    assert not (folder / "~").exists()
