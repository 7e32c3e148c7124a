"""Check that a kernel calls only CUDA's functions in the emulator, and none of the emulator's own.

The runtime trusts what the emulator's headers tell it. In C++, a function of a namespace is found without
the name of the namespace if an argument has a type from it. Therefore, the callers are taken from the
debugging information: each call of the runtime must be in a header, and the function of the header that the
kernel file calls must not be the emulator's own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from mini_dnn.device.emulator.runtime_build import INCLUDE
from mini_dnn.device.sources import INCLUDE as PROJECT_INCLUDE
from mini_dnn.errors import CompileError
from mini_dnn.grading.confined.disassembly import Function

# Functions that macros call are left out
CALLED = re.compile(r"_ZN8emulator(?!5printE|4failE|14fail_assertionE)")
OWN = re.compile(r"_ZN8emulator(?P<bytes>\d+)(?P<rest>\w+)")
HEADERS = tuple(f"{folder}{os.sep}" for folder in (INCLUDE, PROJECT_INCLUDE))
Frames = Sequence[tuple[str, str]]  # functions and files, innermost first


def check_callers(library: Path, functions: Sequence[Function]) -> None:
    """Raise an error if the kernel file calls the emulator's own functions.

    Raises
    ------
    CompileError
        A call of such a function. The message names the function.
    """
    calls = {one.at: one for f in functions for one in f.code if CALLED.match(one.target_name)}
    for at, frames in zip(calls, _frames(library, list(calls)), strict=True):
        called = _called(frames, calls[at].target_name)
        if called:
            raise CompileError(
                f"FORBIDDEN: the kernel file calls {called}, a part of the emulator; use functions of CUDA"
            )


def _called(frames: Frames, target: str) -> str:
    """Return the emulator's own function that the kernel file calls here, or an empty string."""
    for function, file in frames:
        if not os.path.normpath(file).startswith(HEADERS):
            return target if _is_own(target) else ""
        target = function
    return ""  # in a function of a header that the runtime calls


def _is_own(name: str) -> bool:
    """Whether a function belongs to the emulator's namespace itself, not to one such as wmma in it."""
    match = OWN.match(name)
    return match is not None and match["rest"][int(match["bytes"])] in "EI"


def _frames(library: Path, addresses: Sequence[int]) -> list[Frames]:
    """Return the functions that were inlined at each address."""
    if not addresses:
        return []
    tool = shutil.which("addr2line")
    assert tool is not None, "it comes with readelf"
    words = [tool, "-a", "-i", "-f", "-e", str(library), *map(hex, addresses)]
    text = subprocess.run(words, capture_output=True, text=True, errors="replace", check=True).stdout
    parts = re.split(r"^0x[0-9a-f]+\n", text, flags=re.MULTILINE)[1:]
    return [re.findall(r"^(.*)\n(.*):(?:\d+|\?).*$", part, re.MULTILINE) for part in parts]
