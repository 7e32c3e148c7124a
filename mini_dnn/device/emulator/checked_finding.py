"""Convert findings of the checked runtime to findings with names, places and shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mini_dnn.device.base import LaunchConfig
from mini_dnn.device.cures import CURES
from mini_dnn.device.emulator.checked_interface import CFinding, CParty
from mini_dnn.device.emulator.declarations import dynamic_name
from mini_dnn.device.emulator.emulator import EmulatorModule
from mini_dnn.device.emulator.explain_async import explain_copy
from mini_dnn.device.emulator.explain_cluster import explain_cluster
from mini_dnn.device.emulator.memory import EmulatorBuffer
from mini_dnn.device.emulator.symbols import Symbols, declared, source_lines
from mini_dnn.device.finding import Fault, Finding, Party, Place, Target, explain_fault
from mini_dnn.device.sources import read_source, source_files

GLOBAL, SYMBOL, SHARED, HEAP = 1, 2, 3, 4  # Memory in runtime/checked/interface.h
SUBSCRIPT, LOCAL, UNSET, WARP = 4, 6, 7, 32
KINDS = {
    1: "out-of-bounds",
    2: "race",
    3: "uninitialised",
    4: "out-of-bounds",
    5: "misaligned",
    6: "out-of-bounds",
    7: "uninitialised",
    8: "out-of-bounds",
    9: "out-of-bounds",
    10: "fault",
    11: "undefined",
    20: "async",
    21: "cluster",
}

DETAILS = (  # Detail in runtime/checked/interface.h
    "",
    "same value",
    "__ldg",
    "const __restrict__",
    "another thread",
    "no variable",
    "way back",
    "after free",
    "freed twice",
    "not allocated",
    "kept",
    "no function",
    "ahead",
    "copied",
)


@dataclass(frozen=True)
class FailedLaunch:
    """A launch that the runtime ended, with the meaning of its numbers and addresses.

    Parameters
    ----------
    buffer_at
        Returns the buffer at an address.
    variables
        Variables of kernel files by address: name and size in bytes.
    axes
        Letters for each buffer's axes.
    """

    module: EmulatorModule
    kernel: str
    symbols: Symbols
    config: LaunchConfig
    buffer_at: Callable[[int], EmulatorBuffer | None]
    variables: Mapping[int, tuple[str, int]]
    axes: Mapping[str, str]

    def finding(self, found: CFinding) -> Finding:
        """Put the finding into words."""
        own, other = source_lines(self.module.path, [found.own.pc, found.other.pc])
        fault = Fault(
            kind=KINDS[found.kind],
            kernel=self.kernel,
            own=self._party(
                found.own,
                Place.at(self.module.source, *own)
                or (Place.at(self.module.source, *other) if found.kind == UNSET else None),
            ),
            other=self._party(found.other, Place.at(self.module.source, *other)),
            array=self._array(found),
            offset=found.offset,
            nbytes=found.bytes,
            exited=found.exited,
            detail="local" if found.kind == LOCAL else DETAILS[found.detail],
            subscript=found.subscript if found.kind == SUBSCRIPT else None,
            type=found.type.decode(errors="replace").strip("'"),
            home=_unravel(found.block, self.config.grid) if found.memory == SHARED else (),
        )
        told = explain_copy(fault) or explain_cluster(fault) or explain_fault(fault)
        if told.cure == CURES["race"] and self._waits_for_mbarriers():  # its warps may have different roles
            told = replace(told, cure=CURES["mbarrier race"])
        return told

    def _waits_for_mbarriers(self) -> bool:
        return any("ptx::mbarrier_" in read_source(path) for path in source_files(self.module.source))

    def _party(self, party: CParty, place: Place | None) -> Party:
        thread = _unravel(party.thread, self.config.block)
        return Party(
            place,
            _unravel(party.block, self.config.grid),
            thread,
            party.thread // WARP,
            bool(party.write),
            bool(party.atomic),
        )

    def _array(self, found: CFinding) -> Target:
        """The array that a finding is about."""
        if found.memory == GLOBAL:
            buffer = self.buffer_at(found.start)
            assert buffer is not None, "it is watched for as long as it lives"
            axes = self.axes.get(buffer.name, "")
            return Target(buffer.name, "global", buffer.shape, buffer.dtype.itemsize, axes)
        if found.memory == HEAP:
            ((_, line),) = source_lines(self.module.path, [found.heap_pc])
            unit = found.bytes if found.bytes in (1, 2, 4, 8) else 4
            return Target("allocation", "heap", (found.heap_bytes // unit,), unit, line=line)
        if found.memory not in (SYMBOL, SHARED):
            return Target("", "", (), 1)
        if found.memory == SHARED:
            variable = self.symbols.shared[found.index]
            name, nbytes = variable.name, variable.nbytes
            if nbytes < 0:
                name, nbytes = dynamic_name(self.module.source), self.config.shared_bytes
        else:
            name, nbytes = self.variables[found.start]
        shape, itemsize = declared(self.module.path, name, nbytes)
        return Target(name, "shared" if found.memory == SHARED else "constant or device", shape, itemsize)


def with_places(text: str, library: Path) -> str:
    """Replace each ``@`` followed by an address in a text of the runtime with file and line."""
    found = re.findall(r"@([0-9a-f]+)", text)
    places = dict(zip(found, source_lines(library, [int(pc, 16) for pc in found]), strict=True))
    return re.sub(r"@([0-9a-f]+)", lambda m: f"({Path(places[m[1]][0]).name}:{places[m[1]][1]})", text)


def _unravel(linear: int, sizes: tuple[int, ...]) -> tuple[int, int, int]:
    x, y = ([*sizes, 1, 1])[:2]
    return linear % x, linear // x % y, linear // (x * y)
