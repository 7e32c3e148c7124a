"""fp32 from halves: what the kernels find out about rows of a and columns of b, and sums of uneven lines."""

from typing import Any

import numpy as np
import pytest

from mini_dnn import ops
from mini_dnn.device import Device
from mini_dnn.ops import Arrays
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.running.execute import Execution
from mini_dnn.running.runner import run
from mini_dnn.running.verify import verify
from mini_dnn.variant import find

NAMES = ("gemm/v9_fp32", "gemm/v13_split")
ALL = (*NAMES, "gemm/v18_thirds")  # the last one does not examine lines
FAR = 15  # the distance of a zero from the largest element, in powers of two
EXTREME, SPREAD = 1 << 30, 16
OPERATION = ops.find("gemm")
SPREADS = (8, 17, 21, 25, 29, 35, 66)  # a large element is about 2**spread times as large as the others
ZEROS = 200  # instead of a spread: the large elements of a meet zeros


def uneven(problem: GemmShape, spread: int) -> Arrays:
    """The largest element of each row of a meets the least one of each column of b; neither is transposed."""
    rng = np.random.default_rng(spread)
    small, least = np.float32(2.0 ** -min(spread, 66)), np.float32(0 if spread == ZEROS else 2.0**-spread)
    a = small * (1 + rng.random(problem.arrays["a"].shape, np.float32))
    b = 1 + rng.random(problem.arrays["b"].shape, np.float32)
    a[:, :, 0], b[:, 0] = 1, least
    return {"a": a, "b": b}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("k", [1, 2, 300])
@pytest.mark.parametrize("spread", [*SPREADS, ZEROS])
def test_small_elements_that_meet_large_ones(spread: int, k: int, name: str, quick_emulator: Device) -> None:
    variant, problem = find(name), GemmShape(33, 70, k, "fp32")
    arrays = uneven(problem, spread)
    outputs = run(variant, problem, arrays, quick_emulator).outputs
    found = verify(variant.operation, problem, arrays, outputs, "fp32")
    assert found.ok, found


@pytest.mark.parametrize("name", ALL)
def test_sums_of_few_small_elements(name: str, quick_emulator: Device) -> None:
    """The errors of one or two terms do not average out."""
    variant, problem = find(name), GemmShape(33, 70, 3, "fp32")
    arrays = uneven(problem, 20)
    arrays["b"][:, 0] = 0
    outputs = run(variant, problem, arrays, quick_emulator).outputs
    found = verify(variant.operation, problem, arrays, outputs, "fp32")
    assert found.ok, found


@pytest.mark.parametrize("name", ALL)
def test_errors_are_less_than_those_of_fp32_sums(name: str, quick_emulator: Device) -> None:
    """Also where low halves have few bits. The sums of fp32 are one chain of fused multiply-adds each."""
    problem, rng = GemmShape(24, 40, 2048, "fp32"), np.random.default_rng(0)
    a, b = (rng.standard_normal(problem.arrays[key].shape, np.float32) for key in "ab")
    found = run(find(name), problem, {"a": a, "b": b}, quick_emulator).y
    exact, size = a.astype(float) @ b, np.abs(a).astype(float) @ np.abs(b)
    sums = np.zeros_like(found)
    for i in range(problem.k):
        sums = (sums + a[..., i : i + 1].astype(float) * b[:, i : i + 1]).astype(np.float32)
    ours, of_sums = np.abs(found - exact) / size, np.abs(sums - exact) / size
    assert np.median(ours) < np.median(of_sums)
    assert ours.max() < of_sums.max() / 2


def doubts(name: str, problem: GemmShape, arrays: Arrays, device: Device) -> dict[str, np.ndarray]:
    """What the kernels say of the rows of a and of the columns of b."""
    planned = find(name).planned(problem, device.max_shared_bytes)
    execution = Execution(planned, device.compile(planned.source, planned.defines), device)
    found = {}
    for key, array in arrays.items():
        device.copy_in(execution.buffers[key], array)
    execution.kernels()
    for key, count in (("a", problem.m), ("b", problem.n)):
        lines = np.empty(planned.arrays[f"{key}_known"].shape, np.uint32)
        device.copy_out(execution.buffers[f"{key}_known"], lines)
        found[key] = lines[0, :count, 1].astype(np.int64)
    execution.free()
    return found


def draw(problem: GemmShape, rng: np.random.Generator, powers: int, zeros: float) -> Arrays:
    """Elements within so many powers of two, and zeros."""
    found = {}
    for key in "ab":
        shape = problem.arrays[key].shape
        values = np.exp2(-rng.integers(0, powers, shape)) * rng.uniform(1, 2, shape)
        values *= rng.choice([-1, 1], shape)
        found[key] = np.where(rng.random(shape) < zeros, 0, values).astype(np.float32)
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("powers", "zeros"), [(5, 0.0), (40, 0.0), (12, 0.3)])
@pytest.mark.parametrize(
    ("m", "n", "k", "layout"),
    [(9, 10, 33, "nn"), (9, 10, 1100, "tt"), (3, 2, 4166, "nn"), (3, 2, 8300, "nt"), (2, 3, 8300, "tn")],
)
def test_mean_distances(
    name: str, powers: int, zeros: float, m: int, n: int, k: int, layout: Any, quick_emulator: Device
) -> None:
    problem = GemmShape(m, n, k, "fp32", layout=layout)
    arrays = draw(problem, np.random.default_rng(k), powers, zeros)
    found = doubts(name, problem, arrays, quick_emulator)
    for key, across in (("a", layout[0] == "t"), ("b", layout[1] == "n")):
        lines = arrays[key][0].T if across else arrays[key][0]
        exponents = np.frexp(lines)[1]
        top = np.where(lines == 0, -1000, exponents).max(axis=1, keepdims=True)
        distance = top - exponents
        least, most = (2 * np.where(lines == 0, far, distance).sum(axis=1) for far in (FAR, 140))
        assert (found[key] >= least).all(), "zeros would count as nearer than they are"
        assert (found[key] <= most + 1).all()
        assert (found[key] % 2 == (np.where(lines == 0, 0, distance).max(axis=1) > SPREAD)).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_sums_of_normal_elements_are_not_examined(name: str, layout: Any, quick_emulator: Device) -> None:
    """Not even if negative elements of an operand are replaced by zeros."""
    problem = GemmShape(5, 6, 2000, "fp32", layout=layout)
    arrays = dict(OPERATION.inputs(problem, 0))
    arrays["a"] = np.maximum(arrays["a"], 0)
    found = doubts(name, problem, arrays, quick_emulator)
    assert found["a"].max() + found["b"].max() < 2 * FAR * problem.k


@pytest.mark.parametrize("name", NAMES)
def test_lines_beyond_the_range_of_factors(name: str, quick_emulator: Device) -> None:
    problem = GemmShape(5, 7, 40, "fp32")
    arrays = draw(problem, np.random.default_rng(0), 5, 0.0)
    a, b = arrays["a"][0], arrays["b"][0]
    a[0], a[1, 3], a[2] = a[0] * np.float32(1e-36), np.inf, 0
    b[:, 0], b[2, 1] = b[:, 0] * np.float32(1e16), np.nan
    found = doubts(name, problem, arrays, quick_emulator)
    assert (found["a"] >= EXTREME).tolist() == [True, True, False, False, False]
    assert (found["b"] >= EXTREME).tolist() == [True, True, *[False] * 5]
    assert found["a"][2] == 0
