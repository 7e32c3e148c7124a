"""Find conflicts between streams: two streams must not use the same memory without an order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

READS_ATOMICALLY, READS, WRITES_ATOMICALLY, WRITES = 1, 2, 3, 4  # of emulator_touched

Event = Mapping[int, int]  # how far each stream had come


@dataclass(frozen=True)
class Work:
    """One piece of work of a stream."""

    kind: str  # "launch", "copy_in", "copy_out" or "copy"
    name: str  # the name of the kernel, or of the array that is copied
    stream: int
    tick: int  # its sequence number on the stream
    part: tuple[int, int] = (0, 0)  # byte range of a buffer that is copied


@dataclass(frozen=True)
class Clash:
    """Two pieces of work on different streams that use one element without an order, at least one writing."""

    first: Work
    second: Work
    address: int  # address of the buffer
    offset: int  # byte offset in the buffer
    first_writes: bool
    second_writes: bool


@dataclass
class _Cells:
    """The last accesses to each piece of a buffer, as numbers of works."""

    unit: int
    writer: np.ndarray
    atomic: np.ndarray  # whether that access was atomic
    readers: dict[int, np.ndarray] = field(default_factory=dict)  # by stream


class StreamOrder:
    """Tracks streams with vector clocks while a device is given work.

    Work is ordered by its stream, by events that one stream records and another one waits for, and by a host
    that waits.
    """

    def __init__(self) -> None:
        self.works: list[Work | None] = [None]  # the first entry stands for no work
        self.early: list[Work] = []  # copies to the host of data that no work had written
        self._clocks: dict[int, dict[int, int]] = {}
        self._host: dict[int, int] = {}  # what the host has waited for
        self._cells: dict[int, _Cells] = {}

    def begin(self, kind: str, name: str, stream: int, part: tuple[int, int] = (0, 0)) -> Work:
        """Add a piece of work to a stream."""
        clock = self._clock(stream)
        clock[stream] = clock.get(stream, 0) + 1
        work = Work(kind, name, stream, clock[stream], part)
        self.works.append(work)
        return work

    def record(self, stream: int) -> Event:
        """Record how far a stream has come."""
        return dict(self._clock(stream))

    def wait(self, event: Event, stream: int) -> None:
        """Order later work of a stream after an event."""
        _merge(self._clock(stream), event)

    def wait_on_host(self, stream: int | None = None) -> None:
        """Order later work of all streams after the work of one stream, or of all streams."""
        for number in [*self._clocks] if stream is None else [stream]:
            _merge(self._host, self._clock(number))
        for clock in self._clocks.values():
            _merge(clock, self._host)

    def watch(self, address: int, nbytes: int, unit: int) -> None:
        """Add a buffer, divided into pieces of ``unit`` bytes."""
        count = -(-nbytes // unit)
        self._cells[address] = _Cells(unit, np.zeros(count, np.int32), np.zeros(count, bool))

    def pieces(self, address: int) -> int:
        """Return the number of pieces of a buffer."""
        return len(self._cells[address].writer)

    def knows(self, address: int) -> bool:
        """Whether the buffer is known."""
        return address in self._cells

    def touch_range(self, work: Work, address: int, first: int, last: int, how: int) -> Clash | None:
        """Note that work uses bytes ``first`` to ``last - 1`` of a buffer, and return a conflict."""
        cells = self._cells[address]
        touched = np.zeros(len(cells.writer), np.uint8)
        touched[first // cells.unit : -(-last // cells.unit)] = how
        if how == READS and work.kind == "copy_out" and not cells.writer[touched > 0].all():
            self.early.append(work)
        return self.touch(work, address, touched)

    def touch(self, work: Work, address: int, touched: np.ndarray) -> Clash | None:
        """Note that the last piece of work uses pieces of a buffer, and return a conflict with earlier work.

        Parameters
        ----------
        touched
            ``(pieces,) uint8``: the last use of each piece, 0 for unused ones.
        """
        cells = self._cells[address]
        number = len(self.works) - 1
        unordered = self._unordered(work)
        writes, reads = touched >= WRITES_ATOMICALLY, touched > READS_ATOMICALLY
        clash = None
        if unordered.any():
            atomically = (touched == WRITES_ATOMICALLY) | (touched == READS_ATOMICALLY)
            before = unordered[cells.writer] & (touched > 0) & ~(cells.atomic & atomically)
            clash = self._clash(work, address, cells, cells.writer, before, writes, True)
            for reader in cells.readers.values():
                read = unordered[reader] & writes
                clash = clash or self._clash(work, address, cells, reader, read, writes, False)
        cells.writer[writes] = number
        cells.atomic[writes] = (touched == WRITES_ATOMICALLY)[writes]
        if work.stream not in cells.readers:
            cells.readers[work.stream] = np.zeros(len(cells.writer), np.int32)
        cells.readers[work.stream][reads & ~writes] = number
        return clash

    def _clash(
        self,
        work: Work,
        address: int,
        cells: _Cells,
        numbers: np.ndarray,
        where: np.ndarray,
        writes: np.ndarray,
        first_writes: bool,
    ) -> Clash | None:
        if not where.any():
            return None
        at = int(np.argmax(where))
        first = self.works[numbers[at]]
        assert first is not None, "nobody's work is ordered before all others"
        return Clash(first, work, address, at * cells.unit, first_writes, bool(writes[at]))

    def _unordered(self, work: Work) -> np.ndarray:
        """For each piece of work, whether nothing orders it before this one."""
        clock = self._clock(work.stream)
        return np.array([one is not None and one.tick > clock.get(one.stream, 0) for one in self.works])

    def _clock(self, stream: int) -> dict[int, int]:
        return self._clocks.setdefault(stream, dict(self._host))


def _merge(clock: dict[int, int], other: Mapping[int, int]) -> None:
    for stream, tick in other.items():
        clock[stream] = max(tick, clock.get(stream, 0))
