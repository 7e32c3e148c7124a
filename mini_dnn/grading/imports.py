"""What a kernel file compiled for the emulator may call: what a kernel on a GPU could."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from mini_dnn.errors import CompileError

_MATH = (
    r"a?(?:sin|cos|tan)h?|atan2|sincos|exp(?:2|10|m1)?|log(?:2|10|1p|b)?|pow|sqrt|cbrt|hypot|"
    r"f(?:abs|max|min|mod|ma|dim)|floor|ceil|trunc|l?l?r(?:ound|int)|round|nearbyint|remainder|remquo|"
    r"ldexp|frexp|modf|scalbl?n|ilogb|erfc?|[tl]gamma|copysign|nextafter|nan"
)
ALLOWED = re.compile(
    r"_ZN8emulator(?:10block_vote|10note_write|12warp_barrier|13block_barrier|13linear_thread|15converged_lanes|"
    r"4fail|5print|5yield|9note_read|9note_tile)\w*|threadIdx|blockIdx|blockDim|gridDim|"
    r"__tsan_\w+|__ubsan_handle_\w+|__gmon_start__|_ITM_\w+|__tls_get_addr|__cxa_finalize|__gxx_personality_v0|"
    rf"_Unwind_Resume|mem(?:set|cpy|move|cmp)|(?:{_MATH})[fl]?"
)
UNDEFINED = re.compile(r" UND +(?P<name>[\w.$]+)")


def check(library: Path) -> None:
    """Refuse a compiled kernel library that calls what no kernel can: files, processes, the clock ...

    It is for the words of the refusal: what a kernel really does meets the sandbox.

    Raises
    ------
    CompileError
        Names the functions.
    """
    readelf = shutil.which("readelf")
    if readelf is None:
        raise CompileError("readelf was not found; grading on the emulator needs binutils")
    done = subprocess.run(
        [readelf, "-W", "--dyn-syms", str(library)], capture_output=True, text=True, check=True
    )
    foreign = [name for name in UNDEFINED.findall(done.stdout) if not ALLOWED.fullmatch(name)]
    if foreign:
        raise CompileError(
            f"FORBIDDEN: the kernel file uses {', '.join(foreign[:5])}, which no kernel has on a GPU"
        )
