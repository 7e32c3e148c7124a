"""Problems that are too large to run: some blocks run, including the last ones, in sparse memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mini_dnn.checking.judge import Example
from mini_dnn.checking.results import Result
from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.device.emulator.memory import EmulatorBuffer
from mini_dnn.device.finding import Finding
from mini_dnn.errors import MiniDnnError
from mini_dnn.ops import Arrays, Operation
from mini_dnn.running.execute import Execution
from mini_dnn.running.parts import largest_part
from mini_dnn.variant import Planned
from mini_dnn.variant.plan import Gemm

BLOCKS = 8  # of each launch
LIMIT = 3_000_000  # steps of a block
GPU_BYTES = 80 << 30  # memory of a large GPU: a batch that does not fit is split here as well
DENSE_BYTES = 16 << 20  # arrays up to this size, and one entry of the batch, get random values
TOO_MUCH = "each block does too much work to run some of them at this size"


def try_some(
    device: CheckedEmulator, part: Callable[[int], Planned], problem: Any, operation: Operation, seed: int
) -> Result:
    """Run some blocks of each launch, to find accesses out of bounds, and wrong results in the last entry.

    Inputs are zero except for the last entry of the batch. Values are compared only if there is one launch,
    because a second one would need the results of all blocks of the first.

    Parameters
    ----------
    part
        Returns the plan for this many entries of the batch.
    """
    try:
        planned = part(largest_part(part, problem, GPU_BYTES))
        if any(isinstance(step, Gemm) for step in planned.steps):
            return Result(problem, refused="it calls cuBLAS, which needs a GPU")
        with device.sample(BLOCKS, LIMIT):
            return Result(problem, _found(device, planned, operation, seed), sampled=True)
    except KernelError as error:
        if error.finding.kind in ("endless", "deadlock"):  # it may wait for blocks that do not run
            return Result(problem, refused=TOO_MUCH)
        return Result(problem, error.finding, sampled=True)
    except MiniDnnError as error:
        return Result(problem, refused=str(error))


def _found(device: CheckedEmulator, planned: Planned, operation: Operation, seed: int) -> Finding | None:
    problem = planned.problem
    module = device.compile(planned.source, planned.defines)
    device.axes = {name: array.axes for name, array in planned.arrays.items()}
    device.set_schedule(0, seed)
    execution = Execution(planned, module, device)
    try:
        buffers = {name: _own(buffer) for name, buffer in execution.buffers.items()}
        last = _fill(operation, problem, buffers, seed)
        execution.set_up()
        execution.kernels()
        if last is None or len(planned.launches) != 1:
            return None
        one = problem.with_batch(1)
        outputs = {
            name: _last_entry(buffers[name]).reshape(array.shape) for name, array in one.named("out").items()
        }
        found = Example(operation, one, last, planned.precision).judge_written(outputs)
        where = f"only the last entry of the batch of {problem.batch:,} was compared"
        return replace(found, what=f"{found.what} ({where})") if found else None
    finally:
        execution.free()


def _own(buffer: Any) -> EmulatorBuffer:
    assert isinstance(buffer, EmulatorBuffer), "the device is the emulator"
    return buffer


def _last_entry(buffer: EmulatorBuffer) -> np.ndarray:
    """Return the last entry of the first axis, in the buffer's memory."""
    return buffer.part(buffer.shape[0] - 1, buffer.shape[0]).bytes().view(buffer.dtype)


def _fill(
    operation: Operation, problem: Any, buffers: Mapping[str, EmulatorBuffer], seed: int
) -> Arrays | None:
    """Return values for the last entry of the batch and for shared arrays; None if an entry is too large."""
    one = problem.with_batch(1)
    whole, small = problem.arrays, one.arrays
    cut = all(array.split or whole[name].shape == array.shape for name, array in small.items())
    nbytes = sum(array.nbytes for array in small.values())
    if one == problem or not cut or nbytes > DENSE_BYTES:
        for name in problem.named("in", "weight"):
            if buffers[name].nbytes <= DENSE_BYTES:
                _fill_any(buffers[name], seed)
        return None
    given = operation.inputs(one, seed)
    for name, array in small.items():
        shared = whole[name].shape == array.shape
        memory = buffers[name].bytes() if shared else _last_entry(buffers[name]).view(np.uint8)
        if array.role == "out":
            memory[:] = 0xFF
        else:
            memory[:] = np.ascontiguousarray(given[name]).reshape(-1).view(np.uint8)
    return given


def _fill_any(buffer: EmulatorBuffer, seed: int) -> None:
    if buffer.dtype.kind == "f":
        values = np.random.default_rng(seed).standard_normal(buffer.shape, np.float32)
        buffer.bytes()[:] = values.astype(buffer.dtype).reshape(-1).view(np.uint8)
