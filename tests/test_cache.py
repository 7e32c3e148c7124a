"""Files of the cache are whole, or are made anew."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mini_dnn.device.cache import store, stored
from mini_dnn.device.emulator import runtime_build
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.emulator.runtime_build import build_runtime


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
    def convolve() -> None:  # in a process of its own, as a process has one cache
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
