"""Reports of Compute Sanitizer as in its manual and releases, in checked mode's words."""

from pathlib import Path

from sanitizer_samples import BARRIER, DIVERGENT, FILL, HAZARDS, LOAD, M1, M2, OUT_OF_BOUNDS, USE

from mini_dnn.checking import sanitizer
from mini_dnn.checking.verdicts import Allocation, verdicts
from mini_dnn.device.finding import Finding, Target

WHO = "by thread (1,0,0) in block (0,0,0)"


def message(headline: str, *details: str) -> str:
    """One message in the tool's format."""
    lines = [f"========= {headline}", *(f"=========     {text}" for text in details), "========="]
    return "\n".join(lines) + "\n"


def buffer(name: str, shape: tuple[int, ...], address: int, nbytes: int, axes: str = "") -> Allocation:
    return Allocation(Target(name, "global", shape, 4, axes), address, nbytes)


def one(text: str, source: Path = M2.source, *allocations: Allocation) -> Finding:
    (finding,) = verdicts(sanitizer.read(text), source, allocations)
    return finding


def test_out_of_bounds_of_a_buffer() -> None:
    text = OUT_OF_BOUNDS.replace("@x+1512@", "0x7f00000005e8").replace("@x+0@", "0x7f0000000000")
    finding = one(text, M1.source, buffer("x", (2, 1, 9, 21), 0x7F0000000000, 1512, "nchw"))
    assert (finding.kind, finding.kernel) == ("out-of-bounds", "conv_direct")
    assert finding.array == "x[n=2, c=0, h=0, w=0]"
    assert finding.what.endswith("outside global array x (2, 1, 9, 21), element 378 of 378")
    assert finding.own is not None
    assert finding.place is not None
    assert (finding.place.file, finding.place.line) == ("kernel.cu", LOAD)
    assert finding.place.code.startswith("const float value = x[")
    assert (finding.own.thread, finding.own.block) == ((35, 0, 0), (1, 2, 1))
    assert finding.notes == ("reported 2 times",)
    assert "guard the access" in finding.cure


def test_before_a_buffer() -> None:
    details = (
        "at k+0x10 in kernel.cu:40",
        "Address 0xffc is out of bounds",
        "and is 4 bytes before the nearest allocation at 0x1000 of size 16 bytes",
    )
    text = message("Invalid __global__ write of size 4 bytes", *details)
    finding = one(text, M2.source, buffer("y", (4,), 0x1000, 16))
    assert finding.what.startswith("write of y[-1]: outside global array y (4,), 1 ")
    assert finding.what.endswith(" before its start")
    assert one(text).notes == (
        "the address is 4 bytes before the nearest allocation at 0x1000 of size 16 bytes",
    )


def test_no_buffer_near() -> None:
    details = ("at k+0x10 in kernel.cu:40", "Address 0x10 is out of bounds")
    finding = one(message("Invalid __global__ atomic of size 4 bytes", *details))
    assert finding.what == "update of 4 bytes outside all arrays of global memory at 0x10"
    assert finding.own is not None
    assert finding.own.does == "updates"


def test_shared_memory() -> None:
    details = (f"at gemm+0x160 in kernel.cu:{FILL}", WHO, "Address 0xc00 is out of bounds")
    finding = one(message("Invalid __shared__ write of size 4 bytes", *details))
    assert (finding.kind, finding.kernel) == ("out-of-bounds", "gemm")
    assert "outside all arrays of shared memory at 0xc00" in finding.what


def test_misaligned() -> None:
    details = (
        f"at gemm+0x380 in kernel.cu:{FILL}",
        WHO,
        "Access to 0x7bd889c03044 is misaligned",
        "and is inside the nearest allocation at 0x7bd889c03000 of size 1,024 bytes",
    )
    finding = one(message("Invalid __global__ read of size 16 bytes", *details))
    assert finding.kind == "misaligned"
    assert "16 bytes at an address that is 4 bytes past a multiple of 16" in finding.what


def test_race_once_with_both_threads() -> None:
    finding = one(HAZARDS)
    assert (finding.kind, finding.kernel, finding.array) == ("race", "gemm", "w_tile")
    assert finding.own is not None
    assert finding.other is not None
    assert (finding.own.does, finding.own.thread, finding.own.block) == ("reads", (5, 3, 0), (11, 0, 0))
    assert (finding.other.does, finding.other.thread) == ("writes", (0, 1, 0))
    assert [p.place.line for p in (finding.own, finding.other) if p.place] == [USE, FILL]
    assert finding.what.startswith("one thread writes and another reads byte 0x404 of shared array w_tile")
    assert finding.notes == ("reported 2,048 times",)
    assert "__syncthreads()" in finding.cure


def test_race_of_one_line_with_itself() -> None:
    """With ``--print-limit`` the report may contain only the summary."""
    write = f"Write access at gemm+0x10 in kernel.cu:{FILL}"
    finding = one(message(f"Warning: Race reported between {write}", f"and {write} [8 hazards]"))
    assert "one thread writes and another writes the same element of shared array w_tile" in finding.what


def test_race_with_an_asynchronous_copy() -> None:
    headline = "Error: Potential RAW hazard detected at __shared__ 0x10 in block (0,0,0)"
    details = [
        f"{who} at gemm+0x10 in kernel.cu:{FILL}" for who in ("Write Thread (0,0,0)", "Read Thread (1,0,0)")
    ]
    finding = one(message(f"{headline} (invalid memcpy_async synchronization) :", *details))
    assert "before the asynchronous copy was waited for" in finding.what
    assert "wait for the copy" in finding.cure


def test_divergence() -> None:
    finding = one(DIVERGENT)
    assert (finding.kind, finding.kernel) == ("divergence", "gemm")
    assert finding.place is not None
    assert finding.place.line == BARRIER


def test_a_line_in_a_header_of_cuda() -> None:
    """The call frames lead to the line in the kernel file."""
    details = (
        "at __syncwarp(unsigned int)+0xe0 in sm_30_intrinsics.hpp:110",
        WHO,
        f"    Device Frame: gemm(float *, unsigned long)+0xb0 in /input/kernel.cu:{BARRIER}",
    )
    finding = one(message("Barrier error detected. Invalid arguments.", *details))
    assert (finding.kind, finding.kernel) == ("warp-mask", "gemm")
    assert finding.place is not None
    assert finding.place.line == BARRIER
    assert "invalid arguments" in finding.what


def test_uninitialised() -> None:
    details = (f"at gemm(int *)+0x70 in kernel.cu:{FILL}", WHO, "Address 0x100c")
    text = message("Uninitialized __global__ memory read of size 4 bytes", *details)
    finding = one(text, M2.source, buffer("col", (2, 8), 0x1000, 64))
    assert finding.kind == "uninitialised"
    assert finding.what == "read of col[0, 3] of global array col (2, 8), which nothing has written"


def test_an_unknown_message_is_kept() -> None:
    finding = one(message("Warpgroup MMA sequence error detected: news", "at gemm+0x10 in kernel.cu:40"))
    assert (finding.kind, finding.what) == ("fault", "Warpgroup MMA sequence error detected: news")


def test_a_copy_of_what_nobody_wrote_is_left_to_the_comparison() -> None:
    headline = "Host API memory access error at host access to 0x1303fd1400 of size 25600 bytes"
    text = message(headline, "Uninitialized access at 0x1303fd4600 on access by cudaMemcopy source.")
    assert verdicts(sanitizer.read(text), M2.source) == []


def test_clean() -> None:
    text = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
    assert verdicts(sanitizer.read(text), M2.source) == []
