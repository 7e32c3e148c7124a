"""Rubrics: wrong keys are named, and tests must be able to tell wrong kernels apart."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from grading_helpers import QUICK

from mini_dnn import ops
from mini_dnn.errors import UsageError
from mini_dnn.grading import rubric
from mini_dnn.grading.asked import Performance
from mini_dnn.grading.rubric import load
from mini_dnn.ops import conv2d
from mini_dnn.ops.conv2d import LAYERS, ConvShape, conv2d_float64
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.paths import ROOT
from mini_dnn.running.verify import verify
from mini_dnn.variant import names


def rubric_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rubric.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", rubric.presets())
def test_presets(name: str) -> None:
    found = load(name)
    assert found.name == name
    assert found.hidden is not None
    assert found.op == "conv2d"
    assert {variant.name for variant in found.variants} <= set(names("conv2d"))
    if found.performance:
        assert found.performance.problems == LAYERS, "both layers, at batch 10,000"
        assert found.performance.batch == 10_000


def test_a_rubric_is_read(tmp_path: Path) -> None:
    found = load(rubric_file(tmp_path, QUICK))
    assert found.correct.problems == (ConvShape(2, 2, 9, 21, 3, 2, 5),)
    assert found.correct.seeds == (1,)
    assert (found.limits.seconds, found.limits.compile_seconds) == (300.0, 180.0)
    assert found.single == found.ranking == "layers/custom"
    assert found.variant("layers/custom").points == {"correct": 4.0, "hidden": 3.0}


def test_the_example_of_the_course_page(tmp_path: Path) -> None:
    (text,) = re.findall(
        r"^```toml\n(.*?)^```$", (ROOT / "docs/rubrics.md").read_text(), re.DOTALL | re.MULTILINE
    )
    found = load(rubric_file(tmp_path, text))
    assert found.op == "softmax"
    assert found.performance is not None
    assert found.performance.problems == {"tokens": ops.find("softmax").course["tokens"]}


NETWORK = """
name = "a network"
op = "lenet"

[correct]
shapes = [[2], [3, true, 28]]

[performance]
at = ["uint8-28", "float32"]
full = 1.0
none = 2.0

[[variant]]
name = "networks/lenet/mine"
precision = "tf32"
points = { correct = 4, performance = 3 }
"""


def test_a_rubric_of_another_operation(tmp_path: Path) -> None:
    found = load(rubric_file(tmp_path, NETWORK))
    assert found.operation is ops.find("lenet")
    assert found.correct.problems == (LenetBatch(2), LenetBatch(3, True, 28))
    assert found.variant("networks/lenet/mine").precision == "tf32"
    assert found.performance is not None
    timed = {"uint8-28": LenetBatch(10_000, True, 28), "float32": LenetBatch(10_000)}
    assert found.performance.problems == timed, "as many images as the problems have"
    found = load(rubric_file(tmp_path, NETWORK.replace("full = 1.0", "batch = 7\nfull = 1.0")))
    assert found.performance is not None
    assert [problem.N for problem in found.performance.problems.values()] == [7, 7]
    found = load(rubric_file(tmp_path, NETWORK.replace('at = ["uint8-28", "float32"]', "")))
    assert found.performance is not None
    assert list(found.performance.problems) == ["float32", "uint8", "uint8-28"], "all, if none is named"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"lenet"', '"lenett"', "'op' is 'lenett'; expected one of conv2d,"),
        ("[2]", "[]", "'correct.shapes' has []: found 0 values; expected 1 to 3: N,is_bytes,side"),
        ("[3, true, 28]", "[3, 1, 28]", "is_bytes is 1; expected true or false"),
        ("[3, true, 28]", "[3, true, 29]", "images have a side of 86"),
        ('"float32"]', '"float"]', "expected one or more of float32, uint8, uint8-28, in a list"),
        ('["uint8-28", "float32"]', "[]", "'performance.at' is []; expected one or more of"),
        ('["uint8-28", "float32"]', "[[1]]", "'performance.at' is [[1]]; expected one or more of"),
        ("none = 2.0", 'none = 2.0\nreference = "m1"', "m1 computes conv2d, but the rubric is for lenet"),
        (
            "none = 2.0",
            'none = 2.0\nreference = "networks/lenet/fused_pool"',
            "reference networks/lenet/fused_pool refuses that: images of side 28",
        ),
        ("[[variant]]", "[accuracy]\nbatch = 10\n[[variant]]", "[accuracy] needs a network"),
        ('"networks/lenet/mine"', '"a/b/c/d"', "or networks/NETWORK/NAME"),
    ],
)
def test_what_is_wrong_with_it_is_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        load(rubric_file(tmp_path, NETWORK.replace(old, new)))
    assert message in str(error.value)


RELATIVE_TO = "[performance]\nbatch = 1\nfull = 0.5\nnone = 1\nreference ="


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "quick"', "", "'name' is missing"),
        ('name = "quick"', "name = 3", "'name' is 3; expected a string"),
        ('name = "quick"', 'nmae = "quick"\nname = "q"', "unknown key 'nmae'; known are"),
        ("seconds = 300", "seconds = 0", "'limits.seconds' is 0; expected a number above 0"),
        ("seconds = 300", f"seconds = {'9' * 400}", "'limits.seconds' has 400 digits; expected a number"),
        ("seconds = 300", f"seconds = {'9' * 5000}", "not valid TOML: Exceeds the limit"),
        ("seconds = 300", "second = 300", "unknown key 'limits.second'"),
        ("memory_mb = 2048", "memory_mb = true", "expected an integer"),
        ("[[2, 2, 9, 21, 3, 2, 5]]", "[[2, 2, 9]]", "found 3 values; expected 7: N,C,H,W,M,R,S"),
        ("[[2, 2, 9, 21, 3, 2, 5]]", "[[2, 2, 9, 21, 3, 20, 5]]", "the filter 20 x 5 is larger"),
        ("[[2, 2, 9, 21, 3, 2, 5]]", "[[2, 2, 9, 21, 3, 2, 5.0]]", "S is 5.0; expected an integer"),
        ("[[2, 2, 9, 21, 3, 2, 5]]", "[]", "is empty; expected lists of N,C,H,W,M,R,S"),
        ("seeds = [4242]", "seeds = [-1]", "integers of 0 or more"),
        ('precision = "fp16"', 'precision = "fp8"', "expected one of fp32, tf32, fp16, fp16_sum"),
        ("correct = 4,", "corect = 4,", "unknown key 'variant.points.corect'; known are accuracy"),
        ("correct = 4,", "correct = -4,", "expected 0 or more"),
        ("correct = 4,", "correct = inf,", "expected 0 or more"),
        ("points = {", "points = 4 #", "[variant.points] must be a table"),
        ('"layers/custom"', '"../../custom"', "expected layers/custom, or a folder under milestones/"),
        ("[hidden]", f"{RELATIVE_TO} 'm2/unroll_gem'\n[hidden]", "did you mean 'm2/unroll_gemm'?"),
        ("[hidden]", f"{RELATIVE_TO} 'm1/cpu'\n[hidden]", "m1/cpu is a NumPy function; name a variant"),
        ("correct = 4,", "accuracy = 4,", "there is no table"),
        ("[[variant]]", "[variant]", "one or more tables"),
        ("[limits]", "[limits", "is not valid TOML"),
        ("[hidden]", "single = 'm1'\n[hidden]", "unknown key 'correct.single'"),
        ("[hidden]", "[hiden]", "did you mean 'hidden'?"),
        ("[correct]", "[korrect]", "expected a table [correct], and 'korrect' is there: is it misspelt?"),
        (QUICK, "", "'variant' is missing; expected one or more tables [[variant]]"),
        ("seed = 1", "seed = 1\nseeds = [2]", "has both 'seed' and 'seeds'"),
        ("[[2, 2, 9, 21, 3, 2, 5]]", "[2, 2, 9, 21, 3, 2, 5]", "'correct.shapes' has 2; expected lists"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        load(rubric_file(tmp_path, QUICK.replace(old, new)))
    assert message in str(error.value)


def test_no_such_rubric() -> None:
    with pytest.raises(UsageError, match="expected a TOML file, or one of"):
        load("fa99")


def test_points_are_linear_between_two_thresholds(tmp_path: Path) -> None:
    asked = Performance({}, batch=10000, full=60, none=100)
    assert [asked.fraction(ms) for ms in (10, 60, 70, 80, 100, 300)] == [1, 1, 0.75, 0.5, 0, 0]
    relative = Performance({}, batch=10000, full=0.25, none=1.0, reference="m2/unroll_gemm")
    assert relative.fraction(20.0, reference_ms=32.0) == pytest.approx(0.5)
    table = "[performance]\nbatch = 100\nfull = 100\nnone = 60\n"
    with pytest.raises(UsageError, match="full must be the smaller time"):
        load(rubric_file(tmp_path, QUICK + table))


@pytest.mark.parametrize("shape", load("relative").correct.problems, ids=str)
@pytest.mark.parametrize(("allowed", "lower"), [("fp32", "half"), ("fp16", "half sums")])
def test_a_lower_precision_fails(shape: ConvShape, allowed: str, lower: str) -> None:
    operation = conv2d.OPERATION
    probe = operation.probe(shape, allowed, np.random.default_rng(0))
    assert probe is not None
    problem, arrays = probe
    x, w = arrays["x"], arrays["w"]
    y = conv2d_float64(x, w)
    assert verify(operation, problem, arrays, {"y": y.astype(np.float32)}, allowed).ok
    if lower == "half":
        y = conv2d_float64(x.astype(np.float16), w.astype(np.float16))
    else:
        y = conv2d.less_exact(x, w, allowed)
    assert not verify(operation, problem, arrays, {"y": y.astype(np.float32)}, allowed).ok
