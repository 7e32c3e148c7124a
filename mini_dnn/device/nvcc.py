"""Compile ``.cu`` files with nvcc. A cache keeps its output and its messages."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.device.base import Defines
from mini_dnn.device.cache import cache_dir, key, may_compile, store, stored, work
from mini_dnn.device.sources import INCLUDE, read_source, source_hash
from mini_dnn.device.tools import search
from mini_dnn.errors import CompileError, DeviceError, SharedMemoryError
from mini_dnn.progress import busy

OPTIONS = ("-std=c++17", "-O3", "-lineinfo")
CUBIN, PTX = "cubin", "ptx"  # what nvcc can make of a file
TOO_MUCH_SHARED = re.compile(r"Entry function '(\w+)' uses too much shared data")  # a message of ptxas
ABOUT_FILE = re.compile(
    r"^(?:.+\(\d+\): (?:catastrophic )?error|ptxas error *: .* uses too much )", re.MULTILINE
)
UNQUOTED = re.compile(r"[$`\"]")  # in names of files, which nvcc passes to a shell
REPORT = re.compile(r"ptxas info|\s+\d+ bytes stack frame")  # the lines about registers and memory
ARCHITECTURES = {90: "sm_90a"}  # includes features of exactly this architecture, such as wgmma
ERROR_LINE = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic )?error")


def find_nvcc() -> Path | None:
    """Find nvcc: see `mini_dnn.device.tools.search`."""
    return search("nvcc")


def require_nvcc(why: str, instead: str = "") -> Path:
    """Return the CUDA compiler.

    Parameters
    ----------
    why, instead
        Parts of the message: what it is needed for, and what works without it.

    Raises
    ------
    DeviceError
        It was not found.
    """
    nvcc = find_nvcc()
    if nvcc is None:
        raise DeviceError(
            f"nvcc was not found, but {why}. Install the CUDA toolkit, or put its bin folder on PATH, or set "
            f"CUDA_HOME{instead}"
        )
    return nvcc


def nvcc_arch(arch: int) -> str:
    """Return nvcc's name for a GPU of compute capability ``arch / 10``: ``"sm_80"``, ``"sm_90a"``."""
    return ARCHITECTURES.get(arch, f"sm_{arch}")


@dataclass(frozen=True)
class Output:
    """What nvcc makes of a file."""

    code: bytes  # a cubin or PTX; empty if it does not compile
    said: str  # all messages, which include the report of ptxas about each kernel

    @property
    def is_about_file(self) -> bool:
        """Whether the result is a verdict on the file.

        It is not if nvcc does not know the architecture, or has no space.
        """
        return bool(self.code or ABOUT_FILE.search(self.said))


def compiled(
    nvcc: Path, source: Path, defines: Defines, arch: str, kind: str = CUBIN, located: bool = True
) -> Output:
    """Compile a file, or take the result from the cache.

    Parameters
    ----------
    arch
        The architecture, such as ``"sm_80"``: see `nvcc_arch`.
    kind
        `CUBIN` or `PTX`.
    located
        Whether messages and line tables have to name this file. Otherwise, the result of an equal file in a
        folder of the same name is as good, such as that of another checkout.
    """
    source = source.resolve()
    flags = [f"-{kind}", "-Xptxas", "-v", *OPTIONS, f"-arch={arch}"]
    flags += [f"-D{name}={value}" for name, value in defines.items()]
    stamp = nvcc.resolve().stat()
    place = source if located else ""
    name = key(source_hash(source), place, *flags, nvcc, stamp.st_mtime_ns, stamp.st_size)
    cached = cache_dir() / "nvcc" / f"{source.parent.name}-{name}.{kind}"
    known = stored(cached)
    if known is not None:
        said, _, code = known.partition(b"\0")
        return Output(code, said.decode())
    may_compile(source)
    with work() as folder, busy(f"nvcc compiles {source.parent.name} ..."):
        target = folder / f"kernel.{kind}"
        command = [str(nvcc), f"-I{INCLUDE}", *flags, str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        code = b"" if done.returncode else target.read_bytes()
    output = Output(code, done.stdout + done.stderr)
    lasting = output.is_about_file and "catastrophic" not in output.said  # a header may be installed later
    if code or (located and lasting):
        store(cached, output.said.encode() + b"\0" + code)
    return output


def accepted(
    nvcc: Path, source: Path, defines: Defines, arch: str, kind: str = CUBIN, located: bool = True
) -> Output:
    """Compile a file as `compiled` does.

    Raises
    ------
    DeviceError
        nvcc cannot open the file, because of the name of a folder.
    CompileError
        The file does not compile. The message has nvcc's output and the source lines that it names.
    """
    for path in (source.resolve(), INCLUDE, Path(tempfile.gettempdir())):
        if found := UNQUOTED.search(str(path)):
            raise DeviceError(
                f"nvcc cannot open files in a folder whose name contains {found[0]}: {path}. Rename the "
                "folder, or use another one"
            )
    output = compiled(nvcc, source, defines, arch, kind, located)
    if output.code:
        return output
    messages = f"{source} does not compile for {arch}:\n{explained(output.said)}"
    if match := TOO_MUCH_SHARED.search(messages):
        raise SharedMemoryError(messages, match[1])
    raise CompileError(messages)


def build_cubin(source: Path, defines: Defines, arch: str) -> bytes:
    """Compile a kernel file for one architecture, such as ``"sm_80"``: see `nvcc_arch`.

    Raises
    ------
    DeviceError
        nvcc is not installed, or cannot open the file.
    CompileError
        The file does not compile: see `accepted`.
    """
    nvcc = require_nvcc("a GPU needs kernels that it compiles", "; --device emulator needs only g++")
    return accepted(nvcc, source, defines, arch, located=False).code


def explained(messages: str) -> str:
    """Add the source line that it names to each error of nvcc, and leave out the report of ptxas."""
    lines = []
    for line in messages.strip().splitlines():
        if REPORT.match(line):
            continue
        lines.append(line)
        match = ERROR_LINE.match(line)
        if match and Path(match["file"]).is_file():
            text = read_source(Path(match["file"])).splitlines()
            named = text[int(match["line"]) - 1].strip() if int(match["line"]) <= len(text) else ""
            if named not in messages:  # newer versions of nvcc show it themselves
                lines.append(f"    {match['line']} | {named}")
    return "\n".join(lines)
