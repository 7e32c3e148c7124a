"""Folders to take home with a program for PyTorch. Only one of these tests needs PyTorch."""

import ast
import py_compile
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from take_home_helpers import ORIGIN, small
from test_standalone_program import needs_nvcc

from mini_dnn import ops
from mini_dnn.checking.launches import shared_limit
from mini_dnn.cli import main
from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.errors import UsageError
from mini_dnn.variant import find, names
from mini_dnn.variant.answers import exercise
from mini_dnn.variant.standalone import standalone

Output = pytest.CaptureFixture[str]
TAKEN = (
    "m1/direct",
    "m3/constant_memory",
    "layers/custom",
    "gemm/v6_wgmma",
    "gemm/v8_final",
    "attention/v9_final",
)
NAMES = [name for name in TAKEN if name in names()]
STAND_INS = {  # the parts of PyTorch's headers that the extension uses
    "torch/types.h": """#include <cstddef>
#include <cstdint>
namespace torch {
struct Tensor {
  void* data_ptr() const;
  std::size_t nbytes() const;
  Tensor operator[](std::int64_t) const;
};
}  // namespace torch
""",
    "c10/cuda/CUDAStream.h": """#include <cuda_runtime.h>
namespace c10::cuda {
struct CUDAStream {
  operator cudaStream_t() const;
};
CUDAStream getCurrentCUDAStream(signed char = -1);
}  // namespace c10::cuda
""",
}


def written(name: str, folder: Path, text: str = "") -> Path:
    """Write the folder."""
    variant = find(name)
    problem = variant.operation.parse(text) if text else small(variant)
    for file, content in standalone(variant, problem, ORIGIN, 90, shared_limit(90), "torch").items():
        (folder / file).write_bytes(content)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_it_is_python_and_launches_all(name: str, tmp_path: Path) -> None:
    folder = written(name, tmp_path)
    for file in folder.glob("*.py"):
        py_compile.compile(str(file), doraise=True)
    variant = find(name)
    planned = variant.planned(small(variant), shared_limit(90))
    program, steps = (folder / "main.py").read_text(), (folder / "steps.cu").read_text()
    once, each = steps.split("void run(")
    used = {node.id for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Name)}
    assert {f"d_{array}" for array in planned.arrays} <= used
    assert {"agrees", "time", "module"} <= used
    for launch in planned.launches:
        assert launch.kernel in each
        if launch.shared_bytes > 48 * 1024:
            assert f"cudaFuncAttributeMaxDynamicSharedMemorySize, {launch.shared_bytes})" in once
    assert "compute_90a,code=sm_90a" in program
    for file in (line.split('"')[1] for line in steps.splitlines() if line.startswith("#include")):
        assert (folder / file).is_file()


@needs_nvcc
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["gemm/v6_wgmma"])
def test_nvcc_compiles_the_extension(name: str, tmp_path: Path) -> None:
    folder = written(name, tmp_path)
    for file, text in STAND_INS.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    program = ast.parse((folder / "main.py").read_text())
    (flags,) = (
        ast.literal_eval(keyword.value)
        for call in ast.walk(program)
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg == "extra_cuda_cflags"
    )
    command = [str(find_nvcc()), "-std=c++17", *flags, "-I.", "-c", "steps.cu", "-o", "steps.o"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_checks_itself(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = written(name, tmp_path)
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "elements compared with float64, 0 wrong; 0 are NaN" in done.stdout
    assert "elements compared with PyTorch in float64, max error" in done.stdout
    assert "TFLOP/s" in done.stdout
    for file in folder.glob("expected-*.bin"):
        answers = np.fromfile(file, exercise.__globals__["ANSWER"])
        answers["expected"] += 100
        answers.tofile(file)
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1


@pytest.mark.parametrize("name", ["conv2d", "conv2d_relu_pool", "gemm", "attention"])
def test_expressions_of_pytorch_name_the_arrays(name: str) -> None:
    operation = ops.find(name)
    for problem in operation.check:
        text = operation.pytorch(problem)
        gaps = any(array.gap for array in problem.arrays.values())
        assert bool(text) != gaps
        used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        assert not text or set(problem.named("in", "weight")) == used - {"F", "torch", "i", "range"}


def test_what_pytorch_cannot_do_is_refused() -> None:
    variant = find("m3/streams")
    with pytest.raises(
        UsageError, match="m3/streams overlaps copies with kernels, which --as torch does not"
    ):
        standalone(variant, small(variant), ORIGIN, 90, shared_limit(90), "torch")


def test_on_the_command_line(tmp_path: Path, capsys: Output) -> None:
    words = ["show", "m1", "--expand", "--shapes", "2,1,6,5,3,3,2", "--as", "torch"]
    assert main([*words, "--standalone", str(tmp_path / "home")]) == 0
    assert f"next: cd {tmp_path / 'home'} && python main.py" in capsys.readouterr().out
    assert "F.conv2d(x, w)" in (tmp_path / "home/main.py").read_text()
