"""The correct classes of pictures: an array in a file, or a text file with a line for each picture."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mini_dnn.errors import UsageError
from mini_dnn.paths import open_regular
from mini_dnn.pictures.stacks import is_stack, named_array, opened, reason

PART = 65_536  # labels that are read at a time
MOST_LINE = 1000  # bytes


@dataclass(frozen=True)
class Labels:
    """Labels in the order of the pictures. They are read again in each iteration, and not kept in memory.

    Parameters
    ----------
    name
        ``FILE.npy``, ``FILE.h5:ARRAY``, or a text file with a class on each line: its number or its name.
    classes
        Names, in the order of their numbers.
    """

    name: str
    classes: Sequence[str]

    def check(self, count: int) -> None:
        """Check the labels for so many pictures, before the work.

        Raises
        ------
        UsageError
            They cannot be read, one is not a class, or their number is wrong.
        """
        found = sum(1 for _ in self)
        if found != count:
            raise UsageError(
                f"--labels {self.name} has {found:,} labels for {count:,} pictures; expected one for each "
                "picture, in the same order, also for those that cannot be read"
            )

    def __iter__(self) -> Iterator[int]:
        """The number of each class."""
        try:
            yield from self._of_array() if is_stack(self.name) else self._of_text()
        except (OSError, ValueError, EOFError, KeyError) as error:
            raise UsageError(
                f"--labels {self.name} cannot be used: {reason(error)}; expected a class a line, by its name "
                f"or its number from 0 to {len(self.classes) - 1}, or an array (N,) of such numbers in "
                "FILE.npy or FILE.h5:ARRAY"
            ) from error

    def _of_array(self) -> Iterator[int]:
        path, array = named_array(self.name)
        with opened(path, array) as labels:
            if labels.ndim != 1 or labels.dtype.kind not in "iu":
                raise ValueError(f"it holds {labels.shape} {labels.dtype}")
            for first in range(0, len(labels), PART):
                part = np.asarray(labels[first : first + PART])
                wrong = np.flatnonzero((part < 0) | (part >= len(self.classes)))
                if len(wrong):
                    raise ValueError(f"label {first + wrong[0]} is {part[wrong[0]]}")
                yield from part.tolist()

    def _of_text(self) -> Iterator[int]:
        numbers = {str(number): number for number in range(len(self.classes))}
        numbers |= {name: number for number, name in enumerate(self.classes) if name not in numbers}
        names = Counter(self.classes)
        with open_regular(Path(self.name)) as file:
            for at, line in enumerate(iter(lambda: file.readline(MOST_LINE), b""), 1):
                if at == 1:
                    line = line.removeprefix(BOM_UTF8)  # editors may write a byte order mark
                word = line.decode(errors="replace").strip()
                if not word:
                    continue
                if word not in numbers:
                    raise ValueError(f"line {at} is {word!r:.80}")
                if names[word] > 1:
                    raise ValueError(f"line {at} is {word!r:.80}, which is the name of several classes")
                yield numbers[word]
