"""Where compiled kernels are kept."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from mini_dnn.device.cache import cache_dir, key
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.emulator.build import build_kernels
from mini_dnn.device.emulator.compiler import Compiler, find_compiler
from mini_dnn.device.emulator.runtime_build import INCLUDE, build_runtime, header_flags, header_folder
from mini_dnn.errors import CompileError, DeviceError
from mini_dnn.paths import write_atomically


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MINI_DNN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_order_of_the_folders(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_dir() == home / ".cache" / "mini_dnn"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "xdg"))
    assert cache_dir() == home / "xdg" / "mini_dnn"
    monkeypatch.setenv("MINI_DNN_CACHE", str(home / "own"))
    assert cache_dir() == home / "own"
    assert (home / "own").is_dir()


def test_a_home_that_cannot_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".cache").write_text("a file where the folder should be")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(home / "tmp"))
    assert cache_dir() == home / "tmp" / f"mini_dnn-{os.getuid()}"
    (home / "tmp2").write_text("")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(home / "tmp2"))
    with pytest.raises(DeviceError, match="set MINI_DNN_CACHE to a folder that you own"):
        cache_dir()


def test_a_named_folder_that_cannot_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("MINI_DNN_CACHE", str(home / "file"))
    with pytest.raises(DeviceError, match=r"MINI_DNN_CACHE is .*file"):
        cache_dir()


def test_writing(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "name.so"
    write_atomically(target, b"one")
    write_atomically(target, b"two")
    assert target.read_bytes() == b"two"
    assert list(target.parent.iterdir()) == [target]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("")
    with pytest.raises(OSError, match="taken"):
        write_atomically(tmp_path / "taken", b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_keys() -> None:
    assert key("ab", "c") != key("a", "bc")
    assert key("a", 1) == key("a", 1)
    assert key(b"a") == key("a")
    assert len(key()) == 32


def test_kernels_are_built_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One library for each distinct set of macros.

    Compile errors are reported when the kernel is requested.
    """
    source = tmp_path / "ahead" / "kernel.cu"
    source.parent.mkdir()
    source.write_text('extern "C" __global__ void give(int* y) { *y = VALUE; }\n')
    with closing(EmulatorDevice()) as device:
        monkeypatch.setenv("MINI_DNN_CACHE", str(tmp_path / "cache"))  # a cache for kernels only
        device.build(source, [{"VALUE": 1}, {"VALUE": 2}, {"VALUE": 1}, {"VALUE": "nothing"}])
        assert len(list((tmp_path / "cache" / "emulator").glob("ahead-*.so"))) == 2
        assert device.compile(source, {"VALUE": 2}).path.is_file()
        with pytest.raises(CompileError, match="nothing"):
            device.compile(source, {"VALUE": "nothing"})


@pytest.mark.parametrize("checked", [False, True])
def test_the_precompiled_header_is_taken_and_changes_nothing(
    checked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the kernels nor the compiler's messages change.

    A checkout whose runtime was built by another one makes its own header.
    """
    compiler = find_compiler()
    if not compiler.precompiles:
        pytest.skip(f"{compiler.version} does not keep headers that it has read")
    source, wrong, empty = (tmp_path / name for name in ("kernel.cu", "wrong.cu", "empty.cpp"))
    source.write_text('extern "C" __global__ void give(float* y) { *y = __shfl_sync(~0u, expf(*y), 1); }\n')
    wrong.write_text('extern "C" __global__ void give(float* y) { wmma::fill_fragment(*y, __expf("")); }\n')
    empty.write_text("#include <emulator.h>\n")
    runtime = build_runtime(compiler, ucontext=False, checked=checked)
    built, said, read = [], [], []
    for name in ("with", "without"):
        copy = tmp_path / name / runtime.name
        copy.parent.mkdir()
        shutil.copyfile(runtime, copy)
        folder = header_folder(compiler, copy, checked)
        if name == "without":
            folder.mkdir()
            (folder / "emulator.h.gch").write_bytes(b"damaged")
        flags = [*compiler.kernel_flags, *(compiler.checked_flags if checked else ())]
        flags += [*header_flags(compiler, copy, checked), f"-isystem{INCLUDE}", "-H", "-fsyntax-only"]
        read.append(f"! {folder}/emulator.h.gch" in compiler.run([*flags, str(empty)]).stderr)
        monkeypatch.setenv("MINI_DNN_CACHE", str(copy.parent))
        built.append(build_kernels(source, {}, compiler, copy, checked).read_bytes())
        with pytest.raises(CompileError) as error:
            build_kernels(wrong, {}, compiler, copy, checked)
        said.append(str(error.value))
    assert read == [True, False]
    assert checked or built[0] == built[1]  # debugging information contains the name of a temporary folder
    assert "__expf" in said[0]
    assert said[0] == said[1]


@pytest.mark.exhaustive
def test_a_header_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder counts, too, because its owner may put other headers there."""
    compiler = find_compiler()
    if not compiler.precompiles:
        pytest.skip(f"{compiler.version} does not keep headers that it has read")
    monkeypatch.setenv("MINI_DNN_CACHE", str(tmp_path / "cache"))
    runtime = build_runtime(compiler, ucontext=False)
    header = header_folder(compiler, runtime, False) / "emulator.h.gch"
    (tmp_path / "kernel.cu").write_text('extern "C" __global__ void give(float* y) { *y = VALUE; }\n')
    commands: list[str] = []
    run, stat = Compiler.run, Path.stat
    others: list[Path] = []

    def seen(self: Compiler, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        commands.extend(arguments)
        return run(self, arguments)

    def owned(path: Path, **more: bool) -> os.stat_result:
        found = list(stat(path, **more))
        return os.stat_result([*found[:4], os.getuid() + 1 if path in others else found[4], *found[5:]])

    monkeypatch.setattr(Compiler, "run", seen)
    monkeypatch.setattr(Path, "stat", owned)
    for value, other in enumerate([None, header, header.parent]):
        others[:] = [other] if other else []
        commands.clear()
        build_kernels(tmp_path / "kernel.cu", {"VALUE": value}, compiler, runtime)
        assert (f"-isystem{header.parent}" in commands) == (other is None)
        assert (f"{other} belongs to another user" in caplog.text) == (other is not None)
