"""Kernel files compiled for checked mode: writes beyond a thread's own arrays are prevented and reported."""

# ruff: noqa: E501
from __future__ import annotations

from pathlib import Path

import pytest
from judged_kernels import ALONE, judged, launched, needs_x86_64

from mini_dnn.device.emulator.checked import KernelError

pytestmark = needs_x86_64
WILD = {  # writes beyond a thread's own arrays that the machine code does not forbid, and their messages
    "far from an array": (
        "",
        "float a[4] = {x[0]}; float* p = a; p[(long long)n * n << 30] = 1; x[i] = a[i & 3]",
    ),
    "by a structure": (
        "struct S { int k; float a[1]; };",
        "S s = {n}; s.a[0] = x[0]; s.a[(long)n << 18] = 2; x[i] = s.a[0]",
    ),
    "by a lambda": (
        "",
        "float a[4] = {}; auto f = [&](long j) { a[0] = x[0]; (&a[0])[j] = 1; }; f((long)n << 20); x[i] = a[n & 3]",
    ),
    "by a copy": ("", "char a[16]; memset(a, 1, (size_t)n << 28); x[i] = a[n & 15]"),
    "over a return address": (
        ALONE + " __device__ void f(long* p, long at, long to) { p[at] = to; }",
        "long own = 0; for (long j = 1; j < 64; j++) f(&own, j, (long)x); x[i] = own",
    ),
    "over a return address, by a recursion": (
        "__device__ void f(long* p, long at, int depth) { if (depth) { f(p, at, depth - 1); p[0]++; } else p[at] = 7; }",
        "long own = 0; for (long j = 1; j < 64; j++) f(&own, -j, n); x[i] = own",
    ),
    "over frames of the runtime": (
        ALONE + " __device__ void f(long* p, long at, long to) { p[at] = to; }",
        "long own = 0; f(&own, 48 + n, 0); x[i] = own",
    ),
    "by an argument list": (
        "#include <stdarg.h>\nstruct V { unsigned gp, fp; char *over, *save; };\nstruct B { double a[4]; };\n"
        + ALONE
        + " double f(float* x, ...) { va_list ap; va_start(ap, x); ((V*)ap)->over = (char*)(x + 6000); B b = va_arg(ap, B); va_end(ap); return b.a[2]; }",
        "x[i] = f(x, 1, 2.0)",
    ),
    "by clearing": ("#include <new>\nstruct P { float a[100]; };", "new (x + 4000) P{}; x[i] += 1"),
    "by a second result": ("", "frexpf(x[i], (int*)(x + 5000 + n))"),
    "by sine and cosine": ("", "sincosf(x[i], x + i, x - 8 * n)"),
    "by freeing": ("", "x[i] += 1; free(x + 4 * n)"),
    "by deleting": ("", "float* p = new float[4]; p[0] = x[i]; x[i] += p[0]; delete p; delete p"),
    "by printing": ("", 'printf("%-*.*s%hn", n, n, "text", (short*)x + 100)'),
}


@pytest.mark.parametrize("name", WILD)
def test_what_is_written_beyond_is_found(name: str, tmp_path: Path) -> None:
    """The write is prevented, because the verdict of checked mode is in the same process."""
    judged(*WILD[name], tmp_path)
    with pytest.raises(KernelError, match=r"out-of-bounds|not its own|printf has no %n"):
        launched(tmp_path)
