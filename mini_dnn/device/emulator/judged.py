"""What the grader found in a library's machine code, for the checked runtime to watch.

It is stored next to the library. `run.py check` does not need it: it protects the verdict from the kernel.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mini_dnn.device.cache import store, stored
from mini_dnn.device.emulator.checked_interface import CEntry, CKept, CTarget
from mini_dnn.errors import DeviceError

FRAME_BYTES = 8  # from the beginning of a stack to the end of a function's variables: rbp


class Kept(NamedTuple):
    """A place on the stack that must not change while a function runs: the fields of `CKept`."""

    start: int  # the function's address
    end: int
    low: int  # bytes from the beginning of its stack,
    alignment: int  # rounded down to a multiple of this,
    offset: int  # plus this offset


@dataclass(frozen=True)
class Judged:
    """Addresses are relative to the beginning of the library.

    Attributes
    ----------
    entries
        Functions that may be called through pointers, with the bytes of a structure that each returns in
        memory.
    kept
        Places in frames that nobody else may change.
    """

    entries: dict[int, int]
    kept: list[Kept]

    def keep(self, library: Path) -> None:
        """Store it next to a library.

        Raises
        ------
        DeviceError
            The folder is not writable.
        """
        text = json.dumps({"entries": list(self.entries.items()), "kept": self.kept})
        if not store(_place(library), text.encode()):
            raise DeviceError(f"{library.parent} cannot store the findings about {library.name}")

    @classmethod
    def of(cls, library: Path) -> Judged | None:
        """Load what is stored for a library, or return None if it was never analysed."""
        text = stored(_place(library))
        if text is None:
            return None
        values = json.loads(text)
        return cls(dict(values["entries"]), [Kept(*each) for each in values["kept"]])

    def fill(self, target: CTarget) -> None:
        """Pass the contents to the runtime."""
        target.entries = (CEntry * len(self.entries))(*(CEntry(*pair) for pair in self.entries.items()))
        target.entry_count = len(self.entries)
        target.kept = (CKept * len(self.kept))(*(CKept(*each) for each in sorted(self.kept)))
        target.kept_count = len(self.kept)
        lowest = (each.low - each.alignment + 1 + each.offset for each in self.kept)
        target.kept_bytes = max(-FRAME_BYTES - min(lowest, default=0), 0)
        target.is_judged = True


def _place(library: Path) -> Path:
    return library.with_suffix(".judged.json")
