"""Every error that mini_dnn raises on purpose.

``MiniDnnError``                something a user can put right; the command line prints it and exits with 2
├── ``ShapeError``              arrays whose rank, size or dtype do not fit together (also a ``ValueError``)
├── ``VariantError``            no such variant, a broken ``variant.py``, or a shape that the variant refuses
├── ``DeviceError``             no such device, no memory left, a driver that is missing
│   ├── ``CompileError``        a kernel that does not compile; carries the compiler's own words
│   │   └── ``SharedMemoryError``  a kernel with more static shared memory than a block may have
│   └── ``LaunchError``         a launch that is refused, or that fails while it runs
├── ``DataError``               data-set files that are missing, damaged or cannot be fetched
├── ``PictureError``            a picture's file that is missing, damaged, too large or no picture
├── ``WeightsError``            a weights file or checkpoint that is missing, damaged or of another network
├── ``CheckError``              a result that differs from its float64 reference
└── ``UsageError``              flags of the command line that make no sense together

A message says what was asked, what was found, what would be accepted, and the next step.
Where a name is mistyped, it also says which one was probably meant: see `meant`.
"""

from __future__ import annotations

import difflib
import shutil
import traceback
from collections.abc import Iterable
from pathlib import Path


class MiniDnnError(Exception):
    """Base class of all errors that mini_dnn raises on purpose."""


class ShapeError(MiniDnnError, ValueError):
    """Arrays whose rank, size or dtype do not fit together."""


class VariantError(MiniDnnError):
    """A variant that does not exist, is broken, or refuses the shape."""


class DeviceError(MiniDnnError):
    """A device that is not available, or that has run out of memory or another resource."""


class CompileError(DeviceError):
    """A kernel that does not compile."""


class SharedMemoryError(CompileError):
    """A kernel with more static shared memory than a block may have."""

    def __init__(self, message: str, kernel: str) -> None:
        super().__init__(message)
        self.kernel = kernel


class LaunchError(DeviceError):
    """A launch that was refused, or that failed while it ran."""


class DataError(MiniDnnError):
    """Data-set files that are missing, damaged or cannot be fetched."""


class PictureError(MiniDnnError):
    """A picture file that is missing, damaged, too large, or not a picture."""


class WeightsError(MiniDnnError):
    """A weights file or checkpoint that is missing, damaged, or for another network."""


class CheckError(MiniDnnError):
    """A result that differs from its float64 reference."""


class UsageError(MiniDnnError):
    """Arguments or flags that are unknown, missing, or cannot be combined."""


def reason(error: OSError) -> str:
    """What the operating system reports, without its number and the path of a temporary file."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "a file is where a folder is needed"
    if isinstance(error, shutil.Error):  # a list: source, target and text of each file that was not copied
        return str(error.args[0][0][-1]).partition("] ")[2].partition(": '")[0]
    return error.strerror or str(error)


def where(error: BaseException, file: Path) -> str:
    """The error with the line of ``file`` that raised it."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}: {(error.text or '').strip()}"
    lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    at = f"line {lines[-1].lineno} ({lines[-1].line}): " if lines else ""
    return f"{at}{type(error).__name__}: {error}"


def nearest(word: str, known: Iterable[object]) -> str:
    """The known word that is most like this one; empty if none is like it."""
    return next(iter(difflib.get_close_matches(word, [str(other) for other in known], 1)), "")


def meant(word: str, known: Iterable[object]) -> str:
    """`` (did you mean 'check'?)``, or nothing where no known word is like this one."""
    found = nearest(word, known)
    return f" (did you mean '{found}'?)" if found else ""


def meant_file(path: Path) -> str:
    """The same for the path of a file or a folder that is not there, from what lies beside it."""
    try:
        found = nearest(path.name, (other.name for other in path.parent.iterdir()))
    except OSError:  # its folder is not there either, or is not readable
        return ""
    return f" (did you mean '{path.with_name(found)}'?)" if found and found != path.name else ""
