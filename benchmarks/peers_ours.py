"""Our own kernels: convolutions, convolutions with ReLU and pool, and whole networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from peers_common import Case, Prepared
from peers_problems import Problem

from mini_dnn.device.base import Device
from mini_dnn.device.code_hash import code_hash
from mini_dnn.device.sources import source_hash
from mini_dnn.errors import UsageError, VariantError
from mini_dnn.running.execute import Execution
from mini_dnn.running.runner import check_runnable, fitting
from mini_dnn.variant import Variant, find, network_names

OPS = {"conv": "conv2d", "fused": "conv2d_relu_pool", "network": "lenet"}  # by what `Case.what` begins with


def variants(names: Sequence[str]) -> list[Variant]:
    """The variants of these names, and all of the whole network.

    Raises
    ------
    UsageError
        One of them runs on the host.
    VariantError
        There is none of that name.
    """
    found = [find(name) for name in [*names, *network_names()]]
    for variant in found:
        if variant.host is not None:
            raise UsageError(f"--impl {variant.name} runs on the CPU; this run compares what runs on one GPU")
    return [variant for variant in found if variant.op in OPS.values()]


def cases(chosen: Sequence[Variant], problems: Sequence[Problem], device: Device) -> Iterator[Case]:
    """A case for each problem and each variant that solves it."""
    for problem in problems:
        op = OPS[problem.what.rstrip("12")]
        for variant in chosen:
            if variant.op == op:
                yield _case(variant, problem, device)


def _case(variant: Variant, problem: Problem, device: Device) -> Case:
    precision = "fp16" if variant.precision == "fp16_sum" else variant.precision
    return Case(
        kind="ours",
        peer=variant.name,
        what=problem.what,
        precision=precision,
        order="NCHW",
        setting=variant.idea,
        bytes=problem.shape.min_bytes,
        prepare=lambda: _prepared(variant, problem, device),
        check=lambda found: problem.check(found, precision),
        facts={
            "batch": problem.shape.N,
            "variant": variant.name,
            "source_hash": source_hash(variant.source),
            "code_hash": code_hash(variant.source),
        },
    )


@contextmanager
def _prepared(variant: Variant, problem: Problem, device: Device) -> Iterator[Prepared]:
    check_runnable(variant, device)
    shape = problem.shape
    if limit := variant.limit_for(shape):
        raise VariantError(f"{variant.name} does not take {shape}: {limit}")
    variant = fitting(variant, shape, device.max_shared_bytes)
    module = device.compile(variant.source, variant.defines_for(shape))
    execution = Execution(variant, shape, module, device)
    output = execution.buffers[problem.output]

    def result() -> np.ndarray:
        found = np.empty((len(problem.compared), *output.shape[1:]), np.float32)
        for at, image in enumerate(problem.compared):
            device.copy_out(device.part(output, int(image), int(image) + 1), found[at : at + 1])
        return found

    try:
        execution.fill()
        for name, value in problem.inputs.items():
            device.copy_in(execution.buffers[name], value)
        execution.set_up()
        device.synchronize()
        yield Prepared(execution.kernels, result)
    finally:
        execution.free()
