"""Functions of a ``variant.py`` that fail or return something wrong: the error says where."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from convolutions import SM_90_BYTES, planned

from mini_dnn.checking.check import check
from mini_dnn.cli import main
from mini_dnn.device import Device
from mini_dnn.errors import VariantError
from mini_dnn.ops.conv2d import LAYERS, ConvShape
from mini_dnn.profiling.job import Job
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant, find
from mini_dnn.variant.export import expand

SHAPE = ConvShape(2, 1, 3, 3, 1, 1, 1)
FUNCTIONS = ("refuses", "plan", "setup", "scratch", "defines")
TEXT = """from mini_dnn.variant import Array, CopyToSymbol, Images, Launch, TensorMap, Variant

def fails(s):
    return 1 // (s.N - s.N)

GOOD = {{"plan": lambda s: [Launch("conv", (1,), (1,), ("x", "w", "y"))]}}
VARIANT = Variant(**{{"op": "conv2d", "idea": "", **GOOD, {given}}})
"""
KERNEL = 'extern "C" __global__ void conv(const float* x, const float* w, float* y) { y[0] = 1.0f; }\n'


def write(folder: Path, given: str) -> Path:
    (folder / "variant.py").write_text(TEXT.format(given=given))
    (folder / "kernel.cu").write_text(KERNEL)
    return folder


def runs(variant: Variant, device: Device) -> None:
    run(variant, SHAPE, {"x": np.ones(SHAPE.x, np.float32), "w": np.ones(SHAPE.w, np.float32)}, device)


CALLS: dict[str, Callable[[Variant, Device], object]] = {
    "run": runs,
    "check": lambda variant, device: check(variant, [SHAPE]),
    "show": lambda variant, device: expand(variant, SHAPE, "a test", SM_90_BYTES),
    "profile": lambda variant, device: Job(variant, {"one": SHAPE}, Path()).kernels(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_fails(name: str, call: str, tmp_path: Path, emulator: Device) -> None:
    variant = find(write(tmp_path, f'"{name}": fails'))
    place = re.escape(f"{name} of {tmp_path}/variant.py fails: line 4 (return 1 // (s.N - s.N)): Zero")
    with pytest.raises(VariantError, match=place):
        CALLS[call](variant, emulator)


@pytest.mark.parametrize("words", [["show", "--expand"], ["profile", "--tool", "ncu", "--impl"]])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_broken_functions_on_the_command_line(
    name: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The profiler is never started, and nobody looks for its path."""
    monkeypatch.setattr("mini_dnn.cli.profile.find_tool", lambda name: Path(name))
    monkeypatch.setattr("mini_dnn.profiling.ncu.find_tool", lambda name: Path(name))
    monkeypatch.setattr("mini_dnn.cli.profile.rehearse", lambda job, may_crash: "a GPU")
    monkeypatch.chdir(tmp_path)
    assert main([*words, str(write(tmp_path, f'"{name}": fails'))]) == 2
    out, error = capsys.readouterr()
    assert f"{tmp_path}/variant.py fails: line 4" in error
    assert "Traceback" not in out + error


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ('"refuses": lambda s: s.R != s.S', "refuses returned False; expected the limit in words"),
        ('"plan": lambda s: [Launch("conv", 5, (1,), ())]', "grid 5; it must be a tuple of integers: (256,)"),
        (
            '"plan": lambda s: [Launch("conv", (1,), (True, 0.5), ())]',
            "block (True, 0.5); it must be a tuple of integers",
        ),
        ('"plan": lambda s: [Launch("conv", (1,), (1,), 5)]', "args 5; it must be a tuple of arguments"),
        ('"plan": lambda s: [Launch(5, (1,), (1,), ())]', "kernel 5; it must be a name in quotes"),
        ('"plan": lambda s: [Launch("conv", (1,), (1,), (), 0, "a")]', "stream 'a'; it must be an integer"),
        ('"plan": lambda s: [Launch("conv", (1,), (1,), (), 0, -1)]', "stream -1; it must be an integer"),
        (
            '"plan": lambda s: [Launch("conv", (1,), (1,), (), 1.5)]',
            "shared_bytes 1.5; it must be an integer",
        ),
        (
            '"plan": lambda s: [Launch("conv", (1,), (1,), (), cluster=1.5)]',
            "cluster 1.5; it must be an integer, or a tuple of up to three",
        ),
        ('"plan": lambda s: [Launch("conv", (1,), (1,), (), cluster=(2, "1"))]', "cluster (2, '1'); it must"),
        ('"plan": lambda s: [Launch("conv", (1,), (1,), (), cluster=())]', "cluster (); it must"),
        ('"plan": lambda s: [Launch("conv", (1,), (1,), (), early=1)]', "early 1; it must be True or False"),
        (
            '"plan": lambda s: [Launch("conv", (2,), (1,), (), cluster=2)]',
            "plan launches conv with cluster=2, which needs min_arch=90 in VARIANT; found 75",
        ),
        (
            '"plan": lambda s: [Launch("conv", (1,), (1,), (TensorMap("x", (1, 4)), "w", "y"))]',
            "plan launches conv with a TensorMap, which needs min_arch=90 in VARIANT; found 75",
        ),
        (
            '"plan": lambda s: [Launch("conv", (1,), (1,), (TensorMap("x", 64),))]',
            "conv has a TensorMap with box 64; it must be integers, counted in elements: (128, 64)",
        ),
        (
            '"plan": lambda s: [Launch("conv", (1,), (1,), (TensorMap("x", (1, 4), dtype=[]),))]',
            "conv has a TensorMap with dtype []; it must be one of float16, bfloat16, float32",
        ),
        (
            '"plan": lambda s: [Launch("conv", (1,), (1,), (TensorMap(0, (1, 4)),))]',
            "conv has a TensorMap with buffer 0; it must be a name in quotes",
        ),
        ('"setup": lambda s: [CopyToSymbol("w_const", ["w"])]', "a CopyToSymbol has buffer ['w']; it must"),
        ('"setup": lambda s: [1]', "setup returns 1, which is not a step"),
        ('"scratch": lambda s: {"a": Array((2,), "float99")}', "expected names with shapes of integers"),
        ('"scratch": lambda s: {"a": (4, 0)}', "expected names with shapes of integers of 1 or more"),
        ('"scratch": lambda s: {"a": "long"}', "expected names with shapes of integers"),
        ('"scratch": lambda s: {"x": (4,)}', "scratch has a buffer 'x'; x, w, y are given"),
    ],
)
def test_a_function_that_returns_something_else(given: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(VariantError, match=re.escape(message)):
        planned(find(write(tmp_path, given)), SHAPE)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ('"op": "conv3d"', "op 'conv3d' is not one of 'conv2d', "),
        ('"op": None', "op None is not one of 'conv2d', "),
        ('"idea": 5', "idea is 5; expected a text in quotes"),
        ('"needs_gpu": True', "needs_gpu is True; expected a text in quotes"),
        ('"parent": ["m1"]', "parent is ['m1']; expected the name of a variant, or None"),
        ('"parent": ""', "parent is ''; expected the name of a variant, or None"),
        ('"precision": "fp8"', "precision 'fp8' is not one of 'fp32', 'tf32', 'fp16', 'fp16_sum'"),
    ],
)
def test_what_is_said_once(given: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(VariantError, match=re.escape(message)):
        find(write(tmp_path, given))


def test_a_limit_that_a_function_returns_only_where_there_is_one(tmp_path: Path) -> None:
    """A function may return None if there is no limit, as it does when it ends without a return."""
    variant = find(write(tmp_path, '"refuses": lambda s: "square filters only" if s.R != s.S else None'))
    assert variant.limit_for(SHAPE) == ""
    assert variant.limit_for(ConvShape(1, 1, 3, 3, 1, 2, 1)) == "square filters only"


def test_a_problem_of_another_operation() -> None:
    message = "layers/fused computes conv2d_relu_pool, whose problems are N,C,H,W,M,R,S,pool; found (10000"
    with pytest.raises(VariantError, match=re.escape(message)):
        find("layers/fused").limit_for(LAYERS["conv1"])
