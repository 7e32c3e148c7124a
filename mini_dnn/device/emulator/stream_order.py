"""What streams did to memory, and what orders them: two of them that nothing orders must not meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

READS_ATOMICALLY, READS, WRITES_ATOMICALLY, WRITES = 1, 2, 3, 4  # of emulator_touched

Event = Mapping[int, int]  # how far each stream had come


@dataclass(frozen=True)
class Work:
    """Something that a stream was given."""

    kind: str  # "launch", "copy_in", "copy_out" or "copy"
    name: str  # of the kernel, or of what is copied to or from
    stream: int
    tick: int  # it is the stream's first, second, ...
    part: tuple[int, int] = (0, 0)  # bytes of a buffer that is copied


@dataclass(frozen=True)
class Clash:
    """Two works of different streams on one element, one of them writing, and nothing orders them."""

    first: Work
    second: Work
    address: int  # of the buffer
    offset: int  # bytes from there
    first_writes: bool
    second_writes: bool


@dataclass
class _Cells:
    """What was done last to each piece of a buffer: the numbers of works."""

    unit: int
    writer: np.ndarray
    atomic: np.ndarray  # whether that was atomic
    readers: dict[int, np.ndarray] = field(default_factory=dict)  # by stream


class StreamOrder:
    """Follows streams as a device is given work: by vector clocks.

    Works are ordered by their stream, by events that are recorded on one stream and that another waits for,
    and by a host that waits.
    """

    def __init__(self) -> None:
        self.works: list[Work | None] = [None]  # the first is nobody's
        self.early: list[Work] = []  # copies to the host of what no work had written
        self._clocks: dict[int, dict[int, int]] = {}
        self._host: dict[int, int] = {}  # what the host has waited for
        self._cells: dict[int, _Cells] = {}

    def begin(self, kind: str, name: str, stream: int, part: tuple[int, int] = (0, 0)) -> Work:
        """A stream is given something."""
        clock = self._clock(stream)
        clock[stream] = clock.get(stream, 0) + 1
        work = Work(kind, name, stream, clock[stream], part)
        self.works.append(work)
        return work

    def record(self, stream: int) -> Event:
        """How far a stream has come."""
        return dict(self._clock(stream))

    def wait(self, event: Event, stream: int) -> None:
        """What a stream is given from here on comes after an event."""
        _merge(self._clock(stream), event)

    def wait_on_host(self, stream: int | None = None) -> None:
        """What any stream is given from here on comes after the work of one, or of all."""
        for number in [*self._clocks] if stream is None else [stream]:
            _merge(self._host, self._clock(number))
        for clock in self._clocks.values():
            _merge(clock, self._host)

    def watch(self, address: int, nbytes: int, unit: int) -> None:
        """From here on there is a buffer, of pieces of so many bytes."""
        count = -(-nbytes // unit)
        self._cells[address] = _Cells(unit, np.zeros(count, np.int32), np.zeros(count, bool))

    def pieces(self, address: int) -> int:
        """How many pieces a buffer has."""
        return len(self._cells[address].writer)

    def knows(self, address: int) -> bool:
        """Whether there is a buffer."""
        return address in self._cells

    def touch_range(self, work: Work, address: int, first: int, last: int, how: int) -> Clash | None:
        """A work does something to bytes ``first`` to ``last - 1`` of a buffer."""
        cells = self._cells[address]
        touched = np.zeros(len(cells.writer), np.uint8)
        touched[first // cells.unit : -(-last // cells.unit)] = how
        if how == READS and work.kind == "copy_out" and not cells.writer[touched > 0].all():
            self.early.append(work)
        return self.touch(work, address, touched)

    def touch(self, work: Work, address: int, touched: np.ndarray) -> Clash | None:
        """A work, the last one, does something to the pieces of a buffer; the clash with an earlier one.

        Parameters
        ----------
        touched
            ``(pieces,) uint8``: how each was used last, 0 where it was not.
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
        """For each work whether nothing orders it before this one."""
        clock = self._clock(work.stream)
        return np.array([one is not None and one.tick > clock.get(one.stream, 0) for one in self.works])

    def _clock(self, stream: int) -> dict[int, int]:
        return self._clocks.setdefault(stream, dict(self._host))


def _merge(clock: dict[int, int], other: Mapping[int, int]) -> None:
    for stream, tick in other.items():
        clock[stream] = max(tick, clock.get(stream, 0))
