"""Declarations in a kernel file that its library does not reveal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mini_dnn.device.emulator.memory import EmulatorBuffer
from mini_dnn.device.sources import read_source, source_files

DYNAMIC_ARRAY = re.compile(r"extern\s+__shared__[^;]*?(\w+)\s*\[\s*\]")


def read_only_and_not(source: Path, kernel: str, args: Sequence[object]) -> set[int]:
    """Return addresses of buffers passed both as ``const T* __restrict__`` and as another pointer."""
    places = [arg.address if isinstance(arg, EmulatorBuffer) else None for arg in args]
    twice = {place for place in places if place and places.count(place) > 1}
    if not twice:
        return set()
    texts = (read_source(path) for path in source_files(source))
    match = next((m for text in texts if (m := re.search(rf"\b{kernel}\s*\(([^)]*)\)\s*\{{", text))), None)
    if not match:
        return set()
    declared = [text.split() for text in match[1].replace("*", " * ").split(",")]
    read_only = [{"const", "*", "__restrict__"} <= set(words) for words in declared]
    if len(read_only) != len(places):
        return set()
    kinds = {
        place: {own for own, at in zip(read_only, places, strict=True) if at == place} for place in twice
    }
    return {place for place, own in kinds.items() if len(own) == 2}


def dynamic_name(source: Path) -> str:
    """The name of the array in a kernel file's dynamic shared memory."""
    match = DYNAMIC_ARRAY.search(read_source(source))
    return match[1] if match else "dynamic shared memory"
