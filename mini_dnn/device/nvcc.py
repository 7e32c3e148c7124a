"""Compile a ``.cu`` file to a cubin with nvcc. A cache keeps the results."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from mini_dnn.device.base import Defines
from mini_dnn.device.cache import cache_dir, key, may_compile, store, stored, work
from mini_dnn.device.sources import INCLUDE, read_source, source_hash
from mini_dnn.errors import CompileError, DeviceError, SharedMemoryError
from mini_dnn.progress import busy

OPTIONS = ("-std=c++17", "-O3", "-lineinfo")
TOO_MUCH_SHARED = re.compile(r"Entry function '(\w+)' uses too much shared data")  # a message of ptxas
ARCHITECTURES = {90: "sm_90a"}  # includes features of exactly this architecture, such as wgmma
ERROR_LINE = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic )?error")


def find_nvcc() -> Path | None:
    """Find nvcc: in ``CUDA_HOME``, ``CUDA_PATH`` or ``CUDA_ROOT``, on the path, or in the usual folder."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")]
    places = [Path(home, "bin", "nvcc") for home in homes if home]
    on_path = shutil.which("nvcc")
    places += [Path(on_path)] if on_path else []
    places.append(Path("/usr/local/cuda/bin/nvcc"))
    return next((p for p in places if p.is_file()), None)


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
            f"nvcc was not found: {why}. Install the CUDA toolkit, or put its bin folder on PATH, or set "
            f"CUDA_HOME{instead}"
        )
    return nvcc


def nvcc_arch(arch: int) -> str:
    """Return nvcc's name for a GPU of compute capability ``arch / 10``: ``"sm_80"``, ``"sm_90a"``."""
    return ARCHITECTURES.get(arch, f"sm_{arch}")


def build_cubin(source: Path, defines: Defines, arch: str) -> bytes:
    """Compile a kernel file for one architecture, such as ``"sm_80"``: see `nvcc_arch`.

    Raises
    ------
    DeviceError
        nvcc is not installed.
    CompileError
        The file does not compile. The message has nvcc's output and the source lines that it names.
    """
    nvcc = require_nvcc("a GPU run compiles its kernels", "; --device emulator needs only g++")
    flags = [*OPTIONS, f"-arch={arch}", *(f"-D{name}={value}" for name, value in defines.items())]
    stamp = nvcc.resolve().stat()
    name = key(source_hash(source), *flags, str(nvcc), stamp.st_mtime_ns, stamp.st_size)
    cached = cache_dir() / "cubin" / f"{source.parent.name}-{name}.cubin"
    known = stored(cached)
    if known is not None:
        return known
    may_compile(source)
    with work() as folder:
        target = folder / "kernel.cubin"
        command = [str(nvcc), "-cubin", f"-I{INCLUDE}", *flags, str(source), "-o", str(target)]
        with busy(f"nvcc compiles {source.parent.name} ..."):
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            messages = explained(done.stderr or done.stdout)
            if match := TOO_MUCH_SHARED.search(messages):
                raise SharedMemoryError(f"{source} does not compile for {arch}:\n{messages}", match[1])
            raise CompileError(f"{source} does not compile for {arch}:\n{messages}")
        cubin = target.read_bytes()
    store(cached, cubin)
    return cubin


def explained(messages: str) -> str:
    """Add the source line that it names to each error of nvcc."""
    lines = []
    for line in messages.strip().splitlines():
        lines.append(line)
        match = ERROR_LINE.match(line)
        if match and Path(match["file"]).is_file():
            text = read_source(Path(match["file"])).splitlines()
            named = text[int(match["line"]) - 1].strip() if int(match["line"]) <= len(text) else ""
            if named not in messages:  # newer versions of nvcc show it themselves
                lines.append(f"    {match['line']} | {named}")
    return "\n".join(lines)
