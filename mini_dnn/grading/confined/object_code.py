"""The requirements for a kernel library of checked mode, checked on its machine code.

The same thing can be written in a source in many ways, but the compiler's output shows what it does. The
requirements are: each memory access is reported to a hook of the runtime, no function replaces such a hook,
and control goes only to the beginnings of functions.
"""

from __future__ import annotations

import gc
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from mini_dnn.device.emulator.judged import Judged, Kept
from mini_dnn.errors import CompileError
from mini_dnn.grading.confined.accesses import follow
from mini_dnn.grading.confined.callers import check_callers
from mini_dnn.grading.confined.disassembly import Function, Memory, disassemble
from mini_dnn.grading.confined.followed import Call, Followed, Unseen, changes
from mini_dnn.grading.confined.image import ORIGINS, THUNK, TOP, Image
from mini_dnn.grading.confined.returned import kept_slots, misplaced, needed_room
from mini_dnn.grading.confined.values import unknown

# Functions of g++ itself and of the emulator's headers. The latter read what lanes exchange, which was
# reported to the runtime before. Only the runtime calls them.
STARTUP = (
    "_init",
    "_fini",
    "deregister_tm_clones",
    "register_tm_clones",
    "__do_global_dtors_aux",
    "frame_dummy",
)
HEADERS = re.compile(
    r"_ZN8emulator(?:4StubI\w+E(?:3run|4call)|3ptx8matrices(?:1[07]whole_warp|4turn)|4wmma7product|16halves_to_floats)"
)
RUNTIME = re.compile(
    rf"__tsan_|__ubsan_|__wrap_|{THUNK}|_ZN8emulator(?:9note_read|10note_write|9note_tile|9check_set)|"
    r"__stack_chk_fail|_Unwind_Resume|_ZSt9terminatev"
)
DEFINED = re.compile(
    r"^ *\d+: (?P<at>[0-9a-f]+) +\S+ (?P<type>\w+) +\w+ +\w+ +\d+ (?P<name>\S+)", re.MULTILINE
)
SECTION = re.compile(
    r"^ *\[ *\d+\] (?P<name>\S+) +\S+ +(?P<at>[0-9a-f]+) [0-9a-f]+ (?P<size>[0-9a-f]+) \S+ "
    r"+(?P<flags>[A-Zxop]*) ",
    re.MULTILINE,
)
RELOCATION = re.compile(r"^(?P<at>[0-9a-f]+) .*R_X86_64_RELATIVE\s+(?P<to>[0-9a-f]+)", re.MULTILINE)
FIXED = (".got", ".data.rel.ro", ".dynamic", ".got.plt")  # only the loader writes to these
CALLS_CURE = "call functions by their names, or by pointers to them"
CURE = "read and write memory in plain C++, with memcpy, or with functions of CUDA"


def can_be_decided() -> bool:
    """Whether the analysis knows this processor's machine code."""
    return platform.machine() == "x86_64" and shutil.which("objdump") is not None


def check_code(library: Path) -> Judged:
    """Raise an error if checked mode would not notice something that a library for it does.

    Returns
    -------
    Judged
        What the runtime must watch.

    Raises
    ------
    CompileError
        Such code was found. The message names the function, and what to do instead.
    """
    with _without_collection():
        return _check_code(library)


def _check_code(library: Path) -> Judged:
    objdump = shutil.which("objdump")
    assert objdump is not None, "the grader has looked"
    symbols = _read("-sW", library).partition("'.symtab'")[2]
    own = [m["name"] for m in DEFINED.finditer(symbols) if m["type"] in ("FUNC", "IFUNC", "OBJECT", "NOTYPE")]
    for name in own:
        if RUNTIME.match(name) and not name.startswith("__ubsan_handle_type_mismatch_v1_data"):
            raise CompileError(
                f"FORBIDDEN: the kernel file defines a function {name}, a name that checked "
                "mode uses; rename it"
            )
    functions = disassemble(objdump, library)
    for match in DEFINED.finditer(symbols):
        if match["type"] == "OBJECT" and _in_code(int(match["at"], 16), functions):
            raise CompileError(
                f"FORBIDDEN: {match['name']} is in a code section; do not use section attributes"
            )
    filled_in = {
        int(match["at"], 16): int(match["to"], 16) for match in RELOCATION.finditer(_read("-rW", library))
    }
    taken = set(filled_in.values())
    sections = _read("-SW", library)
    _check_early(sections, filled_in, functions)
    image = _image(sections, functions)
    for target in taken:
        if _in_code(target, functions) and target not in image.functions:
            raise CompileError(
                "FORBIDDEN: the kernel file uses an address inside a function; use only addresses of "
                "functions"
            )
    own_functions = {f.code[0].at: f for f in functions if _is_own(f)}
    return _judged(library, own_functions, image, taken)


def _judged(library: Path, functions: Mapping[int, Function], image: Image, filled_in: set[int]) -> Judged:
    """Check one function of the file. Raise an error, or return what the runtime must watch.

    Parameters
    ----------
    filled_in
        Addresses that the library's data contain.
    """
    operands = {
        o.offset for f in functions.values() for one in f.code for o in one.operands if isinstance(o, Memory)
    }
    own = {at for at, f in functions.items() if not HEADERS.match(f.name)}
    image = replace(image, taken=frozenset((filled_in | operands) & own))
    followed = _followed(functions, image)
    check_callers(library, [functions[at] for at in own])
    room = needed_room(followed)
    _check_returned(followed, functions, room)
    ends = dict(pairwise([*sorted(image.functions), sys.maxsize]))
    kept = [
        Kept(at, ends[at], *ORIGINS[origin], offset)
        for at in own
        for origin, offset in kept_slots(followed[at], room[at])
    ]
    return Judged({at: room[at] for at in image.taken}, kept)


def _followed(functions: Mapping[int, Function], image: Image) -> dict[int, Followed]:
    """Follow all functions until it is known which of them may change registers or arguments of callers."""
    followed = {at: _check(function, image) for at, function in functions.items()}
    while True:
        careless, above = changes(followed, functions, image)
        if (careless, above) == (image.careless, image.above):
            return followed
        image = replace(image, careless=careless, above=above)
        for at, function in functions.items():
            if any(image.called(one) & (careless | above.keys()) for one in function.code):
                followed[at] = _check(function, image)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Turn off the search for cyclic garbage: there is none, and the search takes a third of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _check(function: Function, image: Image) -> Followed:
    for one in function.code:
        calls_header = HEADERS.match(one.target_name) and not HEADERS.match(function.name)
        if calls_header:
            raise CompileError(
                f"FORBIDDEN: {function.name} calls {one.target_name}, a part of the emulator that checked "
                f"mode does not monitor; {CURE}"
            )
        if one.target_name.startswith("__cxa_finalize"):
            raise CompileError(
                f"FORBIDDEN: {function.name} calls __cxa_finalize, which ends the program; remove it"
            )
    if HEADERS.match(function.name):
        return _calls_of(function)
    found = follow(function, image)
    if found.unseen:
        raise CompileError(f"FORBIDDEN: {function.name} {_reason(found.unseen[0])}")
    return found


def _reason(access: Unseen) -> str:
    """Describe what is wrong with an access, and what to write instead."""
    text = " ".join(access.text.split())
    if access.is_kept:
        return (
            f"writes where its caller may want a structure ({text}), after it has called another function; "
            "return the structure through a pointer, as in void f(T* result)"
        )
    how = f"in a way that checked mode does not monitor ({text})"
    return f"uses memory, or jumps, {how}; {CURE}, and {CALLS_CURE}"


def _calls_of(function: Function) -> Followed:
    """Return the calls of a function that is not followed. Nothing is known about their arguments."""
    known = (unknown("argument"), TOP)
    calls = {one.at: Call(one, one.target, *known) for one in function.code if one.target is not None}
    return Followed(calls=calls)


def _check_returned(
    followed: Mapping[int, Followed], functions: Mapping[int, Function], room: Mapping[int, int]
) -> None:
    """Raise an error if a call of a function that returns a structure may not provide enough room."""
    found = misplaced(followed, room)
    if found:
        raise CompileError(
            f"FORBIDDEN: {functions[found.function].name} calls a function that returns a structure "
            f"({found.call.one.text.strip()}), and the place for it is not known to have room; assign the "
            "result to a local variable, call the function by its name, and do not cast it"
        )


def _check_early(sections: str, filled_in: Mapping[int, int], functions: list[Function]) -> None:
    """Raise an error for functions, except the compiler's, that run on loading or unloading the library."""
    names = {f.code[0].at: f for f in functions if f.code}
    for match in SECTION.finditer(sections):
        if not match["name"].startswith((".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors")):
            continue
        first, size = int(match["at"], 16), int(match["size"], 16)
        for at, to in filled_in.items():
            function = names.get(to)
            if not first <= at < first + size or (function and function.name in STARTUP):
                continue
            if function is None or not _is_sanitizers(function):
                name = function.name if function else "what it does"
                raise CompileError(
                    f"FORBIDDEN: the kernel file runs {name} before any kernel; initialise variables with "
                    "compile-time constants, and do not use constructors"
                )


def _is_sanitizers(function: Function) -> bool:
    """Whether a function only calls the runtime's initialisation. g++ adds such a function to each file."""
    calls = {one.target_name for one in function.code if one.name.startswith(("call", "jmp"))}
    others = {
        one.name
        for one in function.code
        if not one.name.startswith(("call", "jmp", "nop", "xchg")) and one.operands != ("%rsp", "%rbp")
    }
    return calls == {"__tsan_init@plt"} and others <= {
        "subq",
        "addq",
        "ret",
        "retq",
        "endbr64",
        "push",
        "pop",
        "leave",
        "leaveq",
        "pushq",
        "popq",
    }


def _image(sections: str, functions: list[Function]) -> Image:
    """Collect the facts about the library that all functions need."""
    constants = []
    for match in SECTION.finditer(sections):
        flags, at = match["flags"], int(match["at"], 16)
        if "A" in flags and "T" not in flags and ("W" not in flags or match["name"] in FIXED):
            constants.append((at, at + int(match["size"], 16)))
        if "W" in flags and "X" in flags:
            raise CompileError(
                f"FORBIDDEN: the section {match['name']} is both writable and executable; do not use "
                f"section attributes"
            )
    return Image(constants, frozenset(f.code[0].at for f in functions if f.code))


def _is_own(function: Function) -> bool:
    """Whether a function was compiled from the kernel file or a header."""
    return bool(function.code) and not function.section.startswith(".plt") and function.name not in STARTUP


def _in_code(place: int, functions: list[Function]) -> bool:
    return any(f.code and f.code[0].at <= place <= f.code[-1].at for f in functions)


def _read(option: str, library: Path) -> str:
    readelf = shutil.which("readelf")
    assert readelf is not None, "the grader has looked"
    return subprocess.run([readelf, option, str(library)], capture_output=True, text=True, check=True).stdout
