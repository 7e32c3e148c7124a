"""PTX and machine code: read from samples, and from what nvcc writes where it is installed."""

import re
from pathlib import Path

import pytest

from mini_dnn.cli import main
from mini_dnn.cli.assembly import counts, listing
from mini_dnn.device.assembly import (
    PTX,
    SASS,
    Compiled,
    Instruction,
    Resources,
    assemble,
    ptx_code,
    resources,
    sass,
)
from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.device.tools import find_tool
from mini_dnn.errors import CompileError, DeviceError
from mini_dnn.variant import find

Output = pytest.CaptureFixture[str]
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")

SAID = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'scale' for 'sm_80'
ptxas info    : Function properties for scale
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 31 registers, used 1 barriers, 8 bytes stack, 5184 bytes smem, 392 bytes cmem[0]
ptxas info    : Compiling entry function 'plain' for 'sm_80'
ptxas info    : Function properties for plain
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, 392 bytes cmem[0]
"""
DISASSEMBLED = """\t.section\t.text.scale,"ax",@progbits
scale:
.text.scale:
\t//## File "/k/kernel.cu", line 4
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "/usr/include/math.hpp", line 9 inlined at "/k/kernel.cu", line 5
        /*0010*/              @!P0 FFMA.FTZ R2, R2, R3, R4 ;
.L_x_0:
        /*0020*/                   LDG.E R2, desc[UR4][R2.64] ;
        /*0030*/                   NOP ;
.text.plain:
        /*0000*/                   EXIT ;
"""
TEXT = """.visible .entry scale(
\t.param .u64 scale_param_0
)
{
\t.reg .pred \t%p<2>;
\t.loc\t1 4 0
\tld.param.u64 \t%rd1, [scale_param_0];
\t.loc\t1 0 3
\tld.global.f32 \t%f1, [%rd1];
$L__BB0_1:
\t@%p1 bra \t$L__BB0_1;
\tret;
}
\t.file\t1 "/k/kernel.cu"
"""


def test_what_ptxas_reports() -> None:
    assert resources(SAID) == {"scale": Resources(31, 12, 16, 5184), "plain": Resources(10, 0, 0, 0)}
    assert str(Resources(31, 12, 16, 5184)) == (
        "31 registers per thread, 12 bytes spilled, 16 loaded again, "
        "5,184 bytes of static shared memory per block"
    )
    assert "no spills" in str(Resources(10, 0, 0, 0))


def test_machine_code_is_read() -> None:
    found = dict(sass(DISASSEMBLED))
    assert found["plain"] == [Instruction("EXIT", "EXIT")]
    assert found["scale"] == [
        Instruction("LDC R1, c[0x0][0x28]", "LDC", "/k/kernel.cu", 4),
        Instruction("@!P0 FFMA.FTZ R2, R2, R3, R4", "FFMA", "/usr/include/math.hpp", 9),
        Instruction(".L_x_0:", ""),
        Instruction("LDG.E R2, desc[UR4][R2.64]", "LDG", "/usr/include/math.hpp", 9),
        Instruction("NOP", "NOP", "/usr/include/math.hpp", 9),
    ]


def test_ptx_is_read() -> None:
    assert dict(ptx_code(TEXT))["scale"] == [
        Instruction("ld.param.u64 %rd1, [scale_param_0]", "ld.param", "/k/kernel.cu", 4),
        Instruction("ld.global.f32 %f1, [%rd1]", "ld.global", "/k/kernel.cu", 4),
        Instruction("$L__BB0_1:", ""),
        Instruction("@%p1 bra $L__BB0_1", "bra", "/k/kernel.cu", 4),
        Instruction("ret", "ret", "/k/kernel.cu", 4),
    ]


def test_counts_of_two_variants() -> None:
    old = [Compiled("a", Resources(10, 0, 0, 0), tuple(dict(sass(DISASSEMBLED))["scale"]))]
    new = [*old, Compiled("b", Resources(40, 8, 8, 64), (Instruction("LDG R1", "LDG"),))]
    assert counts(old, new) == [
        ("registers", 10, 40),
        ("spilled bytes", 0, 8),
        ("shared bytes", 0, 64),
        ("instructions", 3, 4),
        ("LDG", 1, 2),
        ("FFMA", 1, 1),
        ("LDC", 1, 1),
    ]


def test_instructions_stand_below_their_lines() -> None:
    variant = find("m1")
    number, line = next(
        (i, t) for i, t in enumerate(variant.source.read_text().splitlines(), 1) if "return;" in t
    )
    code = (Instruction("EXIT", "EXIT", str(variant.source), number), Instruction("NOP", "NOP"))
    text = listing([Compiled("k", Resources(31, 0, 0, 0), code)], variant, "conv1", 90)
    assert f"kernel.cu:{number} | {line.strip()}\n      EXIT\n" in text
    assert "(no line)\n      NOP" in text
    assert "1 instructions: 1 EXIT" in text


@needs_nvcc
def test_ptx_of_a_variant(capsys: Output) -> None:
    assert main(["show", "m1", "--ptx", "--arch", "80"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"conv_direct: \d+ registers per thread, no spills, 0 bytes of static shared", out)
    assert re.search(r"kernel\.cu:\d+ \| if \(pixel >= P \* Q\) return;", out)
    assert re.search(r"^      fma\.rn\.f32 ", out, re.MULTILINE)


@needs_nvcc
@pytest.mark.exhaustive
def test_machine_code_of_two_variants(capsys: Output) -> None:
    try:
        find_tool("nvdisasm")
    except DeviceError as error:
        pytest.skip(str(error))
    assert main(["diff", "m1/tiled_direct", "--instructions", "--at", "conv2"]) == 0
    out = capsys.readouterr().out
    assert "machine code for conv2" in out
    loads = re.search(r"^LDS +0 +(\d+) +\+\1$", out, re.MULTILINE)
    assert loads, "the tile is read from shared memory"
    assert re.search(r"^FFMA +\d+ +\d+ ", out, re.MULTILINE)


@needs_nvcc
def test_what_does_not_compile_says_so(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text("__global__ void f() { nonsense; }\n")
    with pytest.raises(CompileError, match="nonsense"):
        assemble(tmp_path / "kernel.cu", {}, 80, PTX)


def test_without_nvcc_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setattr("mini_dnn.device.nvcc.find_nvcc", lambda: None)
    assert main(["show", "m1", "--sass"]) == 2
    assert "nvcc was not found, but --sass shows the code that it makes. Install" in capsys.readouterr().err


def test_without_nvdisasm_the_message_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("mini_dnn.device.nvcc.find_nvcc", lambda: tmp_path / "nvcc")
    for name in ("shutil.which", "pathlib.Path.is_file"):
        monkeypatch.setattr(f"mini_dnn.device.tools.{name.removeprefix('pathlib.')}", lambda *_: None)
    with pytest.raises(DeviceError, match="pip install nvidia-cuda-nvdisasm"):
        assemble(tmp_path / "kernel.cu", {}, 80, SASS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "cpu", "--ptx"], "m1/cpu runs on the host and has no machine code"),
        (["show", "m1", "--ptx", "--standalone", "x"], "use only one of them"),
        (["diff", "m1/tiled_direct", "--arch", "80"], "--arch needs --instructions"),
        (["diff", "m1", "softmax/v0_naive", "--instructions"], "they have no problem in common"),
        (["diff", "gemm/v17", "--instructions"], "supported by both gemm/v10_small and gemm/v17_vectors"),
    ],
)
def test_wrong_use(words: list[str], message: str, capsys: Output) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.exhaustive
@needs_nvcc
def test_kernels_of_variants_that_are_called(capsys: Output) -> None:
    assert main(["show", "m3/ladder_gemm", "--ptx", "--shapes", "2,1,9,9,3,2,2"]) == 0
    found = re.findall(r"^(\w+): \d+ registers per thread", capsys.readouterr().out, re.MULTILINE)
    assert sorted(found) == ["gemm_v3_registers_gemm", "permute", "unroll"]
    assert main(["show", "gemm/v10", "--ptx", "--shapes", "512,512,512,fp16,fp16"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("gemm/v8_final for 512,512,512,fp16,fp16, ")
    assert " (called by gemm/v10_small), by nvcc for sm_90a\n\ngemm: " in out
