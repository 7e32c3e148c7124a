"""Every variant of every operation is compared with float64 at the problems of the operation.

New operations, variants and problems are found automatically.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest
from convolutions import runnable

from mini_dnn import ops
from mini_dnn.device import Device
from mini_dnn.device.nvcc import build_cubin, nvcc_arch
from mini_dnn.errors import DeviceError
from mini_dnn.ops import Arrays
from mini_dnn.ops.compare import PRECISIONS, Comparison, compare_all
from mini_dnn.running.runner import Result, run
from mini_dnn.running.verify import verify
from mini_dnn.variant import Variant, find, mine, names

IN_PARTS = 7  # entries of a batch that is divided; 3 are computed at a time


def problems(op: str) -> list[Any]:
    """All small problems, each once.

    No tile divides the first ones, and the others are the ordinary problems.
    """
    operation = ops.find(op)
    return list(dict.fromkeys([*operation.check, *operation.spare]))


def cases() -> list[Any]:
    """All problems of all variants."""
    return [
        pytest.param(name, problem, id=f"{op}/{name}/{problem.text}")
        for op in ops.names()
        for name in (*names(op), *mine(op))
        for problem in problems(op)
        if not find(name).limit_for(problem)
    ]


@cache
def given(op: str, problem: Any) -> Arrays:
    arrays = ops.find(op).inputs(problem, seed=0)
    for array in arrays.values():
        array.flags.writeable = False  # writing to an input raises an error
    return arrays


@cache
def answer(op: str, problem: Any) -> Arrays:
    return ops.find(op).answer(problem, given(op, problem))


@cache
def bound(op: str, problem: Any, precision: str) -> Arrays:
    return ops.find(op).bound(problem, given(op, problem), precision)


def compared(variant: Variant, problem: Any, outputs: Arrays) -> Comparison:
    expected = answer(variant.op, problem)
    return compare_all(outputs, expected, bound(variant.op, problem, variant.precision))


def solve(variant: Variant, problem: Any, device: Device) -> Result:
    """Return the result; skip the test with a reason if this device cannot run the variant."""
    runnable(variant.name, device)
    return run(variant, problem, given(variant.op, problem), device)


@pytest.fixture(scope="module")
def cuda(cuda: Device) -> Device:
    """A GPU for which all kernels have been compiled, with one compiler per core."""
    variants = [find(name) for name in names()]
    kinds = {
        (variant.source, tuple(variant.planned(problem, device_bytes).defines.items()))
        for variant in variants
        if variant.plan and variant.min_arch <= cuda.arch
        for problem in problems(variant.op)
        if not variant.limit_for(problem)
        for device_bytes in [cuda.max_shared_bytes]
    }

    def build(kind: Any) -> None:
        source, defines = kind
        with suppress(DeviceError):  # the test that needs the kernel reports this
            build_cubin(source, dict(defines), nvcc_arch(cuda.arch))

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(build, kinds))
    return cuda


@pytest.mark.sampled_by("name")
@pytest.mark.parametrize(("name", "problem"), cases())
def test_every_variant_agrees_with_float64(name: str, problem: Any, device: Device) -> None:
    variant = find(name)
    result = compared(variant, problem, solve(variant, problem, device).outputs)
    assert result.ok, str(result)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", names())
def test_a_batch_that_does_not_fit_is_cut(name: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    variant = find(name)
    taken = [p for p in problems(variant.op) if not variant.limit_for(p)]
    assert taken, f"{name} takes no problem at all"
    problem = min(taken, key=lambda p: p.min_bytes).with_batch(IN_PARTS)
    if variant.plan:
        room = variant.planned(problem.with_batch(3), device.max_shared_bytes).nbytes
        monkeypatch.setattr(device, "free_bytes", lambda: room)
    result = solve(variant, problem, device)
    assert result.steps == (3 if variant.plan else 1)
    comparison = compared(variant, problem, result.outputs)
    assert comparison.ok, str(comparison)


@pytest.mark.parametrize("op", ops.names())
def test_a_small_error_is_found(op: str) -> None:
    """An error is found in each output of each problem. Otherwise the tests above would show nothing."""
    for problem in problems(op):
        right, allowed = answer(op, problem), bound(op, problem, "fp32")
        assert compare_all(right, right, allowed).ok
        for name, array in problem.named("out").items():
            wrong = dict(right)
            wrong[name] = right[name].copy()
            last = tuple(side - 1 for side in array.without_gap(right[name]).shape)
            wrong[name][last] += (1e-2 * np.nanmax(np.abs(right[name])) or 1.0) + allowed[name][last]
            found = compare_all(wrong, right, allowed)
            assert (found.ok, found.differing, found.array) == (False, 1, name)
            assert found.first == last


@pytest.mark.parametrize("op", ops.names())
def test_every_precision_has_a_bound(op: str) -> None:
    """There is a bound for each element, and the bound of a less exact precision is larger."""
    for problem in problems(op):
        outputs = problem.named("out")
        last = {name: np.zeros(array.shape) for name, array in outputs.items()}
        for precision in PRECISIONS:
            found = bound(op, problem, precision)
            assert {name: limit.shape for name, limit in found.items()} == {
                name: array.shape for name, array in outputs.items()
            }
            assert all(
                np.isfinite(limit).all() and (limit >= last[name]).all() for name, limit in found.items()
            )
            last = found
        arrays, expected = given(op, problem), answer(op, problem)
        assert verify(ops.find(op), problem, arrays, expected, "tf32").ok
