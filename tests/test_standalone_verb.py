"""``show --standalone``: the verb, and variants that leave a problem to another variant."""

import errno
import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from take_home_helpers import GEMM, files_of

from mini_dnn.cli import main, show
from mini_dnn.errors import MiniDnnError, UsageError
from mini_dnn.ops import Array
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import Variant, find, names
from mini_dnn.variant.plan import Call, Gemm

Output = pytest.CaptureFixture[str]


class TestCalls:
    """Variants that leave a problem to another variant: the folder contains the other's kernel."""

    @pytest.mark.parametrize(
        "name", [name for name in names() if "Call(" in (find(name).folder / "variant.py").read_text()]
    )
    def test_a_problem_of_its_own_is_shown(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["show", name, "--expand"]) == 0
        assert capsys.readouterr().out.startswith(f"// {name} for ")

    @pytest.mark.parametrize(
        ("name", "text", "solver"),
        [
            ("gemm/v10", "512,512,512,fp16,fp16", "gemm/v8_final"),
            ("gemm/v10", "256,256,256,fp16,fp16", "gemm/v10_small"),
            ("attention/v10", "2,3,300,64", "attention/v9_final"),
            ("attention/v11", "2,3,197,64", "attention/v10_heads"),  # v11 calls it
            ("attention/v11", "2,3,1,32", "attention/v9_final"),  # v11 calls v10, which calls v9
        ],
    )
    def test_the_folder_is_that_of_the_solver(self, name: str, text: str, solver: str) -> None:
        variant, other = find(name), find(solver)
        problem = variant.operation.parse(text)
        assert variant.solver(problem).name == solver
        found, expected = files_of(variant, problem), files_of(other, problem)
        line = f"// {variant.name} calls it for this problem.\n".encode() if variant.name != solver else b""
        for file in ("main.cu", "kernel.cu"):
            assert found[file].startswith(f"// {solver} for a test: {problem}\n".encode() + line)
            assert found[file].replace(line, b"", 1) == expected[file]
        assert found.keys() == expected.keys()

    def test_a_call_is_followed_only_if_it_is_the_whole_plan(self) -> None:
        problem = GEMM.parse("70,40,30")
        same = {name: name for name in problem.arrays}
        whole = Call("gemm/v2", problem, same)
        base = replace(find("gemm/v3"), name="mine", defines={})
        plans = {
            "gemm/v2_tiled": [whole],
            "mine": [Call("gemm/v2", problem.with_batch(1), {**same, "a": "b", "b": "a"})],
        }
        for name, steps in plans.items():
            assert replace(base, plan=lambda p, steps=steps: steps).solver(problem).name == name
        assert replace(base, plan=lambda p: [whole, whole]).solver(problem).name == "mine"
        smaller = Call("gemm/v2", GEMM.parse("7,40,30"), same)
        assert replace(base, plan=lambda p: [smaller]).solver(problem).name == "mine"

    def test_the_verb_names_it(self, tmp_path: Path, capsys: Output) -> None:
        folder = tmp_path / "home"
        shapes = ["--shapes", "512,512,512,fp16,fp16"]
        assert main(["show", "gemm/v10", "--expand", "--standalone", str(folder), *shapes]) == 0
        out = capsys.readouterr().out
        assert ", with the kernel of gemm/v8_final, which gemm/v10_small calls: main.cu, kernel.cu" in out
        assert main(["show", "gemm/v10", "--expand", *shapes]) == 0
        assert capsys.readouterr().out.startswith(
            "// gemm/v8_final for 512,512,512,fp16,fp16: (512,512) @ (512,512) fp16 -> fp16\n"
            "// gemm/v10_small calls it for this problem.\n"
        )


class TestVerb:
    def test_writes_a_new_folder(self, tmp_path: Path, capsys: Output) -> None:
        folder = tmp_path / "a folder" / "v3"
        words = [
            "show",
            "gemm/v3",
            "--expand",
            "--standalone",
            str(folder),
            "--shapes",
            "33,17,5",
            "--arch",
            "80",
        ]
        assert main(words) == 0
        out = capsys.readouterr().out
        assert out.splitlines()[-1] == f"next: cd '{folder}' && make && ./main"
        assert (
            (folder / "main.cu")
            .read_text()
            .startswith("// gemm/v3_registers for 33,17,5: (33,5) @ (5,17) fp32")
        )
        assert "ARCH ?= 80\n" in (folder / "Makefile").read_text()
        assert main(words) == 2
        assert "already exists; remove it" in capsys.readouterr().err

    def test_the_folder_is_named_after_the_variant(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
    ) -> None:
        monkeypatch.chdir(tmp_path)
        words = ["show", "gemm/v3", "--shapes", "33,17,5", "--expand", "--standalone"]
        assert main(words) == 0
        assert (tmp_path / "v3_registers" / "main.cu").is_file()
        assert "next: cd v3_registers && make && ./main" in capsys.readouterr().out
        assert main(words) == 2
        assert "--standalone v3_registers already exists" in capsys.readouterr().err
        assert main([*words, "."]) == 2, "this folder has something in it"

    def test_takes_the_first_problem_that_the_variant_takes(self, tmp_path: Path, capsys: Output) -> None:
        (tmp_path / "mine").mkdir()
        for file in ("kernel.cu", "variant.py"):
            text = (find("gemm/v3").folder / file).read_text()
            (tmp_path / "mine" / file).write_text(
                text.replace(
                    "VARIANT = Variant(",
                    'VARIANT = Variant(\n    refuses=lambda p: "" if p.m == 16 else "of all the others",',
                )
            )
        assert main(["show", str(tmp_path / "mine"), "--expand"]) == 0
        assert "for conv2: (16,196) @ (196,115600)" in capsys.readouterr().out.splitlines()[0]

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (["cpu", "--expand"], "so it has no kernel to expand"),
            (["m3/cublas", "--expand"], "calls cuBLAS"),
            (["networks/resnet18/v1", "--expand"], "sends buffers to the host and back"),
            (["m2", "--expand", "--out", "x.cu"], "use only one of them"),
            (["gemm/v5", "--expand", "--arch", "75"], "gemm/v5_mma_async needs 80 or newer"),
            (["m1", "--expand", "--shapes", "70000,1,1,1,1,1,1"], "needs more blocks than a grid can have"),
        ],
    )
    def test_wrong_use(self, tmp_path: Path, capsys: Output, flags: list[str], message: str) -> None:
        assert main(["show", *flags, "--standalone", str(tmp_path / "folder")]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "folder").exists()

    @pytest.mark.parametrize("is_new", [True, False])
    def test_a_full_disk_leaves_nothing(
        self, is_new: bool, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A partial folder would be in the way the next time. An older folder is kept."""
        folder, write = tmp_path / "folder", Path.write_bytes
        if not is_new:
            folder.mkdir()

        def full(path: Path, content: bytes) -> int:
            if path.name == "harness.cuh":
                write(path, content[:9])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(path, content)

        monkeypatch.setattr(Path, "write_bytes", full)
        assert main(["show", "m1", "--shapes", "1,1,3,3,1,1,1", "--standalone", str(folder)]) == 2
        assert "cannot be written: No space left on device" in capsys.readouterr().err
        assert folder.exists() != is_new
        assert is_new or not list(folder.iterdir())

    def test_a_full_disk_leaves_no_half_file(self, tmp_path: Path) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (9, hard))
        try:
            with pytest.raises(MiniDnnError, match="cannot be written: File too large"):
                show._write(tmp_path / "kernel.cu", "more than nine characters")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not (tmp_path / "kernel.cu").exists()

    def test_types_that_the_program_does_not_know(self) -> None:
        variant = replace(find("m1"), scratch=lambda s: {"z": Array((1,), "complex64")})
        with pytest.raises(UsageError, match="z is complex64; the program supports float16, bfloat16"):
            files_of(variant, ConvShape(1, 1, 1, 1, 1, 1, 1))

    def test_calls_of_a_library(self, tmp_path: Path) -> None:
        (tmp_path / "kernel.cu").write_text("")
        steps = [Gemm("w", "x", "y", 1, 1, 1)]
        variant = Variant("conv2d", "", plan=lambda s: steps, folder=tmp_path, name="mine")
        with pytest.raises(UsageError, match="mine calls cuBLAS"):
            files_of(variant, ConvShape(1, 1, 1, 1, 1, 1, 1))
