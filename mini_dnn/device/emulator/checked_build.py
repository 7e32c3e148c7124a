"""How checked mode builds a kernel library: through assembly, with space between its variables."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from mini_dnn.device.emulator.compiler import CHECKED_LINK_FLAGS, LINK_FLAGS, STORES_LINK_FLAGS, Compiler
from mini_dnn.device.emulator.unset import unset_section

REDZONE_BYTES = 256  # after each variable of a checked kernel file, at least this and at least its size
VARIABLE_END = re.compile(
    r"^\t\.size\t(?P<name>[\w.$]+), (?P<size>\d+)\n(?P=name):\n"
    r"(?:\t\.(?:zero|byte|value|long|quad|float|double|ascii|string)\b.*\n)+",
    re.MULTILINE,
)
CLANG_VARIABLE_END = re.compile(r"^\t\.size\t[\w.$]+, (?P<size>\d+)\n", re.MULTILINE)
# The patterns with which compilers fill uninitialised variables, of four or eight bytes; see checked/unset.h.
UNSET = re.compile(
    r"(?<![\w.-])(?:-16843010|4278124286|0xfefefefe|-72340172838076674|18374403900871474942)(?!\w)"
)
UNSET_BYTES = re.compile(
    r"\tmovl\t\$-2, (?P<register>%\w+)\n(?P<between>(?:\t(?:\.loc|\.cfi|vmovd\t(?P=register),).*\n)*)"
    r"\tvpbroadcastb\t(?P<operands>%\w+, %\w+)\n"
)
UNSET_CONSTANT = re.compile(
    r"^(\.LC\d+:\n)((?:\t\.byte\t-2\n\t\.byte\t-2\n\t\.byte\t-2\n\t\.byte\t-2\n)+)", re.MULTILINE
)
UNSET_FLOAT = 0x7FA5A5A5
BYTES = ("utf-8", "surrogateescape")  # clang++ writes the bytes of strings unchanged


def build_checked(
    compiler: Compiler, flags: list[str], wrapper: Path, runtime: Path, made: Path
) -> subprocess.CompletedProcess[str]:
    """Build through assembly code, in which each variable is followed by bytes that belong to no variable."""
    assembly = wrapper.with_suffix(".s")
    done = compiler.run([*flags, "-S", str(wrapper), "-o", str(assembly)])
    if not done.returncode:
        end = CLANG_VARIABLE_END if compiler.is_clang else VARIABLE_END
        text = end.sub(
            lambda m: f"{m[0]}\t.zero\t{max(REDZONE_BYTES, int(m['size']))}\n", assembly.read_text(*BYTES)
        )
        assembly.write_text(_with_signals(text) + unset_section(done.stderr), *BYTES)
        wraps = (*CHECKED_LINK_FLAGS, *STORES_LINK_FLAGS)
        done = compiler.run([*LINK_FLAGS, *wraps, str(assembly), str(runtime), "-o", str(made)])
    return done


def _with_signals(assembly: str) -> str:
    """Replace the compiler's fill pattern by signalling numbers."""
    fills = rf"\tmovl\t${UNSET_FLOAT}, \g<register>\n\g<between>\tvpbroadcastd\t\g<operands>\n"
    constant = lambda m: m[1] + f"\t.long\t{UNSET_FLOAT}\n" * (m[2].count("\n") // 4)  # noqa: E731
    return UNSET_CONSTANT.sub(constant, UNSET_BYTES.sub(fills, UNSET.sub(_unset, assembly)))


def _unset(match: re.Match[str]) -> str:
    long = len(match[0].lstrip("-")) > 10
    return str(UNSET_FLOAT * (1 + (1 << 32)) if long else UNSET_FLOAT)
