"""The C++ compiler: which one is used, its flags, and what its output depends on."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mini_dnn.errors import DeviceError

# What compilers, the assembler and the linker say if disk or memory are full, whatever the file has in it
NO_ROOM = re.compile(
    r"^(?:(?:\S+ )?(?:[Ff]atal error|final link failed): "
    r"|(?:clang\S*: )?error: (?=unable to )|LLVM ERROR: "
    r"|\S+ (?=cannot open output file|out of memory allocating)|(?=Cannot create temporary|virtual memory))"
    r"(.*(?:No space left on device|Disk quota exceeded)'?|Killed signal terminated program \S+"
    r"|unable to execute command: Killed|out of memory.*|virtual memory exhausted.*)$",
    re.MULTILINE,
)
OLDEST = {"g++": 11, "clang++": 16}  # these support C++20's source_location
# For one function of a kernel. A thread's stack has 64 KB (runtime/worker.h), of which printf needs some.
MAX_FRAME_BYTES = 48 * 1024

COMMON = ("-std=c++20", "-O3", "-march=native", "-fPIC", "-U_FORTIFY_SOURCE", "-fvisibility=hidden")
RUNTIME_FLAGS = (*COMMON, "-pthread", "-DEMULATOR_RUNTIME")
RUNTIME_LINK_FLAGS = ("-shared",)
# Two modules may have inline functions of the same name with different tile sizes: neither may replace the
# other. Kernels have their own heap: runtime/heap.cpp.
HEAP = ("malloc", "free", *(f"_Zn{kind}m{end}" for kind in "wa" for end in ("", "St11align_val_t")))
HEAP += tuple(
    f"_Zd{kind}Pv{end}" for kind in "la" for end in ("", "m", "St11align_val_t", "mSt11align_val_t")
)
LINK_FLAGS = ("-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs", *(f"-Wl,--wrap={name}" for name in HEAP))
KERNEL_FLAGS = (
    *COMMON,
    "-ffp-contract=fast",  # like nvcc, make a * b + c one fused multiply-add
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",  # kernels load float4 from float arrays
    "-fno-semantic-interposition",
    "-fno-stack-protector",  # Ubuntu enables it by default; with it, an overflow would end the process
    "-fno-stack-clash-protection",
    "-fdiagnostics-color=never",
)
GCC_FLAGS = (
    # It doubles the compile time for kernels with long unrolled loops, and gains nothing
    "-fno-unswitch-loops",
    "--param=avoid-fma-max-bits=0",  # without it, GCC does not fuse a * b + c in sums on AMD
    "-fno-extern-tls-init",  # shared arrays have no constructors
    "-fno-gnu-unique",  # a shared array of an inline function belongs to its library
    f"-Werror=frame-larger-than={MAX_FRAME_BYTES}",
    "-fmax-errors=8",
)
# Checked mode: each access calls a hook of ``runtime/checked/hooks.cpp``. The sanitizers' own runtimes are
# not linked. DWARF 4 is used because addr2line of binutils 2.40 confuses the files of DWARF 5. With separate
# sections, each variable is a label in the assembly, after which bytes can be added that belong to no
# variable. Copies by the C library remain calls, which the linker redirects to ours.
COPIES = ("memcpy", "memmove", "memset")
# Functions that g++ would inline without a hook. No kernel has them, and the grader refuses calls of them.
TEXTS = (
    *("strcpy", "strncpy", "stpcpy", "stpncpy", "strcat", "strncat", "mempcpy", "bcopy", "bzero"),
    *("sprintf", "snprintf", "vsprintf", "vsnprintf"),
)
CHECKED_FLAGS = (
    "-O1",
    "-ftrapping-math",  # do not compute with a number that the kernel does not use
    "-gdwarf-4",
    "-fdata-sections",
    "-fno-jump-tables",  # control must not go to a place that the code does not name
    "-fno-exceptions",  # CUDA has none; unwinding a stack stores and jumps where no hook sees it
    "-fno-omit-frame-pointer",  # runtime/checked/stack.cpp follows the frames of a stack
    "-DEMULATOR_CHECKED",
    *(f"-fno-builtin-{name}" for name in (*COPIES, *TEXTS)),
)
CHECKED_LINK_FLAGS = tuple(f"-Wl,--wrap={name}" for name in COPIES)
STORES = ("frexp", "modf", "remquo", "sincos")  # functions of <math.h> with a pointer for a result
STORES_LINK_FLAGS = tuple(f"-Wl,--wrap={name}{end}" for name in STORES for end in ("", "f"))
# The grader analyses machine code of checked mode, so it is the same on all processors that can run it.
CHECKED_PROCESSOR = ("-march=x86-64-v3", "-mtune=generic")
# Frames in which only the upper end depends on the stack's alignment, so that the return address has a fixed
# place.
X86_FRAMES = ("-maccumulate-outgoing-args",)
# The start and length of what one instruction clears or copies are the same as in its check. A struct is not
# copied by a call of memcpy, which counted mode would count as well.
X86_BLOCKS = tuple(
    f"-m{name}-strategy=rep_8byte:8192:noalign,libcall:-1:noalign" for name in ("memset", "memcpy")
)
# Calls through pointers use runtime/checked/calls.cpp, which knows where functions begin.
X86_CALLS = ("-mindirect-branch=thunk-extern", "-mindirect-branch-register", "-fcf-protection=none")
# Names of its features in /proc/cpuinfo
X86_64_V3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
GCC_CHECKS = (
    "-fsanitize=thread,bounds-strict,alignment,object-size,unreachable,return",
    "-fsanitize=float-cast-overflow,shift-exponent",
    "-Wuninitialized",  # build.py reads these warnings
    "-Wmaybe-uninitialized",
    "--param=tsan-distinguish-volatile=1",
    "-fno-ivopts",  # an access then computes its address in the same way as its check
    "-fno-var-tracking",  # which registers hold a variable is not needed, and takes an eighth of the time
)
# The other half of clang++'s own "bounds" are traps, which explain nothing. By default, it leaves out reads
# that are followed by a write to the same place.
CLANG_CHECKS = (
    "-fsanitize=thread,array-bounds,alignment,unreachable,return",
    "-fsanitize=float-cast-overflow,shift-exponent",
    "-mllvm",
    "-tsan-instrument-read-before-write",
    "-mllvm",
    "-tsan-distinguish-volatile",
)
# Counted mode: each basic block and each access calls a hook of ``runtime/counted/hooks.cpp``. Structs such
# as float4 are read as a whole, and the code keeps the order of the source; ``runtime/counted/recorder.h``
# explains why.
COUNTED_FLAGS = (
    "-gdwarf-4",
    "-DEMULATOR_COUNTED",
    "-fsanitize=thread",
    "-fsanitize-coverage=trace-pc",
    "-fno-tree-sra",
    "-fno-reorder-blocks",
    "-fno-reorder-blocks-and-partition",
    "-fno-crossjumping",
    "-fno-tree-tail-merge",
    "-fno-thread-jumps",
    "-fno-split-paths",
    "-fno-split-loops",
    "-fno-tree-vectorize",
    "-fno-tree-loop-distribute-patterns",
    "-fno-jump-tables",
    "-fno-var-tracking",
    # nvcc unrolls loops over a tile, while g++ unrolls only shorter ones
    "--param=max-completely-peel-times=64",
    "--param=max-completely-peeled-insns=4000",
    "-fdisable-rtl-loop2_unroll",  # it would separate lanes with different numbers of iterations
    *(f"-fno-builtin-{name}" for name in COPIES),
)
CLANG_FLAGS = (f"-Wframe-larger-than={MAX_FRAME_BYTES}", "-Werror=frame-larger-than", "-ferror-limit=8")


@dataclass(frozen=True)
class Compiler:
    """The C++ compiler in use."""

    path: str
    version: str  # "g++ 12.2.0"
    quick: bool = False  # compiles kernels in half the time, but they run for longer
    fill: str = "pattern"  # for uninitialised variables in checked mode: or "zero"
    counted: bool = False  # whether kernels count what they do

    @property
    def kernel_flags(self) -> tuple[str, ...]:
        """The flags for kernel files, without those for the linker."""
        return (
            *KERNEL_FLAGS,
            *(CLANG_FLAGS if self.is_clang else GCC_FLAGS),
            *(["-O1"] if self.quick else []),
            *((*COUNTED_FLAGS, *self._x86(X86_BLOCKS)) if self.counted else ()),
        )

    @property
    def checked_flags(self) -> tuple[str, ...]:
        """Additional flags for kernel files of checked mode."""
        fills = (f"-ftrivial-auto-var-init={self.fill}",) if self.is_clang or self.major >= 12 else ()
        processor = CHECKED_PROCESSOR if X86_64_V3.issubset(_processor().split()) else ()
        frames = self._x86((*X86_FRAMES, *X86_BLOCKS, *X86_CALLS))
        checks = CLANG_CHECKS if self.is_clang else GCC_CHECKS
        return (*CHECKED_FLAGS, *processor, *frames, *fills, *checks)

    def _x86(self, flags: tuple[str, ...]) -> tuple[str, ...]:
        """Return flags that only g++ on x86-64 has; nothing elsewhere."""
        return flags if platform.machine() == "x86_64" and not self.is_clang else ()

    @property
    def is_clang(self) -> bool:
        """Whether it is clang++ and not g++."""
        return self.version.startswith("clang")

    @property
    def precompiles(self) -> bool:
        """Whether it supports precompiled headers: g++ before 12 needs a certain free address for them."""
        return not self.is_clang and self.major >= 12

    @property
    def major(self) -> int:
        """The major version."""
        return int(self.version.split()[1].split(".")[0])

    @property
    def identity(self) -> str:
        """Everything about the compiler and this processor that machine code depends on."""
        stamp = Path(self.path).resolve().stat()
        return f"{self.path} {self.version} {stamp.st_mtime_ns} {_processor()}"

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run the compiler, with messages in English.

        Raises
        ------
        DeviceError
            Disk or memory are full, which is not the fault of the file that is compiled.
        """
        done = subprocess.run(
            [self.path, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
        if done.returncode and (found := NO_ROOM.search(done.stderr)):
            raise DeviceError(
                f"{self.path} had too little room: {found[1]}; free some disk space or memory, or set TMPDIR "
                "to a folder with more space"
            )
        return done


def find_compiler() -> Compiler:
    """Return the compiler that ``CXX`` names, or else g++, or else clang++.

    Raises
    ------
    DeviceError
        There is no compiler, or it is too old.
    """
    asked = os.environ.get("CXX")
    names = [asked] if asked else ["g++", "clang++"]
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        raise DeviceError(
            f"the emulator compiles kernels with g++, and {' or '.join(names)} was not found; "
            "install it ('apt install g++', 'dnf install gcc-c++', 'conda install gxx'), "
            "or name another C++20 compiler in CXX"
        )
    name = "clang++" if "clang" in Path(path).name else "g++"
    number = _version(path, name, Path(path).stat().st_mtime_ns)
    if not number[:1].isdigit() or int(number.split(".")[0]) < OLDEST[name]:
        raise DeviceError(
            f"the emulator needs {name} {OLDEST[name]} or newer, and {path} says it is version "
            f"{number or 'unknown'}; install a newer one, or name another compiler in CXX"
        )
    return Compiler(path, f"{name} {number}")


@cache
def _version(path: str, name: str, changed_ns: int) -> str:
    """The version that a compiler reports. It is asked again only if its file changes."""
    option = "-dumpversion" if name == "clang++" else "-dumpfullversion"
    return subprocess.run([path, option], capture_output=True, text=True, check=False).stdout.strip()


@cache
def _processor() -> str:
    """The properties of the processor that ``-march=native`` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())
