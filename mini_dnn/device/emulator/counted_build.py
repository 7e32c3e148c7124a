"""How counted mode builds a kernel library: with the loops unrolled that nvcc unrolls."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from mini_dnn.device.emulator.compiler import CHECKED_LINK_FLAGS, LINK_FLAGS, Compiler

LOOP = r"(?=\n(?:[ \t]*(?:#.*)?\n)*[ \t]*(?:for|while|do)\b)"  # elsewhere g++ accepts no pragma
UNROLL = re.compile(rf"^(?P<pragma>[ \t]*#[ \t]*pragma)[ \t]+unroll\b(?P<times>.*){LOOP}", re.MULTILINE)
MOST_TIMES = 64  # iterations of a loop that nvcc is told to unroll


def build_counted(
    compiler: Compiler, flags: list[str], wrapper: Path, runtime: Path, made: Path
) -> subprocess.CompletedProcess[str]:
    """Preprocess, compile and link, one after the other: g++ would link the sanitizer's own runtime."""
    text, code = wrapper.with_suffix(".ii"), wrapper.with_suffix(".o")
    done = compiler.run([*flags, "-E", str(wrapper), "-o", str(text)])
    if not done.returncode:
        text.write_text(unrolled(text.read_text(errors="surrogateescape")), errors="surrogateescape")
        done = compiler.run([*flags, "-c", str(text), "-o", str(code)])
    if not done.returncode:
        done = compiler.run([*LINK_FLAGS, *CHECKED_LINK_FLAGS, str(code), str(runtime), "-o", str(made)])
    return done


def unrolled(text: str) -> str:
    """Preprocessed code with nvcc's ``#pragma unroll`` in the words of g++.

    A loop that nvcc unrolls in part is left to g++, which unrolls all of it if it knows how long it is.
    """

    def pragma(found: re.Match[str]) -> str:
        times = found["times"].strip().strip("()").strip()
        if times in ("", "1"):
            return f"{found['pragma']} GCC unroll {times or MOST_TIMES}"
        return ""

    return UNROLL.sub(pragma, text)
