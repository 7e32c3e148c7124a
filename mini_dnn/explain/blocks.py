"""Encode a traced block for the page: columns of numbers, patterns of lanes, and its use of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mini_dnn.device.emulator.counted import CountedLaunch, Place
from mini_dnn.device.emulator.counted_interface import LANES, Space
from mini_dnn.explain.kernels import WRITES, Trace
from mini_dnn.explain.steps import flights

LEAST_RECORDS = 400  # records of a block that are kept at least
NO_LINE = -1


class Tables:
    """Tables shared by all records: operations, and patterns of the lanes' offsets."""

    def __init__(self, launch: CountedLaunch, lines: Mapping[Place, tuple[int, int]]) -> None:
        self._launch, self._lines = launch, lines
        self.operations: list[list[int]] = []  # file, line, kind, space, array, bytes, name, number
        self.patterns: list[
            list[Any]
        ] = []  # mask; and a stride, or the distance of each active lane from the first
        self._operation_of: dict[tuple[int, ...], int] = {}
        self._pattern_of: dict[tuple[int, ...], int] = {}

    def operation(self, record: np.void) -> int:
        """Return the number of a record's operation."""
        place = self._lines.get(self._launch.places.get(int(record["pc"]), Place("", 0)), (NO_LINE, 0))
        names = ("kind", "space", "array", "bytes", "name", "number")
        key = (*place, *(int(record[name]) for name in names))
        if key not in self._operation_of:
            self._operation_of[key] = len(self.operations)
            self.operations.append(list(key))
        return self._operation_of[key]

    def pattern(self, mask: int, deltas: tuple[int, ...]) -> int:
        """Return the number of a pattern."""
        key = (mask, *deltas)
        if key not in self._pattern_of:
            self._pattern_of[key] = len(self.patterns)
            stride = deltas[1] if len(deltas) > 1 else 0
            even = all(delta == i * stride for i, delta in enumerate(deltas))
            self.patterns.append([mask, stride if even else list(deltas)])
        return self._pattern_of[key]


def encode(trace: Trace, launch: CountedLaunch, tables: Tables, most: int) -> dict[str, Any]:
    """Encode the first steps of all warps of a block, with at most ``most`` records."""
    records, begin, end = trace.records, trace.steps.begin, trace.steps.end
    count, arrays = len(records), footprints(records, launch)
    last = trace.steps.count
    kept_at_least = max(most, LEAST_RECORDS)
    if count > kept_at_least:
        last = int(np.partition(begin, kept_at_least)[kept_at_least])
        kept = begin < last
        records, begin, end = records[kept], begin[kept], np.minimum(end[kept], last)
    operations, patterns, bases = [], [], []
    for record in records:
        mask = int(record["mask"])
        offsets = [int(record["offsets"][lane]) for lane in range(LANES) if mask >> lane & 1]
        base = offsets[0] if offsets else 0
        operations.append(tables.operation(record))
        patterns.append(tables.pattern(mask, tuple(offset - base for offset in offsets)))
        bases.append(base)
    return {
        "at": position(trace.block, launch.grid),
        "records": count,
        "lacks": launch.records_left_out,
        "steps": int(end.max(initial=1)),
        "warp": records["warp"].tolist(),
        "op": operations,
        "base": bases,
        "pattern": patterns,
        "step": begin.tolist(),
        "end": end.tolist(),
        "arrays": arrays,
        "flights": [
            flight for flight in flights(trace.records, trace.steps, launch.names) if flight[1] < last
        ],
    }


def position(block: int, grid: Sequence[int]) -> list[int]:
    """The index of a block in its grid, x first."""
    index = []
    for size in (*grid, 1, 1)[:3]:
        index.append(block % size)
        block //= size
    return index


def footprints(records: np.ndarray, launch: CountedLaunch) -> list[dict[str, Any]]:
    """Find the elements of global arrays that a block reads and writes, as runs, with the number of lanes."""
    found = []
    of_global = (records["space"] == Space.GLOBAL) & (records["bytes"] > 0) & (records["array"] >= 0)
    writes = np.isin(records["kind"], sorted(WRITES))
    for number in np.unique(records["array"][of_global]):
        array = launch.arrays[number]
        length = max(1, int(np.prod(array.shape, dtype=object)))
        for is_write in (False, True):
            chosen = records[of_global & (records["array"] == number) & (writes == is_write)]
            if len(chosen):
                runs = _runs(_uses(chosen, array.itemsize, length))
                found.append({"array": int(number), "writes": is_write, "runs": runs})
    return found


def _uses(records: np.ndarray, itemsize: int, length: int) -> np.ndarray:
    """Count how many lanes use each element."""
    uses = np.zeros(length + 1, np.int64)  # differences from one element to the next
    active = (records["mask"][:, None] >> np.arange(LANES, dtype=np.uint32) & 1).astype(bool)
    first = records["offsets"] // itemsize
    last = (records["offsets"] + records["bytes"][:, None].astype(np.int64) - 1) // itemsize + 1
    np.add.at(uses, np.clip(first[active], 0, length), 1)
    np.add.at(uses, np.clip(last[active], 0, length), -1)
    return np.cumsum(uses)[:-1]


def _runs(uses: np.ndarray) -> list[int]:
    """Runs of elements that are used equally often: distance from the previous run, length and uses."""
    edges = np.flatnonzero(np.diff(uses, prepend=0, append=0))
    flat: list[int] = []
    at = 0
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if uses[start]:
            flat += [start - at, end - start, int(uses[start])]
            at = end
    return flat
