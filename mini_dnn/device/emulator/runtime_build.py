"""Build what all kernels share: the runtime library, and the emulator's precompiled header."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

from mini_dnn.device.cache import MAKING, cache_dir, is_trusted, kept, key, say, work
from mini_dnn.device.emulator.compiler import RUNTIME_FLAGS, RUNTIME_LINK_FLAGS, Compiler
from mini_dnn.errors import DeviceError
from mini_dnn.paths import write_atomically
from mini_dnn.progress import busy

HERE = Path(__file__).resolve().parent
INCLUDE = HERE / "include"
RUNTIME = HERE / "runtime"
CHECKED = RUNTIME / "checked"  # what checked mode adds to the runtime
COUNTED = RUNTIME / "counted"  # what counted mode adds
HEADER = "emulator.h"
UNITS = 4  # of several files each, as g++ needs more than half of its time for headers of the C++ library


def emulator_hash() -> str:
    """A hash of the emulator's own headers and runtime."""
    files = sorted(path for folder in (INCLUDE, RUNTIME) for path in folder.rglob("*.[hc]*"))
    return key(*(part for file in files for part in (file.name, file.read_bytes())))


def build_runtime(compiler: Compiler, ucontext: bool, checked: bool = False) -> Path:
    """Build the runtime library that kernels call.

    Parameters
    ----------
    ucontext
        Whether to switch stacks in the portable way.
    checked
        Whether to include the checks of accesses, for kernels that are also built with ``checked``.
    """
    target = runtime_path(compiler, ucontext, checked)

    def make() -> bytes:
        with work() as folder, busy("building the emulator, once ..."):
            return _build(compiler, _flags(compiler, ucontext, checked), checked, folder, target).read_bytes()

    return kept(target, make)


def runtime_path(compiler: Compiler, ucontext: bool, checked: bool) -> Path:
    """The path of the runtime library, whose name depends on everything that goes into it."""
    settings = (compiler.identity, *_flags(compiler, ucontext, checked), *RUNTIME_LINK_FLAGS)
    mode = "checked-" if checked else "counted-" if compiler.counted else ""
    name = f"{mode}runtime-{key(emulator_hash(), *settings)}.so"
    return cache_dir() / "emulator" / name


def _flags(compiler: Compiler, ucontext: bool, checked: bool) -> list[str]:
    flags = [*RUNTIME_FLAGS, *(["-DEMULATOR_UCONTEXT"] if ucontext else [])]
    flags += ["-DEMULATOR_COUNTED"] if compiler.counted else []
    return [*flags, *(["-DEMULATOR_CHECKED", "-fno-omit-frame-pointer"] if checked else [])]


def _build(compiler: Compiler, flags: list[str], checked: bool, folder: Path, target: Path) -> Path:
    """Compile the files in `UNITS` and precompile the header, one compiler per core, and then link."""
    folders = [RUNTIME, *([CHECKED] if checked else []), *([COUNTED] if compiler.counted else [])]
    files = sorted(file for each in folders for file in each.glob("*.cpp"))
    made = folder / target.name

    units = [folder / f"{i}.cpp" for i in range(UNITS)]
    for i, unit in enumerate(units):
        unit.write_text("".join(f'#include "{file}"\n' for file in files[i::UNITS]))

    def run(*arguments: str) -> None:
        done = compiler.run([*flags, *arguments])
        if done.returncode:
            raise DeviceError(
                f"the emulator's runtime does not compile with {compiler.version}:\n{done.stderr}"
            )

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        header = pool.submit(header_flags, compiler, target, checked)
        objects = [unit.with_suffix(".o") for unit in units]
        list(pool.map(lambda unit, made: run("-c", str(unit), "-o", str(made)), units, objects))
        header.result()
    # The name by which kernels find it once it is loaded, wherever the cache is.
    run(*RUNTIME_LINK_FLAGS, f"-Wl,-soname,{target.name}", *map(str, objects), "-o", str(made))
    return made


@cache
def _precompile(compiler: Compiler, checked: bool, runtime: Path) -> None:
    """Let g++ store its state after `HEADER`, with which every kernel file begins, if it has not yet."""
    made = header_folder(compiler, runtime, checked) / f"{HEADER}.gch"
    if not compiler.precompiles or made.exists():
        return
    flags = [*replace(compiler, quick=False).kernel_flags, *(compiler.checked_flags if checked else ())]
    try:
        with work() as folder:
            new = folder / made.name
            done = compiler.run([*flags, "-w", "-x", "c++-header", str(INCLUDE / HEADER), "-o", str(new)])
            if not done.returncode:  # otherwise kernels are compiled without it, and errors appear there
                write_atomically(made, new.read_bytes(), 0o644)
    except (DeviceError, OSError) as error:  # a disk may have space for a kernel, but not for this
        say(f"{made} cannot be stored ({error}), so each kernel takes longer to compile")


def header_folder(compiler: Compiler, runtime: Path, checked: bool) -> Path:
    """Return the folder of the precompiled header, which is built with the runtime.

    Messages and debugging information contain the paths of headers, so a checkout only uses its own. The
    header is the same for kernels that are compiled in another way.
    """
    compiler = replace(compiler, quick=False, fill="pattern")
    flags = (*compiler.kernel_flags, *(compiler.checked_flags if checked else ()))
    return runtime.with_name(f"header-{key(runtime.name, INCLUDE, *flags)}")


def header_flags(compiler: Compiler, runtime: Path, checked: bool) -> list[str]:
    """The flag for the precompiled header. Like a library, it may not be another user's.

    It may still be missing: the runtime is that of any checkout, but the header is this checkout's own.
    """
    folder = header_folder(compiler, runtime, checked)
    with MAKING:
        _precompile(compiler, checked, runtime)
    trusted = is_trusted(folder) and is_trusted(folder / f"{HEADER}.gch")
    return [f"-isystem{folder}"] if trusted else []
