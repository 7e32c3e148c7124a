"""How counted mode builds a kernel library: it unrolls the loops that nvcc unrolls."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from mini_dnn.device.emulator.compiler import CHECKED_LINK_FLAGS, LINK_FLAGS, Compiler

LOOP = r"(?=\n(?:[ \t]*(?:#.*)?\n)*[ \t]*(?:for|while|do)\b)"  # g++ accepts the pragma nowhere else
UNROLL = re.compile(rf"^(?P<pragma>[ \t]*#[ \t]*pragma)[ \t]+unroll\b(?P<times>.*){LOOP}", re.MULTILINE)
MOST_TIMES = 64  # iterations of a loop with nvcc's unroll pragma


def build_counted(
    compiler: Compiler, flags: list[str], wrapper: Path, runtime: Path, made: Path
) -> subprocess.CompletedProcess[str]:
    """Preprocess, compile and link separately, because g++ would link the sanitizer's own runtime."""
    text, code = wrapper.with_suffix(".ii"), wrapper.with_suffix(".o")
    done = compiler.run([*flags, "-E", str(wrapper), "-o", str(text)])
    if not done.returncode:
        text.write_text(unrolled(text.read_text(errors="surrogateescape")), errors="surrogateescape")
        done = compiler.run([*flags, "-c", str(text), "-o", str(code)])
    if not done.returncode:
        done = compiler.run([*LINK_FLAGS, *CHECKED_LINK_FLAGS, str(code), str(runtime), "-o", str(made)])
    return done


def unrolled(text: str) -> str:
    """Replace nvcc's ``#pragma unroll`` in preprocessed code with that of g++.

    A loop that nvcc unrolls in part is left to g++, which unrolls it completely if it knows its length.
    """

    def pragma(found: re.Match[str]) -> str:
        times = found["times"].strip().strip("()").strip()
        if times in ("", "1"):
            return f"{found['pragma']} GCC unroll {times or MOST_TIMES}"
        return ""

    return UNROLL.sub(pragma, text)
