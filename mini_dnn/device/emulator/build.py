"""Compile kernel files with g++. A cache keeps the results."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from mini_dnn.device.base import Defines
from mini_dnn.device.cache import cache_dir, kept, key, may_compile, work
from mini_dnn.device.emulator.checked_build import UNSET, UNSET_BYTES, UNSET_CONSTANT, build_checked
from mini_dnn.device.emulator.compiler import (
    CHECKED_LINK_FLAGS,
    COPIES,
    LINK_FLAGS,
    STORES_LINK_FLAGS,
    Compiler,
)
from mini_dnn.device.emulator.counted_build import MOST_TIMES, UNROLL, build_counted
from mini_dnn.device.emulator.messages import explained
from mini_dnn.device.emulator.runtime_build import INCLUDE, header_flags, header_folder
from mini_dnn.device.emulator.scan import Scan, scan
from mini_dnn.device.sources import INCLUDE as PROJECT_INCLUDE
from mini_dnn.device.sources import source_hash
from mini_dnn.errors import CompileError, DeviceError, SharedMemoryError
from mini_dnn.progress import busy

MAX_SHARED_BYTES = 227 * 1024  # per block, on sm_90: CUDA C++ Programming Guide, technical specifications
MAX_STATIC_SHARED_BYTES = 48 * 1024  # nvcc and the driver refuse more
# If it were thread_local, g++ would access it through a generated function, which would contain counters like
# a kernel, and workers of a cluster need it before they have counters.
DYNAMIC_BYTES = 'extern __thread char emulator_dynamic_bytes[] asm("emulator_dynamic_shared");'
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

# With these, a kernel could find out the optimisation level, and thereby the mode. A copy under its builtin
# name would be compiled inline, where no hook of checked mode sees it.
BLIND = (
    *(f"#define __builtin_{name} {name}" for name in COPIES),
    "#define __builtin_constant_p(...) 0",
    "#define __builtin_object_size(...) ((size_t)-1)",
    "#define __builtin_dynamic_object_size(...) ((size_t)-1)",
    "#undef EMULATOR_CHECKED",  # the checked and counted code is the code that runs elsewhere
    "#undef EMULATOR_COUNTED",
    "#undef __SANITIZE_THREAD__",
)


def build_kernels(
    source: Path, defines: Defines, compiler: Compiler, runtime: Path, checked: bool = False
) -> Path:
    """Build the library with the kernels of a file.

    Raises
    ------
    CompileError
        The file is missing or does not compile. The message has g++'s output with file and line.
    """
    target = _library(source, defines, compiler, runtime, checked)

    def make() -> bytes:
        with busy(f"g++ compiles {source.resolve().parent.name} ..."):
            return _compile(source, defines, compiler, runtime, checked)

    return kept(target, make)


def build_ahead(
    source: Path, defines: Sequence[Defines], compiler: Compiler, runtime: Path, checked: bool
) -> None:
    """Build the libraries of a file for each of these definitions, with one compiler process per core.

    Compilation errors are left to `build_kernels`.
    """
    different = {tuple(sorted(each.items())): each for each in defines}.values()

    def build(each: Defines) -> None:
        with suppress(DeviceError):
            target = _library(source, each, compiler, runtime, checked)
            kept(target, lambda: _compile(source, each, compiler, runtime, checked))

    times = f", {len(different)} times with different definitions" if len(different) > 1 else ""
    with (
        busy(f"g++ compiles {source.resolve().parent.name}{times} ..."),
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
    ):
        list(pool.map(build, different))


def _library(source: Path, defines: Defines, compiler: Compiler, runtime: Path, checked: bool) -> Path:
    """The path of the library, whose name depends on everything that goes into it."""
    if not source.is_file():
        raise CompileError(f"there is no kernel file {source}")
    for name in defines:
        if not IDENTIFIER.fullmatch(name):
            raise CompileError(f"{source}: {name!r} cannot be defined: it is not a C identifier")
    settings = [f"{name}={value}" for name, value in sorted(defines.items())]
    # Findings name files, and the debug information has their paths
    checks = [*compiler.checked_flags, *CHECKED_LINK_FLAGS, *STORES_LINK_FLAGS, str(source.resolve())]
    checks += [
        header_folder(compiler, runtime, checked).name,
        UNSET.pattern,
        UNSET_BYTES.pattern,
        UNSET_CONSTANT.pattern,
        DYNAMIC_BYTES,
        *((UNROLL.pattern, str(MOST_TIMES)) if compiler.counted else ()),
    ]
    what = key(
        source_hash(source),
        runtime.name,
        compiler.identity,
        *compiler.kernel_flags,
        *LINK_FLAGS,
        *settings,
        *(checks if checked or compiler.counted else []),
    )
    return cache_dir() / "emulator" / f"{source.resolve().parent.name}-{what}.so"


def _compile(source: Path, defines: Defines, compiler: Compiler, runtime: Path, checked: bool) -> bytes:
    """Run two passes: the preprocessor, to find the kernels, then the compiler, with their descriptions."""
    may_compile(source)
    path = source.resolve()
    with work() as folder:
        wrapper, made = folder / "wrapper.cpp", folder / "kernels.so"
        lines, flags = _lines(path, defines), _flags(path, compiler, checked)
        wrapper.write_text("\n".join(lines) + "\n")
        done = compiler.run([*flags, "-E", "-DEMULATOR_SCAN", str(wrapper)])
        if not done.returncode:
            found = scan(done.stdout)
            if found.late_alignas:
                lines.insert(1, "#define alignas(...) __attribute__((aligned(__VA_ARGS__)))")
            wrapper.write_text("\n".join([*lines, *_descriptions(found, checked or compiler.counted)]) + "\n")
            # Only the second pass, because the first one leaves CUDA's qualifiers as they are
            flags[:0] = header_flags(compiler, runtime, checked)
            build = build_checked if checked else build_counted if compiler.counted else _build
            done = build(compiler, flags, wrapper, runtime, made)
        if done.returncode:
            raise CompileError(
                f"{source} does not compile for the emulator ({compiler.version}):\n"
                f"{explained(done.stderr, wrapper, source)}"
            )
        _check_static_shared(source, found, made)
        return made.read_bytes()


def preprocessed(
    source: Path, defines: Defines, compiler: Compiler, checked: bool, instead: Sequence[str] | None = None
) -> str:
    """Return what the compiler sees of a kernel file, with line markers and ``#include`` directives.

    This includes the lines that the build appends to the file.

    Parameters
    ----------
    instead
        Directives in place of the kernel file. Its folder is then not searched for headers.

    Raises
    ------
    CompileError
        The file cannot be preprocessed completely.
    """
    path = source.resolve()
    lines, flags = _lines(path, defines), _flags(path, compiler, checked)
    found = scan(_preprocess(source, lines, compiler, [*flags, "-DEMULATOR_SCAN"]))
    if instead is not None:
        lines[-1:], flags = instead, [flag for flag in flags if not flag.startswith("-iquote")]
    lines += _descriptions(found, checked or compiler.counted)
    return _preprocess(source, lines, compiler, [*flags, "-dI"])


def words_of(source: Path, defines: Defines, compiler: Compiler) -> str:
    """Return a kernel file after macro expansion, with CUDA's qualifiers as words, and with line markers.

    Raises
    ------
    CompileError
        The file cannot be preprocessed completely.
    """
    path = source.resolve()
    flags = [*_flags(path, compiler, checked=False), "-DEMULATOR_SCAN", "-DEMULATOR_WORDS"]
    return _preprocess(source, _lines(path, defines), compiler, flags)


def _preprocess(source: Path, lines: Sequence[str], compiler: Compiler, flags: Sequence[str]) -> str:
    with work() as folder:
        wrapper = folder / "wrapper.cpp"
        wrapper.write_text("\n".join(lines) + "\n")
        done = compiler.run([*flags, "-E", str(wrapper)])
        if done.returncode:
            raise CompileError(f"{source} does not compile:\n{explained(done.stderr, wrapper, source)}")
        return done.stdout


def _lines(path: Path, defines: Defines) -> list[str]:
    """The lines of the file that is compiled, which includes the kernel's file."""
    # After emulator.h, so that a definition such as N=100 does not affect the emulator's headers.
    lines = ["#include <emulator.h>", *(f"#define {name} {value}" for name, value in defines.items())]
    lines[1:1] = BLIND
    return [*lines, f'#include "{path}"']


def _flags(path: Path, compiler: Compiler, checked: bool) -> list[str]:
    # Its folder is only searched for "...": <emulator.h> is ours
    include = [f"-isystem{INCLUDE}", f"-I{PROJECT_INCLUDE}", f"-iquote{path.parent}"]
    include.append(f"-ffile-prefix-map={path.parent}/=")
    return [*compiler.kernel_flags, *(compiler.checked_flags if checked else ()), *include]


def _build(
    compiler: Compiler, flags: list[str], wrapper: Path, runtime: Path, made: Path
) -> subprocess.CompletedProcess[str]:
    return compiler.run([*flags, *LINK_FLAGS, str(wrapper), str(runtime), "-o", str(made)])


def _check_static_shared(source: Path, found: Scan, library: Path) -> None:
    """Raise an error if there is too much static shared memory, as nvcc would.

    A kernel's arrays are the thread-local symbols that are named after it.
    """
    readelf = shutil.which("readelf")
    if readelf is None:  # it nearly always comes with g++; without it, only this check is skipped
        return
    done = subprocess.run([readelf, "-sW", str(library)], capture_output=True, text=True, check=False)
    for name in found.kernels:
        # If there is only one kernel, all arrays in the file and in the functions that it calls belong to it
        alone = len(found.kernels) + len(found.other_kernels) == 1
        of = r"(?!_ZGV|_ZTH|__tls|_ZL20emulator_|emulator_)" if alone else f"_ZZ{len(name)}{name}E"
        sizes = re.findall(rf"\s(0x[0-9a-f]+|\d+)\s+TLS\s.*\s{of}\S+$", done.stdout, re.MULTILINE)
        nbytes = sum(int(size, 0) for size in sizes)  # readelf prints sizes from 100,000 on in hexadecimal
        if nbytes > MAX_STATIC_SHARED_BYTES:
            raise SharedMemoryError(
                f"{source}: kernel {name} has {nbytes} bytes of static shared memory; CUDA allows "
                f"{MAX_STATIC_SHARED_BYTES} (48 KB). Declare it extern __shared__ T name[], and launch with "
                f"shared_bytes, up to {MAX_SHARED_BYTES}",
                name,
            )


def _descriptions(found: Scan, seen: bool) -> list[str]:
    """C++ code that describes the file's contents to the host."""
    # With inlined functions, as in nvcc, it is visible which array of a thread a pointer refers to. The
    # kernel file must not notice that: its text is the same in both modes.
    whole = [f"__attribute__((flatten)) decltype({name}) {name};" for name in found.kernels if seen]
    kernels = [f'emulator_kernel<&{name}>("{name}")' for name in found.kernels]
    kernels += [f'emulator_kernel_without_c_linkage("{name}")' for name in found.other_kernels]
    shared = "nullptr"
    lines = []
    if found.dynamic_shared:
        # As in CUDA, all arrays of this kind are one memory. Their types differ, so the assembler names them.
        names = "".join(f".globl {n}\\n.hidden {n}\\n{n}:\\n" for n in found.dynamic_shared)
        lines = [
            f'asm(".pushsection .tbss,\\"awT\\",%nobits\\n.balign 1024\\n{names}emulator_dynamic_shared:\\n'
            f'.skip {MAX_SHARED_BYTES}\\n.popsection");',
            DYNAMIC_BYTES,
            "EMULATOR_NOT_CHECKED static char* emulator_dynamic_shared_of_thread() "
            "{ return emulator_dynamic_bytes; }",
        ]
        shared = "emulator_dynamic_shared_of_thread"
    return [
        *whole,
        *lines,
        # The location of the shared arrays of a thread
        "static thread_local char emulator_anchor_byte;",
        'extern "C" __attribute__((visibility("default"))) EMULATOR_NOT_CHECKED char* emulator_anchor() '
        "{ return &emulator_anchor_byte; }",
        f"static const emulator_kernel_type emulator_kernels[] = {{{', '.join([*kernels, '{}'])}}};",
        'extern "C" __attribute__((visibility("default"))) const emulator_module_type emulator_module = '
        f"{{{len(kernels)}, emulator_kernels, {shared}, emulator_anchor}};",
    ]
