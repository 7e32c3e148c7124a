"""Counted mode: the emulator as a profiler, which records what each instruction of each warp moves.

The kernel is compiled so that each basic block and each memory access calls a hook of
``runtime/counted/hooks.cpp``. Afterwards, the lanes of a warp are replayed in lock step
(``runtime/counted/recorder.h``), where each step is one instruction of the warp. The compiler is g++ and not
nvcc: it may keep a load that nvcc removes or merges with its neighbour, and vice versa.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.device.base import Defines, KernelArgs, LaunchConfig, Module
from mini_dnn.device.emulator.compiler import Compiler
from mini_dnn.device.emulator.counted_interface import RECORD, TOTAL, CArray, EventKind, Space
from mini_dnn.device.emulator.declarations import dynamic_name
from mini_dnn.device.emulator.emulator import EmulatorDevice, EmulatorModule
from mini_dnn.device.emulator.symbols import Symbols, declared, read_symbols, source_lines
from mini_dnn.device.sources import read_source, source_files
from mini_dnn.errors import DeviceError

MOST_RECORDS = 400_000  # per worker and launch, which is 120 MB
MEMORY = [kind for kind in EventKind if EventKind.BLOCK < kind < EventKind.BARRIER]
CONSTANT = re.compile(r"__constant__[^;(){}=]*?\b(\w+)\s*(?:\[[^;={]*)?[;={]")


@dataclass(frozen=True)
class CountedArray:
    """An array that a launch may use."""

    name: str
    memory: str  # "global", "constant" or "shared"
    shape: tuple[int, ...]
    itemsize: int  # bytes
    address: int  # for global arrays; modulo 32 it tells where sectors begin
    footprint: int = 0  # sectors that the launch used


@dataclass(frozen=True)
class Place:
    """A line of the source. The file is empty if the code is the emulator's own."""

    file: str  # its path
    line: int


@dataclass(frozen=True)
class CountedLaunch:
    """The counters of one launch.

    ``totals`` has the fields of `counted_interface.TOTAL`, with one entry for each place in the code
    (``pc``), kind of access and array. ``records`` has the fields of `counted_interface.RECORD`, in the
    order of each warp. ``array`` is an index into ``arrays``, and ``name`` is one into ``names``. ``places``
    has the source line of each ``pc``.
    """

    kernel: str
    source: Path
    library: Path
    defines: Defines
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int  # dynamic
    static_bytes: int  # of the arrays that it used; other kernels of the file may declare more
    arrays: tuple[CountedArray, ...]
    names: tuple[str, ...]
    places: dict[int, Place]
    totals: np.ndarray
    records: np.ndarray
    records_left_out: bool


class CountedEmulator(EmulatorDevice):
    """The emulator with counters; see the module's docstring.

    Parameters
    ----------
    threads
        See `EmulatorDevice`. The counters do not depend on it.
    blocks
        The linear numbers of the blocks whose instructions are all kept in `CountedLaunch.records`.
    records
        The largest number of instructions that each worker keeps for a launch.

    Attributes
    ----------
    launches
        An entry for each launch so far. The caller may clear the list.

    Raises
    ------
    DeviceError
        There is no g++, or binutils are missing.
    """

    def __init__(
        self, threads: int | None = None, *, blocks: Iterable[int] = (), records: int = MOST_RECORDS
    ) -> None:
        super().__init__(threads)
        self._blocks, self._records = sorted(set(blocks)), records
        lib = self._lib = self._runtime.library
        lib.emulator_base.restype = ctypes.c_uint64
        lib.emulator_base.argtypes = [ctypes.c_void_p]
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        lists: list[Any] = [pointer, size] * 3
        lib.emulator_count.argtypes = [pointer, ctypes.c_uint64, *lists, size]
        lib.emulator_count_totals.restype = lib.emulator_count_records.restype = size
        lib.emulator_count_name.restype = ctypes.c_char_p
        lib.emulator_count_name.argtypes = lib.emulator_count_footprint.argtypes = [size]
        lib.emulator_count_footprint.restype = ctypes.c_uint64
        self._symbols: dict[Path, Symbols] = {}
        self._defines: dict[Path, Defines] = {}
        self._places: dict[tuple[Path, int], Place] = {}
        self._declared: dict[tuple[Path, str, int], tuple[tuple[int, ...], int]] = {}
        self.launches: list[CountedLaunch] = []
        self.description += ", counted"

    def _find_compiler(self, quick: bool) -> Compiler:
        compiler = replace(super()._find_compiler(quick), counted=True)
        if compiler.is_clang:
            raise DeviceError(
                f"counters need g++, and the compiler in use is {compiler.version}; "
                "unset CXX, or name a g++ in it"
            )
        return compiler

    def compile(self, source: Path, defines: Defines) -> EmulatorModule:
        """Compile a kernel file with counters."""
        module = super().compile(source, defines)
        if module.path not in self._symbols:
            self._symbols[module.path] = read_symbols(module.path)
            self._defines[module.path] = defines
        return module

    def launch(
        self, module: Module, kernel: str, config: LaunchConfig, args: KernelArgs, stream: int = 0
    ) -> None:
        """Run a kernel to its end, and append its counters to `launches`."""
        assert isinstance(module, EmulatorModule), "it is this device's"
        base, symbols = int(self._lib.emulator_base(module.library.anchor)), self._symbols[module.path]
        arrays = [*self._buffers(), *self._variables(module, base, symbols)]
        shared = self._shared(module, symbols, config.shared_bytes)
        watched = [
            CArray(a.address, _nbytes(a), i, Space.SYMBOL if a.memory == "constant" else Space.GLOBAL)
            for i, a in enumerate(arrays)
        ]
        own = [
            CArray(offset % 2**64, _nbytes(array), i, Space.SHARED)
            for i, (offset, array) in enumerate(shared, len(arrays))
        ]
        dynamic = [variable.offset for variable in symbols.shared if variable.nbytes < 0]
        static = {i: a for i, (offset, a) in enumerate(shared, len(arrays)) if offset not in dynamic}
        arrays += [array for _, array in shared]
        lists = (CArray * len(watched))(*watched), (CArray * len(own))(*own)
        blocks = (ctypes.c_uint64 * len(self._blocks))(*self._blocks)
        words = (lists[0], len(watched), lists[1], len(own), blocks, len(blocks))
        self._lib.emulator_count(base, symbols.data[0], *words, self._records)
        super().launch(module, kernel, config, args, stream)
        totals, records, left_out = self._read()
        self.launches.append(
            CountedLaunch(
                kernel=kernel,
                source=module.source,
                library=module.path,
                defines=self._defines[module.path],
                grid=config.grid,
                block=config.block,
                shared_bytes=config.shared_bytes,
                static_bytes=sum(_nbytes(array) for i, array in static.items() if i in totals["array"]),
                arrays=tuple(
                    replace(array, footprint=int(self._lib.emulator_count_footprint(i)))
                    for i, array in enumerate(arrays)
                ),
                names=self._names(),
                places=self._lines(module, np.unique(totals["pc"]).tolist()),
                totals=totals,
                records=records,
                records_left_out=left_out,
            )
        )

    def _buffers(self) -> list[CountedArray]:
        return [
            CountedArray(buffer.name, "global", buffer.shape, buffer.dtype.itemsize, buffer.address)
            for buffer in self._memory.live()
            if buffer.address is not None and buffer.nbytes
        ]

    def _variables(self, module: EmulatorModule, base: int, symbols: Symbols) -> list[CountedArray]:
        constants = CONSTANT.findall(read_source(module.source))
        found = []
        for variable in symbols.variables:
            memory = "constant" if variable.name in constants else "global"
            shape, itemsize = self._declaration(module.path, variable.name, variable.nbytes)
            found.append(CountedArray(variable.name, memory, shape, itemsize, base + variable.offset))
        return found

    def _declaration(self, library: Path, name: str, nbytes: int) -> tuple[tuple[int, ...], int]:
        """Shape and bytes per element. They are cached, because reading debugging information takes long."""
        key = library, name, nbytes
        if key not in self._declared:
            self._declared[key] = declared(library, name, nbytes)
        return self._declared[key]

    def _shared(
        self, module: EmulatorModule, symbols: Symbols, dynamic_bytes: int
    ) -> list[tuple[int, CountedArray]]:
        """The shared arrays of a launch, each with its offset from the anchor."""
        found = []
        for variable in symbols.shared:
            nbytes = dynamic_bytes if variable.nbytes < 0 else variable.nbytes
            if not nbytes or not variable.is_array:
                continue
            name = variable.name or dynamic_name(module.source)
            shape, itemsize = self._declaration(module.path, name, nbytes)
            found.append((variable.offset, CountedArray(name, "shared", shape, itemsize, 0)))
        return found

    def _read(self) -> tuple[np.ndarray, np.ndarray, bool]:
        """Read totals and records of the last launch, and whether records were left out."""
        start, left_out = ctypes.c_void_p(), ctypes.c_int()
        count = self._lib.emulator_count_totals(ctypes.byref(start))
        totals = _added(_copied(start.value, count, TOTAL))
        count = self._lib.emulator_count_records(ctypes.byref(start), ctypes.byref(left_out))
        records = _copied(start.value, count, RECORD)
        return totals, records[np.lexsort((records["warp"], records["block"]))], bool(left_out.value)

    def _names(self) -> tuple[str, ...]:
        names: list[str] = []
        while (name := self._lib.emulator_count_name(len(names))) is not None:
            names.append(name.decode())
        return tuple(names)

    def _lines(self, module: EmulatorModule, pcs: list[int]) -> dict[int, Place]:
        library, files = module.path, {path.name: path for path in source_files(module.source)}
        fresh = [pc for pc in pcs if (library, pc) not in self._places]
        for pc, (file, line) in zip(fresh, source_lines(library, fresh), strict=True):
            own = files.get(Path(file).name, file) if file else ""
            self._places[library, pc] = Place(str(own), line)
        return {pc: self._places[library, pc] for pc in pcs}


def _nbytes(array: CountedArray) -> int:
    return int(np.prod(array.shape, dtype=object)) * array.itemsize


def _copied(start: int | None, count: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Copy memory at an address to an array."""
    if not count or start is None:
        return np.empty(0, dtype)
    return np.frombuffer(ctypes.string_at(start, count * dtype.itemsize), dtype).copy()


def _added(totals: np.ndarray) -> np.ndarray:
    """Add up the totals of several workers."""
    # The others are variables of the compiler
    totals = totals[(totals["space"] != Space.NONE) | ~np.isin(totals["kind"], MEMORY)]
    keys = ["pc", "array", "kind", "space", "name", "bytes"]
    if not len(totals):
        return totals
    _, first, which = np.unique(totals[keys], return_index=True, return_inverse=True)
    added = totals[first]
    for name in set(totals.dtype.names or ()) - set(keys):
        added[name] = 0
        np.add.at(added[name], which.reshape(-1), totals[name])
    return added
