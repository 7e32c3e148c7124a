"""What a kernel file compiled for the emulator may contain and call: only what is possible on a GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

from mini_dnn.device.emulator.build import preprocessed
from mini_dnn.device.emulator.compiler import Compiler, find_compiler
from mini_dnn.device.emulator.judged import Judged
from mini_dnn.errors import CompileError
from mini_dnn.grading.confined import object_code

_MATH = (
    r"a?(?:sin|cos|tan)h?|atan2|exp(?:2|10|m1)?|log(?:2|10|1p|b)?|pow|sqrt|cbrt|hypot|"
    r"f(?:abs|max|min|mod|ma|dim)|floor|ceil|trunc|l?l?r(?:ound|int)|round|nearbyint|remainder|"
    r"ldexp|scalbl?n|ilogb|erfc?|[tl]gamma|copysign|nextafter"
)
_STORES = r"(?:frexp|modf|remquo|sincos)f?"  # these store to an address that they are given
ALLOWED = re.compile(
    r"_ZN8emulator\w+|threadIdx|blockIdx|blockDim|gridDim|"  # the parts of the runtime that kernels may see
    r"__gmon_start__|_ITM_\w+|__tls_get_addr|_ZTVN10__cxxabiv1\w+|__cxa_(?:finalize|pure_virtual)|__stack_chk_fail|"
    rf"__wrap_(?:malloc|free|_Zn[wa]m\w*|_Zd[la]Pv\w*)|clock|mem(?:set|cpy|move|cmp)|(?:{_MATH})f?"
)
# Functions that checked mode inserts
CHECKS = re.compile(
    rf"__tsan_\w+|__ubsan_handle_\w+|__wrap_(?:mem(?:cpy|move|set)|{_STORES})|__x86_indirect_thunk_\w+"
)
# The same without checked mode. The other functions store or jump to an address in their argument. Checked
# mode is compiled without exceptions and needs none of them.
UNHOOKED = re.compile(
    rf"{_STORES}|__cxa_(?:guard_\w+|begin_catch)|__gxx_personality_v0|_Unwind_Resume|_ZSt9terminatev"
)
# g++'s own functions that neither store nor reveal how the file is compiled
_BUILTINS = (
    r"expect\w*|unreachable|trap|assume\w*|(?:popcount|clz|ctz|ffs|clrsb|parity)l{0,2}|bswap\d+|bit_cast|offsetof|"
    r"addressof|launder|is_constant_evaluated|types_compatible_p|LINE|FILE|FUNCTION|prefetch|shuffle\w*|"
    r"convertvector|(?:add|sub|mul)_overflow|nan|(?:inf|huge_val|nan|fabs|fma|fmax|fmin|sqrt)f?|"
    r"is(?:nan|inf|finite|normal)|signbit|va_\w+"
)
# Assembly, functions that are left unchecked, machine code as data, instructions unknown to the checks
UNCHECKED = re.compile(
    r"\b_{0,2}asm(?:__)?\b|\bno_sanitize\w*|\bno_instrument\w*|\b_{0,2}section(?:__)?\s*\(\s*\"|"
    rf"\b__builtin_(?!(?:{_BUILTINS})\b)\w+|\b__\w+_chk\b|\b_mm\d*_\w+|"
    # A function by a name that exists only as text
    r"\b_{0,2}(?:alias|weakref|ifunc|symver)(?:__)?\s*\(\s*(?:u8|[uUL])?R?\"|"
    r"\bemulator\b(?!\s*::\s*(?:print|fail_assertion)\b)|\b_ZN?K?8emulator\w*"  # behind CUDA's functions
)
TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"')
MARKER = re.compile(r'# \d+ "(?P<file>(?:[^"\\]|\\.)*)"(?P<enters> 1)?[ \d]*')
INCLUDE = re.compile(r"""#(?:include|include_next|import) (?:<[^>]*>|"[^"]*")""")
UNDEFINED = re.compile(r" UND +(?P<name>[\w.$]+)")


def check_source(source: Path, defines: Mapping[str, int], compiler: Compiler) -> None:
    """Raise an error for code that checked mode would not see: assembly, or functions left unchecked.

    PTX is compiled only for GPUs (``#ifndef MINI_DNN_EMULATOR``), so it does not appear here.

    Raises
    ------
    CompileError
        Such code was found. The message names it.
    """
    folder = source.resolve().parent
    own, others, includes = _split(preprocessed(source, defines, compiler, True), folder)
    if own != _split(preprocessed(source, defines, compiler, False), folder)[0]:
        raise CompileError(
            "FORBIDDEN: the kernel file is different in checked mode; remove the code that tests "
            "for this mode"
        )
    text = "\n".join(own)
    found = UNCHECKED.search(text if 'R"' in text else TEXT.sub(_without_text, text))
    if found:
        raise CompileError(
            f"FORBIDDEN: the kernel file has {found[0]!r}, which would hide code from checked mode"
        )
    # Macros must not change headers or the lines that the build appends, which the checks trust
    alone = _split(preprocessed(source, defines, compiler, True, includes), folder)[1]
    for line, expected in zip_longest(others, alone, fillvalue=""):
        if line != expected:
            raise CompileError(
                "the kernel file changes text of another file, which would hide code from checked mode: "
                f"{(line or expected).strip()[:200]!r}; include headers before macros are defined, and "
                "remove #line"
            )


def _without_text(match: re.Match[str]) -> str:
    """Remove strings that are printed, which hide nothing.

    Names of sections stay: the compiler obeys them.
    """
    before = match.string[max(0, match.start() - 16) : match.start()].rstrip()
    return match[0] if re.search(r"\b_{0,2}section(?:__)?\s*\($", before) else '""'


def _split(text: str, folder: Path) -> tuple[list[str], list[str], list[str]]:
    """Return a preprocessed text's lines from files of a folder, its other lines, and the directives between.

    The directives are those by which files of the folder include others.
    """
    own: list[str] = []
    others: list[str] = []
    includes: list[str] = []
    is_own, directive = False, ""
    for line in filter(None, text.split("\n")):
        marker = MARKER.fullmatch(line)
        if marker:
            if "\\" in marker["file"]:
                raise CompileError(f"the file {marker['file']} has a name with a backslash; rename it")
            was_own, is_own = is_own, Path(marker["file"]).is_relative_to(folder)
            if marker["enters"]:
                includes += [directive] if was_own and not is_own else []
                directive = ""
        elif INCLUDE.fullmatch(line):
            directive = line
        else:
            (own if is_own else others).append(line)
    return own, others, includes


def check_library(library: Path, checked: bool = False) -> None:
    """Raise an error if a kernel library calls what kernels cannot call: files, processes, the clock ...

    This check exists for its clear message. The sandbox stops the calls in any case.

    Parameters
    ----------
    checked
        Whether it was compiled for checked mode. Another library that calls the functions of checked mode
        wants to find out where it runs.

    Raises
    ------
    CompileError
        Such functions were found. The message names them.
    """
    readelf = shutil.which("readelf")
    assert readelf is not None, "the grader has looked"
    done = subprocess.run(
        [readelf, "-W", "--dyn-syms", str(library)], capture_output=True, text=True, check=True
    )
    if checked:
        decides = object_code.can_be_decided() and not find_compiler().is_clang
        (object_code.check_code(library) if decides else Judged({}, [])).keep(library)
    known = CHECKS if checked else UNHOOKED
    names = [name for name in UNDEFINED.findall(done.stdout) if not known.fullmatch(name)]
    foreign = [name for name in names if not ALLOWED.fullmatch(name)]
    if foreign:
        raise CompileError(
            f"the kernel file uses {', '.join(foreign[:5])}, which kernels cannot use on a GPU"
        )
