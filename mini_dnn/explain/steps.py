"""Find a possible order of a block's warps: each instruction is one step, and warps wait at barriers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from mini_dnn.device.emulator.counted_interface import LANES, EventKind, Space

BANKS, WORD, GROUP_BYTES = 32, 4, 128
MOST_OF_LANE = 16  # bytes; more is a bulk copy
COPIES = (EventKind.COPY_LOAD, EventKind.COPY_STORE, EventKind.COPY_TO, EventKind.COPY_FROM)
WAITS = ("cp_async_wait", "mbarrier_wait", "bulk_wait", "bulk_wait_read")  # endings of names
Place = tuple[int, int]  # the array of an mbarrier, and its offset in it
SHARED = (Space.SHARED, Space.REMOTE)


@dataclass(frozen=True)
class Steps:
    """The steps at which each record of a block begins and ends.

    A barrier ends when the last warp arrives.
    """

    begin: np.ndarray  # (records,) int64
    end: np.ndarray

    @property
    def count(self) -> int:
        """The number of steps of the whole block."""
        return int(self.end.max(initial=0))


def steps(records: np.ndarray, names: Sequence[str] = ()) -> Steps:
    """Order the records of one block, which must be sorted by warp.

    All warps start at step 0. An access to shared memory takes one more step for each bank conflict. All
    warps that wait at a barrier leave it one step after the last of them has arrived. A wait for an mbarrier
    ends one step after the arrivals of its phase.

    Parameters
    ----------
    names
        The names of `CountedLaunch`, which identify operations on mbarriers.
    """
    return _Schedule(records, names).run()


class _Schedule:
    """Runs warps until they wait, and then looks for what they wait for among the other warps."""

    def __init__(self, records: np.ndarray, names: Sequence[str]) -> None:
        self._records, self._cost = records, _costs(records)
        self._begin, self._end = np.zeros(len(records), np.int64), np.zeros(len(records), np.int64)
        warps = np.unique(records["warp"]).tolist()
        self._queues = {warp: np.flatnonzero(records["warp"] == warp).tolist() for warp in warps}
        self._clock, self._at = dict.fromkeys(warps, 0), dict.fromkeys(warps, 0)
        self._waiting: dict[int, int] = {}  # by waiting warp: its record of the barrier
        self._arrives, self._needs = _mbarriers(records, names)
        self._arrived: dict[Place, list[int]] = {}

    def run(self) -> Steps:
        """Compute the steps of all records."""
        while any(self._at[warp] < len(queue) for warp, queue in self._queues.items()):
            if any(self._advance(warp) for warp in self._queues):
                continue
            if self._waiting:
                self._release()
            else:  # the arrivals are unknown, such as another block's: the longest waiting warp continues
                behind = [warp for warp, queue in self._queues.items() if self._at[warp] < len(queue)]
                warp = min(behind, key=lambda warp: self._clock[warp])
                self._finish(warp, self._clock[warp] + 1)
        return Steps(self._begin, self._end)

    def _advance(self, warp: int) -> bool:
        """Run a warp until it waits or ends. Return whether it has made progress."""
        before = self._at[warp]
        while warp not in self._waiting and self._at[warp] < len(self._queues[warp]):
            i = self._queues[warp][self._at[warp]]
            self._begin[i] = self._clock[warp]
            if self._records["kind"][i] == EventKind.BARRIER:
                self._waiting[warp] = i
            elif i in self._needs:
                place, need = self._needs[i]
                times = sorted(self._arrived.get(place, ()))
                if len(times) < need:
                    break
                self._finish(warp, max(self._clock[warp], times[need - 1] if need else 0) + 1)
            else:
                self._finish(warp, self._clock[warp] + int(self._cost[i]))
        return self._at[warp] > before

    def _finish(self, warp: int, clock: int) -> None:
        """End the current record of a warp."""
        i = self._queues[warp][self._at[warp]]
        self._clock[warp] = self._end[i] = clock
        self._at[warp] += 1
        if i in self._arrives:
            self._arrived.setdefault(self._arrives[i], []).append(clock)

    def _release(self) -> None:
        """Release the warps of the barrier that was complete first."""
        groups: dict[tuple[int, int], list[int]] = {}
        for warp, i in self._waiting.items():
            key = int(self._records["name"][i]), int(self._records["number"][i])
            groups.setdefault(key, []).append(warp)
        first = min(groups.values(), key=lambda warps: max(self._clock[warp] for warp in warps))
        released = max(self._clock[warp] for warp in first) + 1
        for warp in first:
            del self._waiting[warp]
            self._finish(warp, released)


def _mbarriers(
    records: np.ndarray, names: Sequence[str]
) -> tuple[dict[int, Place], dict[int, tuple[Place, int]]]:
    """Return the records that arrive at an mbarrier, and the waits with the arrivals that they need.

    The number of arrivals per phase is not recorded: each warp that arrives at all is assumed to arrive once
    per phase. The first wait for parity 1 refers to the phase before the first one, and does not wait.
    """
    number = {name: i for i, name in enumerate(names)}
    arrives, waits = (
        [
            (int(i), (int(records["array"][i]), int(records["offsets"][i].max())))
            for i in np.flatnonzero(
                (records["kind"] == EventKind.EVENT) & (records["name"] == number.get(name, -1))
            )
        ]
        for name in ("mbarrier_arrive", "mbarrier_wait")
    )
    by_warp = Counter((place, int(records["warp"][i])) for i, place in arrives)
    # The number of warps that arrive, which is the number of arrivals per phase
    each: Counter[Place] = Counter(place for place, _ in by_warp)
    needs, phase = {}, dict[tuple[Place, int], int]()
    for i, place in waits:
        key = place, int(records["warp"][i])
        phase[key] = phase.get(key, -1 - int(records["number"][i] == 1)) + 1
        if each[place]:
            needs[i] = place, (phase[key] + 1) * each[place]
    return dict(arrives), needs


def flights(records: np.ndarray, order: Steps, names: Sequence[str]) -> list[tuple[int, int, int]]:
    """Find copies in flight: the warp, the step of the first copy, and the end of the warp's next wait.

    Copies without a wait in these records are left out.
    """
    is_copy = np.isin(records["kind"], COPIES)
    is_wait = np.isin(records["name"], [i for i, name in enumerate(names) if name.endswith(WAITS)])
    found, open_since = [], dict[int, int]()
    for i in np.flatnonzero(is_copy | is_wait):
        warp = int(records["warp"][i])
        if is_copy[i]:
            open_since.setdefault(warp, int(order.begin[i]))
        elif warp in open_since:
            found.append((warp, open_since.pop(warp), int(order.end[i])))
    return found


def _costs(records: np.ndarray) -> np.ndarray:
    """The steps of each record: one, plus one for each bank conflict; none for further records of a copy.

    A copy that one instruction starts has a record for each piece of global memory, and further records for
    its accesses to shared memory.
    """
    same = (records["warp"][1:] == records["warp"][:-1]) & (records["pc"][1:] == records["pc"][:-1])
    further = np.concatenate([[False], same])[: len(records)] & np.isin(records["kind"], COPIES)
    inside = np.isin(records["kind"], (EventKind.COPY_TO, EventKind.COPY_FROM))
    costs = np.where(further & (inside | (records["bytes"] > MOST_OF_LANE)), 0, 1)
    for i in np.flatnonzero(np.isin(records["space"], SHARED)):
        record = records[i]
        nbytes = int(record["bytes"])
        if costs[i] and 0 < nbytes <= MOST_OF_LANE:
            first = int(record["offsets"].min()) // GROUP_BYTES * GROUP_BYTES
            found, ideal = wavefronts(
                tuple((record["offsets"] - first).tolist()), int(record["mask"]), nbytes
            )
            costs[i] += found - ideal
    return costs


@cache
def wavefronts(offsets: tuple[int, ...], mask: int, nbytes: int) -> tuple[int, int]:
    """Return the wavefronts of one access to shared memory, and how many it takes without a conflict.

    Lanes form groups that access at most 128 bytes. Within a group, a bank delivers one word per wavefront.
    """
    groups = 1 if nbytes <= WORD else 2 if nbytes <= 2 * WORD else 4
    size = LANES // groups
    found = ideal = 0
    for group in range(groups):
        lanes = [lane for lane in range(group * size, (group + 1) * size) if mask >> lane & 1]
        words = {
            word
            for lane in lanes
            for word in range(offsets[lane] // WORD, (offsets[lane] + nbytes - 1) // WORD + 1)
        }
        if words:
            found += int(np.bincount([word % BANKS for word in words]).max())
            ideal += 1
    return found, ideal
