"""The examples of docs/interop.md, each in its own scope, on a GPU; and the names that a program imports."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from gpu_arrays import Cupy, Torch
from test_docs import fenced

from mini_dnn import gemm, ops
from mini_dnn.interop import release
from mini_dnn.paths import ROOT

EXAMPLES = fenced(ROOT / "docs" / "interop.md", "python")


def run(example: str) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    exec(example, scope)
    return scope


@pytest.mark.whole
def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 5
    assert sum("import cupy" in example for example in EXAMPLES) == 3
    assert all(len(example.splitlines()) <= 16 for example in EXAMPLES)
    for example in EXAMPLES:
        compile(example, "docs/interop.md", "exec")


def test_all_names_include_the_operations() -> None:
    names = run("from mini_dnn import *")
    assert names["gemm"] is gemm
    assert {"open_device", "MiniDnnError", *ops.names()} <= set(names)


def test_functions_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(gemm)) is gemm
    assert copy.deepcopy(gemm) is gemm


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("which", range(5))
def test_examples(which: int) -> None:
    example = EXAMPLES[which]
    library: Any = Cupy() if "import cupy" in example else Torch()
    scope = run(example)
    library.wait()
    result = scope["y" if "conv2d" in example else "c"]
    assert isinstance(result, library.type)
    if "conv2d" in example:
        expected = library.get(library.library.nn.functional.conv2d(scope["x"], scope["w"]))
    else:
        expected = library.get(scope["a"]) @ library.get(scope["b"])
    expected = expected * (2 if "alpha=2.0" in example else 1)
    expected = np.maximum(expected, 0) if "relu" in example else expected
    assert np.allclose(library.get(result), expected, rtol=1e-2, atol=1e-1)
    release()
