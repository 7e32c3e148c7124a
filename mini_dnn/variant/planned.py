"""The plan of a variant for one problem."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.device.base import GRID_LIMIT
from mini_dnn.device.sources import read_source, source_files
from mini_dnn.errors import VariantError
from mini_dnn.ops import Array
from mini_dnn.variant.plan import Code, CopyIn, CopyOut, Launch, Step, TensorMap, WrittenStep

HOPPER = 90  # compute capability times ten; its architecture sm_90a has instructions that no other GPU has
HOPPER_ALONE = re.compile(r"\bptx::(wgmma|setmaxnreg)_")


@dataclass(frozen=True)
class Planned:
    """Everything to compile, allocate and launch for one problem; created by `Variant.planned`.

    Parameters
    ----------
    name
        The name of the variant.
    problem
        The problem that it solves.
    steps, setup
        Steps of each call, and steps that run once before the first call.
    scratch
        Additional buffers.
    defines
        Preprocessor definitions.
    source
        The kernel file.
    precision, min_arch, needs_gpu
        See `Variant`.
    views
        Further names of buffers, with the shapes for these names.
    """

    name: str
    problem: Any
    steps: tuple[Step, ...]
    setup: tuple[Step, ...]
    scratch: Mapping[str, Array]
    defines: Mapping[str, int]
    source: Path
    precision: str = "fp32"
    min_arch: int = 75
    needs_gpu: str = ""
    views: Mapping[str, tuple[str, Array]] = field(default_factory=dict)

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """All arrays to allocate: those of the problem, then scratch buffers."""
        return {**self.problem.arrays, **self.scratch}

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def scratch_bytes(self) -> int:
        """The bytes of the scratch buffers only."""
        return sum(array.nbytes for array in self.scratch.values())

    @property
    def launches(self) -> list[Launch]:
        """Launches of every call."""
        return [step for step in (*self.setup, *self.steps) if isinstance(step, Launch)]

    @property
    def shared_bytes(self) -> dict[str, int]:
        """The largest dynamic shared memory of a block, for each kernel."""
        found: dict[str, int] = {}
        for launch in self.launches:
            found[launch.kernel] = max(launch.shared_bytes, found.get(launch.kernel, 0))
        return found

    @property
    def codes(self) -> list[Code]:
        """Kernel files of other variants that its launches need."""
        return list(dict.fromkeys(launch.code for launch in self.launches if launch.code))

    @property
    def streams(self) -> int:
        """The number of streams: one more than the largest stream number."""
        return 1 + max((step.stream for step in (*self.setup, *self.steps)), default=0)

    @property
    def copies_itself(self) -> bool:
        """Whether the plan itself copies inputs and outputs, instead of its caller."""
        return any(isinstance(step, CopyIn | CopyOut) for step in self.steps)

    @property
    def mapped(self) -> tuple[str, ...]:
        """Outputs and scratch that kernels get as tensor maps, through which the copy engine may write."""
        names = [arg.buffer for step in self.launches for arg in step.args if isinstance(arg, TensorMap)]
        owners = {self.owner(name) for name in names}
        written = {**self.problem.named("out"), **self.scratch}
        return tuple(name for name in written if name in owners)

    def owner(self, name: str) -> str:
        """The buffer with the memory of this name, which may be that of a view, or of a view of a view."""
        while name in self.views:
            name = self.views[name][0]
        return name

    def fits(self, free_bytes: int, scratch_alone: bool = False) -> bool:
        """Whether its buffers fit into this much memory, and its grids are within the limits of CUDA.

        With ``scratch_alone``, the arrays of the problem are already allocated.
        """
        needed = self.scratch_bytes if scratch_alone else self.nbytes
        return not fault_of_grids(self.launches) and needed <= free_bytes


def fault_of_maps(steps: Iterable[WrittenStep], arrays: Mapping[str, Array]) -> str:
    """The reason why a tensor map of the steps cannot be created for these arrays; empty if all can."""
    launches = (step for step in steps if isinstance(step, Launch))
    for map_ in (arg for launch in launches for arg in launch.args if isinstance(arg, TensorMap)):
        array = arrays[map_.buffer]
        try:
            map_.geometry(array.shape, array.dtype, array.nbytes)
        except VariantError as error:
            return str(error)
    return ""


def fault_of_grids(steps: Iterable[WrittenStep]) -> str:
    """The reason why CUDA would refuse the grid of one of the steps; empty if it accepts all."""
    for launch in (step for step in steps if isinstance(step, Launch)):
        if any(size > limit for size, limit in zip(launch.grid, GRID_LIMIT, strict=False)):
            blocks, most = (" x ".join(f"{size:,}" for size in sizes) for sizes in (launch.grid, GRID_LIMIT))
            return f"{launch.kernel} would have a grid of {blocks} blocks; CUDA allows at most {most}"
    return ""


def arch_needed(variant: Any, arch: int) -> str:
    """The GPUs that a variant, or what a plan calls, needs; empty if ``arch`` is one of them."""
    if arch < variant.min_arch:
        return f"sm_{variant.min_arch} or newer"
    if arch <= HOPPER or variant.min_arch < HOPPER:  # a kernel for older GPUs has another form for those
        return ""
    called = [code.source for code in variant.codes] if isinstance(variant, Planned) else []
    files = (file for source in (variant.source, *called) for file in source_files(source))
    alone = any(HOPPER_ALONE.search(read_source(file)) for file in files)
    return f"sm_{HOPPER}, the only one with wgmma" if alone else ""


def scratch_array(value: Any) -> Array:
    """Convert a value of ``variant.py`` to a scratch buffer."""
    array = value if isinstance(value, Array) else Array(tuple(value))
    np.dtype(array.dtype)  # TypeError if there is no such type
    array = replace(array, shape=tuple(map(index, array.shape)))
    if min(array.shape, default=1) < 1:
        raise ValueError("an axis without elements")
    return array
