"""What the grader has found in the machine code of a library, for the runtime of checked mode to look after.

It lies beside the library. `run.py check` needs none of it: it protects the verdict from the kernel.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mini_dnn.device.cache import store, stored
from mini_dnn.device.emulator.checked_interface import CEntry, CKept, CTarget
from mini_dnn.errors import DeviceError

FRAME_BYTES = 8  # from where a stack begins to where a function's variables end: rbp


class Kept(NamedTuple):
    """A place on the stack that nobody may change while a function runs: the fields of `CKept`."""

    start: int  # of the function
    end: int
    low: int  # bytes from where its stack begins,
    alignment: int  # rounded down to a multiple of this,
    offset: int  # and from there on


@dataclass(frozen=True)
class Judged:
    """Places count from where the library begins.

    Attributes
    ----------
    entries
        Functions that may be called by pointers, and how many bytes of a structure each returns in memory.
    kept
        Where frames hold what nobody else may change.
    """

    entries: dict[int, int]
    kept: list[Kept]

    def keep(self, library: Path) -> None:
        """Write it down beside a library.

        Raises
        ------
        DeviceError
            The folder does not take it.
        """
        text = json.dumps({"entries": list(self.entries.items()), "kept": self.kept})
        if not store(_place(library), text.encode()):
            raise DeviceError(f"{library.parent} cannot store the findings about {library.name}")

    @classmethod
    def of(cls, library: Path) -> Judged | None:
        """What is known of a library; None: nobody has looked."""
        text = stored(_place(library))
        if text is None:
            return None
        values = json.loads(text)
        return cls(dict(values["entries"]), [Kept(*each) for each in values["kept"]])

    def fill(self, target: CTarget) -> None:
        """Tell the runtime."""
        target.entries = (CEntry * len(self.entries))(*(CEntry(*pair) for pair in self.entries.items()))
        target.entry_count = len(self.entries)
        target.kept = (CKept * len(self.kept))(*(CKept(*each) for each in sorted(self.kept)))
        target.kept_count = len(self.kept)
        lowest = (each.low - each.alignment + 1 + each.offset for each in self.kept)
        target.kept_bytes = max(-FRAME_BYTES - min(lowest, default=0), 0)
        target.is_judged = True


def _place(library: Path) -> Path:
    return library.with_suffix(".judged.json")
