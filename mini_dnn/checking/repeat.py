"""Runs of a plan on the same memory and with the same compiled library, as in most programs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mini_dnn.checking.judge import Example
from mini_dnn.checking.streams import explain_clash, explain_order
from mini_dnn.device.base import Device
from mini_dnn.device.emulator.checked import KernelError
from mini_dnn.device.emulator.checked_streams import StreamClash, StreamEmulator
from mini_dnn.device.finding import Finding, Party
from mini_dnn.errors import LaunchError
from mini_dnn.ops import Arrays, Operation
from mini_dnn.running.execute import Execution, compile_others
from mini_dnn.running.parts import empty_outputs
from mini_dnn.variant import Launch, Planned

MISMATCH = "compare the launch in variant.py with the kernel's parameters and with CUDA's limits"
STATE = (
    "reset the state that a run changes before the next run begins: let the last block, or a launch of the "
    "plan, clear it (count = 0); a plan is run many times on the same memory"
)
AT_ONCE = "found in a run directly after the previous one, without copies in between, as in a measurement"
ORDINALS = ("", "second", "third", "fourth")


class Repeated:
    """A plan on a device, whose buffers and variables keep their content between runs.

    Parameters
    ----------
    arrays
        The weights, and the inputs that are present before the plan's set-up.
    """

    def __init__(self, planned: Planned, device: Device, arrays: Arrays) -> None:
        self._planned, self._device = planned, device
        module = device.compile(planned.source, planned.defines)
        self._execution = Execution(planned, module, device, others=compile_others(planned, device))
        try:
            self._execution.fill()
            for name, array in planned.problem.named("in", "weight").items():
                if array.role == "weight" or not self._copied_by_plan(name):
                    device.copy_in(self._execution.buffers[name], arrays[name])
            self._execution.set_up()
        except BaseException:
            self.close()
            raise

    def run(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """Run once more, with new inputs, and return the outputs."""
        planned, device, buffers = self._planned, self._device, self._execution.buffers
        for name in planned.problem.named("in"):
            if not self._copied_by_plan(name):
                device.copy_in(buffers[name], arrays[name])
        outputs = empty_outputs(planned.problem)
        for name in outputs:
            device.fill(buffers[name])
        device.synchronize()
        if not planned.copies_itself:
            self._execution.kernels()
            for name, out in outputs.items():
                device.copy_out(buffers[name], out)
            device.synchronize()
            return outputs
        split = {name: array for name, array in planned.problem.named("in", "out").items() if array.split}
        host = {name: device.pinned(array.shape, array.dtype) for name, array in split.items()}
        for name, array in split.items():
            host[name][...] = arrays[name] if array.role == "in" else _unwritten(array.shape, array.dtype)
        self._execution.everything(host)
        device.synchronize()
        return {name: host.get(name, outputs[name]) for name in outputs}

    def run_twice_at_once(self) -> None:
        """Run twice without copies in between, as in a measurement, if the plan begins with an early launch.

        In the second run, this launch may begin before the first run has ended.
        """
        first = self._planned.steps[0]
        if isinstance(first, Launch) and first.early and not self._planned.copies_itself:
            self._execution.kernels()
            self._execution.kernels()

    def close(self) -> None:
        """Free the buffers."""
        self._execution.free()

    def _copied_by_plan(self, name: str) -> bool:
        return self._planned.copies_itself and self._planned.arrays[name].split


class Examples:
    """The inputs of a plan's runs. They are the same in each order of blocks and threads, and drawn once.

    Parameters
    ----------
    first
        The arrays of the first run. Later runs have the same weights, and new inputs.
    seed
        The seed of these inputs.
    """

    def __init__(self, operation: Operation, planned: Planned, first: Arrays, seed: int) -> None:
        self._operation, self._planned, self._first, self._seed = operation, planned, first, seed
        self._made: list[Example] = []

    def of(self, runs: int) -> list[Example]:
        """Return the inputs of this many consecutive runs."""
        while len(self._made) < runs:
            self._made.append(self._next())
        return self._made[:runs]

    def _next(self) -> Example:
        planned, arrays = self._planned, self._first
        if self._made:
            other = self._operation.inputs(planned.problem, self._seed + len(self._made))
            arrays = {**arrays, **{name: other[name] for name in planned.problem.named("in")}}
        return Example(self._operation, planned.problem, arrays, planned.precision)


@dataclass(frozen=True)
class Runs:
    """Consecutive runs of one plan, and their findings."""

    planned: Planned
    device: StreamEmulator

    def check(self, given: list[Example]) -> Finding | None:
        """The first finding in runs on the same memory, each with new inputs."""
        try:
            finding, run = self._found(given)
            if finding is None or run == 0:
                return finding
            if run == len(given):
                return replace(finding, notes=(*finding.notes, AT_ONCE))
            alone, _ = self._found([given[run]])
            return alone or self._of_state(finding, given[: run + 1])
        finally:
            self.device.follow_streams(False)

    def _found(self, given: list[Example]) -> tuple[Finding | None, int]:
        """The first finding, and the number of its run, from 0; without one, the number of runs."""
        finding: Finding | None = None
        clean = 0

        def runs() -> None:
            nonlocal finding, clean
            with closing(self._repeated(given)) as repeated:
                for example in given:
                    finding = example.judge(repeated.run(example.arrays))
                    if finding:
                        finding = explain_order(finding, self.planned, self.device)
                        return
                    clean += 1
                if len(given) > 2:
                    repeated.run_twice_at_once()

        return caught(runs, self.planned, self.device) or finding, clean

    def _repeated(self, given: list[Example]) -> Repeated:
        self.device.follow_streams(self.planned.streams > 1 or self.planned.copies_itself)
        return Repeated(self.planned, self.device, given[0].arrays)

    def _of_state(self, finding: Finding, given: list[Example]) -> Finding:
        """A finding that appears only in a later run, with the line that reads data of an earlier run."""
        left = self._left(given)
        finding = _of_run(finding, len(given) - 1)
        notes = finding.notes
        if left and left.own:
            notes = (*notes, f"{left.array} holds data that the previous run left there")
            own: Party | None = finding.own or left.own
            array = finding.array if finding.own else left.array
            finding = replace(finding, own=own, array=array, kernel=finding.kernel or left.kernel)
        return replace(finding, notes=notes)

    def _left(self, given: list[Example]) -> Finding | None:
        """The first read, in the last run, of data that launches of earlier runs have written."""

        def runs() -> None:
            with closing(self._repeated(given)) as repeated:
                set_up_at = self.device.now()
                for example in given[:-1]:
                    repeated.run(example.arrays)
                self.device.forget_since(set_up_at)
                repeated.run(given[-1].arrays)

        finding = caught(runs, self.planned, self.device)
        return finding if finding and finding.kind == "uninitialised" else None


def wrong_again(planned: Planned, device: Device, given: list[Example]) -> Finding | None:
    """The finding about a wrong result of a later run on the memory of a first run that is right.

    This works on any device, but names no line.

    Parameters
    ----------
    given
        The inputs of each run, including the first.

    Raises
    ------
    DeviceError
        A launch fails.
    """
    finding, run = _wrong(planned, device, given)
    if finding is None or run == 0:
        return None
    alone, _ = _wrong(planned, device, [given[run]])
    return alone or _of_run(finding, run)


def _wrong(planned: Planned, device: Device, given: list[Example]) -> tuple[Finding | None, int]:
    """The first wrong results in runs on the same memory, and the number of the run."""
    with closing(Repeated(planned, device, given[0].arrays)) as repeated:
        for run, example in enumerate(given):
            if finding := example.judge(repeated.run(example.arrays)):
                return finding, run
    return None, 0


def _of_run(finding: Finding, run: int) -> Finding:
    what = f"the first run is right, and the {ORDINALS[run]} one on the same memory is not: {finding.what}"
    return replace(finding, what=what, cure=STATE)


def caught(runs: Callable[[], Any], planned: Planned, device: StreamEmulator) -> Finding | None:
    """The error that ended the runs, if any."""
    try:
        runs()
    except KernelError as error:
        return explain_order(error.finding, planned, device)
    except StreamClash as error:
        assert device.order is not None, "it was followed"
        return explain_clash(planned, error.clash, error.array, device.order)
    except LaunchError as error:
        return Finding("launch", str(error), cure=MISMATCH)
    return None


def _unwritten(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array in host memory to which nothing was copied: full of bytes 0xFF, like new buffers."""
    array = np.empty(shape, dtype)
    array.view(np.uint8)[...] = 0xFF
    return array
