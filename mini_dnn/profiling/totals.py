"""Counters of each kernel, from the totals that the emulator records for a launch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from math import prod
from typing import Any, TypeVar

import numpy as np

from mini_dnn.device.emulator.arithmetic import by_kind
from mini_dnn.device.emulator.counted import CountedLaunch
from mini_dnn.device.emulator.counted_interface import EventKind, Space
from mini_dnn.profiling.counters import SECTOR_BYTES, Access, ArrayUse, Branch, Call, Counters, Work

OPERATIONS = {
    EventKind.LOAD: "load",
    EventKind.STORE: "store",
    EventKind.ATOMIC: "atomic",
    EventKind.COPY_LOAD: "copy load",
    EventKind.COPY_STORE: "copy store",
    EventKind.COPY_TO: "copy to",
    EventKind.COPY_FROM: "copy from",
    EventKind.TILE_LOAD: "tile load",
    EventKind.TILE_STORE: "tile store",
}
MEMORIES = {
    Space.GLOBAL: "global",
    Space.SYMBOL: "constant",
    Space.SHARED: "shared",
    Space.REMOTE: "another block's shared",
}
FIELDS = (
    "instructions",
    "lanes",
    "sectors",
    "ideal_sectors",
    "used_bytes",
    "lines",
    "wavefronts",
    "ideal_wavefronts",
    "block_sectors",
    "merged",
    "saved",
)
Row = TypeVar("Row", Access, Call, Work, Branch)
# The number of leading fields that are not counts
KEYS: dict[type, int] = {Access: 6, Call: 3, Work: 2, Branch: 2}


def counters(launches: Iterable[CountedLaunch]) -> list[Counters]:
    """Return the counters of each kernel, in the order of their first launches.

    Launches of one kernel with the same grid and block are added up.
    """
    groups: dict[Any, list[CountedLaunch]] = {}
    for launch in launches:
        key = launch.kernel, launch.library, launch.grid, launch.block, launch.shared_bytes
        groups.setdefault(key, []).append(launch)
    return [_counters(group) for group in groups.values()]


def _counters(group: list[CountedLaunch]) -> Counters:
    first = group[0]
    rows = [(launch, total) for launch in group for total in launch.totals]
    blocks = [total for _, total in rows if total["kind"] == EventKind.BLOCK]
    return Counters(
        kernel=first.kernel,
        source=str(first.source),
        defines=dict(first.defines),
        launches=len(group),
        grid=first.grid,
        block=first.block,
        shared_bytes=first.shared_bytes + first.static_bytes,
        accesses=_summed(_access(*row) for row in rows if row[1]["kind"] in OPERATIONS),
        calls=_summed(_call(*row) for row in rows if row[1]["kind"] >= EventKind.BARRIER),
        work=_summed(work for row in rows if (work := _work(*row))),
        branches=_summed(_branch(*row) for row in rows if row[1]["splits"]),
        arrays=_arrays(group),
        block_instructions=int(sum(total["instructions"] for total in blocks)),
        block_lanes=int(sum(total["lanes"] for total in blocks)),
    )


def _access(launch: CountedLaunch, total: np.void) -> Access:
    place = launch.places[int(total["pc"])]
    return Access(
        place.file,
        place.line,
        launch.arrays[total["array"]].name if total["array"] >= 0 else "",
        MEMORIES[Space(total["space"])],
        OPERATIONS[EventKind(total["kind"])],
        int(total["bytes"]),
        *(int(total[name]) for name in FIELDS),
    )


def _call(launch: CountedLaunch, total: np.void) -> Call:
    place = launch.places[int(total["pc"])]
    name = launch.names[total["name"]]
    numbers = (int(total[field]) for field in ("instructions", "lanes", "number"))
    return Call(place.file, place.line, name, *numbers)


def _work(launch: CountedLaunch, total: np.void) -> Work | None:
    kinds = by_kind(launch.library).get(int(total["pc"])) if total["kind"] == EventKind.BLOCK else None
    if not kinds:
        return None
    place = launch.places[int(total["pc"])]
    warps, lanes = int(total["instructions"]), int(total["lanes"])
    return Work(
        place.file,
        place.line,
        **{kind: count * lanes for kind, count in kinds.items()},
        instructions=warps * sum(count for kind, count in kinds.items() if kind != "other"),
        other_instructions=warps * kinds["other"],
    )


def _branch(launch: CountedLaunch, total: np.void) -> Branch:
    place = launch.places[int(total["pc"])]
    return Branch(place.file, place.line, int(total["splits"]))


def _arrays(group: list[CountedLaunch]) -> tuple[ArrayUse, ...]:
    found: dict[tuple[str, str], ArrayUse] = {}
    for launch in group:
        for array in launch.arrays:
            nbytes = prod(array.shape) * array.itemsize
            before = found.get((array.name, array.memory))
            used = max(array.footprint * SECTOR_BYTES, before.used_bytes if before else 0)
            found[array.name, array.memory] = ArrayUse(array.name, array.memory, nbytes, used)
    return tuple(found.values())


def _summed(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Add up rows that differ only in their counts, and sort them by file and line."""
    found: dict[tuple[Any, ...], list[int]] = {}
    kind: type[Row] | None = None
    for row in rows:
        kind = type(row)
        values = tuple(getattr(row, field.name) for field in fields(row))
        keys, counts = values[: KEYS[kind]], values[KEYS[kind] :]
        so_far = found.setdefault(keys, [0] * len(counts))
        so_far[:] = [a + b for a, b in zip(so_far, counts, strict=True)]
    if kind is None:
        return ()
    return tuple(kind(*keys, *counts) for keys, counts in sorted(found.items()))
