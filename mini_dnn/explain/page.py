"""The page: data of one or two variants and the code that shows them, in one self-contained file."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from mini_dnn.device.emulator.counted import CountedArray, Place
from mini_dnn.device.emulator.counted_interface import EventKind, Space
from mini_dnn.device.sources import read_source
from mini_dnn.explain.blocks import NO_LINE, Tables, encode
from mini_dnn.explain.collect import worth_a_look
from mini_dnn.explain.findings import Finding, findings
from mini_dnn.explain.kernels import Counted
from mini_dnn.paths import PACKAGE, ROOT
from mini_dnn.profiling.counters import Access, Branch, Call, Counters, Work
from mini_dnn.variant import Variant

WEB = Path(__file__).parent / "web"
SCRIPTS = ("data.js", "source.js", "warp.js", "block.js", "grid.js", "main.js")
EMULATOR = PACKAGE / "device" / "emulator"
MARK = '<meta name="generator" content="mini_dnn explain">'  # marks our pages, which may be replaced
MOST_SHOWN = 60_000  # records of a page, about 2 MB
LINE_BYTES = 128
SPACES = {"another block's shared": "remote"}  # the page uses another word
NOTHING = dict.fromkeys(
    ("instructions", "lanes", "splits", "sectors", "ideal", "wavefronts", "ideal_wavefronts", "products"), 0
) | {"space": "none"}
NOTE = (
    "Counted by mini_dnn's emulator, which runs the kernel's source: addresses, lanes, sectors and banks are "
    "exact for that source. A compiler may merge or drop an access, and no figure on this page predicts a "
    "time."
)


def page(shown: Sequence[tuple[Variant, Any, Sequence[Counted]]]) -> str:
    """Return the page as HTML text.

    Parameters
    ----------
    shown
        The variant, its problem and its kernels. A second entry is the variant that it is compared with.
    """
    sizes = [
        len(trace.records) for _, _, found in shown for kernel in found for trace in kernel.traces.values()
    ]
    most = level(sizes, MOST_SHOWN)
    data = {
        "kinds": [kind.name.lower() for kind in EventKind],
        "spaces": [space.name.lower() for space in Space],
        "note": NOTE,
        "variants": [_variant(*one, most=most) for one in shown],
    }
    text = json.dumps(data, separators=(",", ":"), default=int)
    return Template((WEB / "page.html").read_text()).substitute(
        title=html.escape(f"{shown[0][0].name}, explained"),
        style=(WEB / "style.css").read_text(),
        script="\n".join((WEB / name).read_text() for name in SCRIPTS),
        data=text.replace("<", "\\u003c"),  # data must not end the script
    )


def level(sizes: Sequence[int], room: int) -> int:
    """Return the largest size that can be kept of each, so that all together fit in ``room``."""
    left = len(sizes)
    for size in sorted(sizes):
        if size * left > room:
            return room // left
        room, left = room - size, left - 1
    return max(sizes, default=0)


def _variant(variant: Variant, problem: Any, kernels: Sequence[Counted], most: int) -> dict[str, Any]:
    files = _files(kernels, variant.source)
    numbers = {str(file): i for i, file in enumerate(files)}
    return {
        "name": variant.name,
        "idea": variant.idea,
        "problem": f"{variant.op}, {problem}",
        "files": [{"name": _shown(file, variant), "text": read_source(file).splitlines()} for file in files],
        "kernels": [_kernel(kernel, numbers, most) for kernel in kernels],
    }


def _files(kernels: Sequence[Counted], source: Path) -> list[Path]:
    """The kernel's file, then the other files that have lines in it, except for the emulator's."""
    source = source.resolve()
    others = {Path(place.file) for kernel in kernels for place in kernel.launch.places.values()}
    shown = sorted(
        file for file in others if file.is_file() and file != source and not file.is_relative_to(EMULATOR)
    )
    return [source, *(file for file in shown if file.name != "wrapper.cpp")]


def _shown(file: Path, variant: Variant) -> str:
    for folder in (variant.folder, ROOT):
        if file.is_relative_to(folder):
            return str(file.relative_to(folder))
    return file.name


def _array(array: CountedArray) -> dict[str, Any]:
    return {
        "name": array.name,
        "memory": array.memory,
        "shape": list(array.shape),
        "item": array.itemsize,
        "start": array.address % LINE_BYTES,
    }


def _kernel(kernel: Counted, numbers: Mapping[str, int], most: int) -> dict[str, Any]:
    launch = kernel.launch
    lines = {
        place: (numbers[place.file], place.line) for place in launch.places.values() if place.file in numbers
    }
    tables = Tables(launch, lines)
    names = [array.name for array in launch.arrays]
    chosen = [kernel.traces[block] for block in worth_a_look(launch.grid) if block in kernel.traces]
    blocks = [encode(trace, launch, tables, most) for trace in chosen]
    return {
        "name": kernel.name,
        "launches": kernel.counters.launches,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "shared": kernel.counters.shared_bytes,
        "names": list(launch.names),
        "arrays": [_array(array) for array in launch.arrays],
        "counts": list(_counts(kernel.counters, numbers)),
        "findings": [_finding(finding, numbers, names) for finding in findings(kernel)],
        "operations": tables.operations,
        "patterns": tables.patterns,
        "blocks": blocks,
    }


def _counts(counters: Counters, numbers: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """The totals of lines: a row for each access, call, kind of arithmetic and branch."""
    for access in counters.accesses:
        best = access.ideal_wavefronts
        is_copy = access.operation.startswith("copy")
        of_tile = access.operation.startswith("tile")  # the hardware defines the order of the lanes
        yield {
            **_row(access, numbers),
            "space": SPACES.get(access.memory, access.memory),
            "instructions": 0 if is_copy else access.instructions,  # one lane starts it for many
            "lanes": 0 if is_copy else access.lanes,
            "sectors": access.sectors,
            "ideal": min(access.sectors, access.ideal_sectors),  # a broadcast needs fewer
            "wavefronts": best if of_tile else access.wavefronts,
            "ideal_wavefronts": best,
        }
    for call in counters.calls:
        yield {**_row(call, numbers), "products": call.products}
    for work in counters.work:
        yield {**_row(work, numbers), "products": work.ffma}
    for branch in counters.branches:
        yield {**_row(branch, numbers), "splits": branch.splits}


def _row(row: Access | Call | Work | Branch, numbers: Mapping[str, int]) -> dict[str, Any]:
    return NOTHING | {"file": numbers.get(row.file, NO_LINE), "line": row.line}


def _finding(finding: Finding, numbers: Mapping[str, int], arrays: Sequence[str]) -> dict[str, Any]:
    place = finding.place or Place("", 0)
    return {
        "kind": finding.kind,
        "title": finding.title,
        "what": finding.what,
        "cure": finding.cure,
        "file": numbers.get(place.file, 0),
        "line": place.line if place.file in numbers else 0,
        "array": arrays.index(finding.array) if finding.array else -1,
    }
