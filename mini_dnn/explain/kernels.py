"""A variant's kernels as the page shows them: counters of all launches, and a trace of the first one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from mini_dnn.device.emulator.counted import CountedLaunch, Place
from mini_dnn.device.emulator.counted_interface import EventKind, Space
from mini_dnn.device.sources import source_files
from mini_dnn.explain.steps import Steps, steps
from mini_dnn.profiling.counters import Counters
from mini_dnn.profiling.totals import counters

WRITES = frozenset((EventKind.STORE, EventKind.COPY_STORE, EventKind.COPY_TO, EventKind.TILE_STORE))
SHARED = frozenset((Space.SHARED, Space.REMOTE))


@dataclass(frozen=True)
class Trace:
    """The trace of one block: what its warps did, without basic blocks, and one possible order."""

    block: int
    records: np.ndarray
    steps: Steps


@dataclass(frozen=True)
class Counted:
    """A counted kernel of a variant."""

    counters: Counters
    launch: CountedLaunch  # the first one, which is shown in detail

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.counters.kernel

    @cached_property
    def traces(self) -> Mapping[int, Trace]:
        """The traced blocks by their linear numbers."""
        records = self.launch.records[self.launch.records["kind"] != EventKind.BLOCK]
        by_block = {int(block): records[records["block"] == block] for block in np.unique(records["block"])}
        return {
            block: Trace(block, found, steps(found, self.launch.names)) for block, found in by_block.items()
        }


def counted(launches: Sequence[CountedLaunch]) -> list[Counted]:
    """Group launches into kernels, in the order of their first launches."""
    found = [_with_files(launch) for launch in launches]
    first: dict[object, CountedLaunch] = {}
    for launch in found:
        size = launch.shared_bytes + launch.static_bytes
        first.setdefault((launch.kernel, str(launch.source), launch.grid, launch.block, size), launch)
    return [
        Counted(one, first[one.kernel, one.source, one.grid, one.block, one.shared_bytes])
        for one in counters(found)
    ]


def work_by_line(launch: CountedLaunch) -> Mapping[Place, tuple[int, int]]:
    """The basic blocks that warps entered at each line, and the active lanes in them."""
    found: dict[Place, tuple[int, int]] = {}
    for total in launch.totals[launch.totals["kind"] == EventKind.BLOCK]:
        place = launch.places[int(total["pc"])]
        instructions, lanes = found.get(place, (0, 0))
        found[place] = instructions + int(total["instructions"]), lanes + int(total["lanes"])
    return found


def _with_files(launch: CountedLaunch) -> CountedLaunch:
    """Resolve the files of places, because debugging information may lack their folder."""
    files = source_files(launch.source)
    folder = files[0].parent
    within = {str(file.relative_to(folder)): file for file in files if file.is_relative_to(folder)}

    def found(name: str) -> str:
        if Path(name) in files:
            return name
        return next((str(file) for tail, file in within.items() if f"/{name}".endswith(f"/{tail}")), name)

    names = {place.file: found(place.file) for place in launch.places.values()}
    return replace(launch, places={pc: Place(names[p.file], p.line) for pc, p in launch.places.items()})
