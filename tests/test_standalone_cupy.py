"""Folders to take home with a Python program. A stand-in for CuPy launches on the emulator."""

import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from lent_arrays import CupyArray, fresh
from take_home_helpers import ORIGIN, small

from mini_dnn.checking.launches import shared_limit
from mini_dnn.cli import main
from mini_dnn.device import Device
from mini_dnn.device.base import LaunchConfig
from mini_dnn.device.emulator.memory import EmulatorBuffer
from mini_dnn.errors import UsageError
from mini_dnn.variant import find, names
from mini_dnn.variant.answers import ANSWER, uniform
from mini_dnn.variant.standalone import standalone

Output = pytest.CaptureFixture[str]
NAMES = [name for name in ("m3/constant_memory", "m2/unroll_gemm", "m3/stack_2") if name in names()]


class Array(CupyArray):
    """An array with the additional attributes that a program uses."""

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def __getitem__(self, entries: slice) -> "Array":
        return Array(self.values[entries])


def asarray(values: np.ndarray) -> Array:
    held = fresh(values.shape, values.dtype)
    held[...] = values
    return Array(held)


def buffer(array: Array) -> EmulatorBuffer:
    return EmulatorBuffer("array", array.shape, array.dtype, array.nbytes, array.data.ptr)


def stand_in(emulator: Any) -> ModuleType:
    """The part of CuPy that a program uses."""

    def raw_module(path: str) -> Any:
        loaded = emulator.compile(Path(path).with_name("kernel.cu"), {})

        def get_function(name: str) -> Any:
            def launch(grid: Any, block: Any, args: Any, shared_mem: int) -> None:
                given = [buffer(arg) if isinstance(arg, Array) else arg for arg in args]
                emulator.launch(loaded, name, LaunchConfig(grid, block, shared_mem), given)

            return launch

        def get_global(name: str) -> Any:
            def copy(source: Any, nbytes: int) -> None:
                held = EmulatorBuffer("source", (nbytes,), np.dtype("u1"), nbytes, source.ptr)
                emulator.copy(emulator.symbol(loaded, name), held)

            return SimpleNamespace(copy_from_device_async=copy)

        return SimpleNamespace(get_function=get_function, get_global=get_global)

    cupy = ModuleType("cupy")
    cupy.__dict__.update(
        RawModule=raw_module, asarray=asarray, asnumpy=lambda array: array.values, ndarray=Array
    )
    return cupy


def benchmark(steps: Any, n_repeat: int, n_warmup: int) -> Any:
    steps()
    return SimpleNamespace(gpu_times=np.full((1, n_repeat), 1e-3))


@pytest.fixture
def cupy(quick_emulator: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvcc").write_text('#!/bin/sh\n[ "$3" = -arch=sm_90a ] && cp kernel.cu kernel.cubin\n')
    (tools / "nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    profiler = ModuleType("cupyx.profiler")
    profiler.__dict__["benchmark"] = benchmark
    monkeypatch.setitem(sys.modules, "cupy", stand_in(quick_emulator))
    monkeypatch.setitem(sys.modules, "cupyx", ModuleType("cupyx"))
    monkeypatch.setitem(sys.modules, "cupyx.profiler", profiler)


def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the program and return its exit status."""
    with monkeypatch.context() as patch:
        patch.syspath_prepend(folder)
        for name in ("harness", "values"):
            patch.delitem(sys.modules, name, raising=False)
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(folder / "main.py"))
        for name in ("harness", "values"):
            sys.modules.pop(name, None)
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_checks_itself(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    variant = find(name)
    folder = tmp_path / "home"
    folder.mkdir()
    for file, content in standalone(variant, small(variant), ORIGIN, 90, shared_limit(90), "cupy").items():
        (folder / file).write_bytes(content)
    assert run(folder, monkeypatch) == 0
    out = capsys.readouterr().out
    assert "elements compared with float64, 0 wrong; 0 are NaN" in out
    assert "1.000 ms" in out
    expected = np.fromfile(folder / "expected-y.bin", ANSWER)
    expected["expected"] += 1
    expected.tofile(folder / "expected-y.bin")
    assert run(folder, monkeypatch) == 1
    assert f"{len(expected):,} wrong" in capsys.readouterr().out
    expected[:0].tofile(folder / "expected-y.bin")  # nothing was compared
    assert run(folder, monkeypatch) == 1


@pytest.mark.usefixtures("cupy")
def test_the_same_values_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(standalone.__code__.co_filename).parent / "take_home"
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "values", raising=False)
    harness = runpy.run_path(str(folder / "harness.py"))
    monkeypatch.setattr("values.PART", 7)
    found = harness["draw"](3, (4, 5), "float32", -2.0, 3.0).values
    assert (found == (uniform(3, np.arange(20)) * 5.0 - 2.0).astype(np.float32).reshape(4, 5)).all()
    assert np.isnan(harness["fresh"]((2, 3), "float16").values).all()


@pytest.mark.parametrize(
    ("name", "why"),
    [("m3/streams", "overlaps copies with kernels"), ("gemm/v6_wgmma", "copies by tensor maps")],
)
def test_what_cupy_cannot_do_is_refused(name: str, why: str) -> None:
    variant = find(name)
    with pytest.raises(UsageError, match=f"{name} {why}, which --as cupy does not support; use --as c"):
        standalone(variant, small(variant), ORIGIN, 90, shared_limit(90), "cupy")


def test_on_the_command_line(tmp_path: Path, capsys: Output) -> None:
    words = ["show", "m1", "--expand", "--shapes", "2,1,6,5,3,3,2"]
    assert main([*words, "--standalone", str(tmp_path / "home"), "--as", "cupy"]) == 0
    assert "python main.py" in capsys.readouterr().out
    assert "main.cu" not in {path.name for path in (tmp_path / "home").iterdir()}
    assert main([*words, "--as", "cupy"]) == 2
    assert "--as needs --standalone" in capsys.readouterr().err
