"""Every error that mini_dnn raises on purpose.

``MiniDnnError``                an error that a user can correct; the command line prints it and exits with 2
├── ``ShapeError``              arrays whose rank, size or dtype do not fit together (also a ``ValueError``)
├── ``VariantError``            no such variant, or a broken ``variant.py``
│   └── ``LimitError``          a problem that a variant does not support
├── ``DeviceError``             no such device, no memory left, a missing driver
│   ├── ``CompileError``        a kernel that does not compile, with the compiler's message
│   │   └── ``SharedMemoryError``  a kernel with more static shared memory than a block may have
│   └── ``LaunchError``         a launch that is refused, or a kernel that fails
├── ``DataError``               data-set files that are missing, damaged or cannot be downloaded
├── ``PictureError``            a picture file that is missing, damaged, too large, or not a picture
├── ``WeightsError``            a weights file or checkpoint that is missing, damaged, or for another network
├── ``CheckError``              a result that differs from its float64 reference
└── ``UsageError``              arguments or flags that are unknown, missing, or cannot be combined

A message says what was requested, what was found, what is accepted, and the next step. For a mistyped name,
it also says which one was probably meant: see `meant`.
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
    """A variant that does not exist, is broken, or does not support the problem."""


class LimitError(VariantError):
    """A problem that exceeds a limit of a variant, which may support a smaller one."""


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
    """Return the operating system's message, without its number and the path of a temporary file."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "a file is where a folder is needed"
    # A list with source, target and message for each file that was not copied
    if isinstance(error, shutil.Error):
        return str(error.args[0][0][-1]).partition("] ")[2].partition(": '")[0]
    return error.strerror or str(error)


def where(error: BaseException, file: Path) -> str:
    """Return the error with the line of ``file`` that raised it."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}: {(error.text or '').strip()}"
    lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    at = f"line {lines[-1].lineno} ({lines[-1].line}): " if lines else ""
    return f"{at}{type(error).__name__}: {error}"


def nearest(word: str, known: Iterable[object]) -> str:
    """Return the known word that is most similar to this one, or an empty string if none is similar."""
    return next(iter(difflib.get_close_matches(word, [str(other) for other in known], 1)), "")


def meant(word: str, known: Iterable[object]) -> str:
    """Return `` (did you mean 'check'?)``, or an empty string if no known word is similar."""
    found = nearest(word, known)
    return f" (did you mean '{found}'?)" if found else ""


def meant_file(path: Path) -> str:
    """Suggest a path similar to one that does not exist, from the files next to it."""
    try:
        others = (other.name for other in path.parent.iterdir())
        hidden = path.name.startswith(".")  # a lock, for example, is rarely meant
        found = nearest(path.name, (name for name in others if name.startswith(".") == hidden))
    except OSError:  # its folder does not exist either, or is not readable
        return ""
    return f" (did you mean '{path.with_name(found)}'?)" if found and found != path.name else ""
