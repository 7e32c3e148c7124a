"""Analysis of machine code by the grader: equal addresses have equal values."""

import platform
import subprocess
from pathlib import Path

import pytest

from mini_dnn.grading.confined.disassembly import disassemble
from mini_dnn.grading.confined.effects import apply
from mini_dnn.grading.confined.image import Image
from mini_dnn.grading.confined.states import REGISTERS, State
from mini_dnn.grading.confined.values import unknown

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86-64")

# g++ 13 computes the address of row n & 1 in both ways; n is in edi, and the array is in rsi
BIT = """
andl $1, %edi
movslq %edi, %rax
movq %rax, %rdx
negq %rdx
"""
WAYS = {
    "a mask": (
        "andl $136, %edx; leaq 4(%rdx,%rsi), %r8",
        "imulq $136, %rax, %rax; leaq 4(%rsi,%rax), %r9",
        True,
    ),
    "a wide mask": ("andq $136, %rdx; leaq (%rdx,%rsi), %r8", "imulq $136, %rax, %r9; addq %rsi, %r9", True),
    "shifts": (
        "andl $34, %edx; leaq (%rsi,%rdx,4), %r8",
        "movq %rax, %rcx; shlq $4, %rcx; addq %rax, %rcx; leaq (%rsi,%rcx,8), %r9",
        True,
    ),
    "another mask": (
        "andl $140, %edx; leaq (%rdx,%rsi), %r8",
        "imulq $136, %rax, %r9; addq %rsi, %r9",
        False,
    ),
    "no bit": (
        "movslq %ecx, %rax; movq %rax, %rdx; negq %rdx; andl $136, %edx; leaq (%rdx,%rsi), %r8",
        "imulq $136, %rax, %r9; addq %rsi, %r9",
        False,
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_bit_is_multiplied_by_a_mask(name: str, tmp_path: Path) -> None:
    first, second, same = WAYS[name]
    source, library = tmp_path / "code.s", tmp_path / "code.o"
    source.write_text(f"f:\n{BIT}\n{first}\n{second}\n".replace("; ", "\n"))
    subprocess.run(["g++", "-c", str(source), "-o", str(library)], check=True)
    state = State({register: unknown("start", register) for register in REGISTERS})
    for one in disassemble("objdump", library)[0].code:
        apply(one, state, Image((), frozenset()))
    assert (state.registers["r8"] is state.registers["r9"]) == same
