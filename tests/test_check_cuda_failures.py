"""``check --device cuda``: kernels that do not end, slow machines, and tools or GPUs that are missing."""

from dataclasses import replace
from pathlib import Path

import pytest
from sanitizer_samples import M1
from sanitizer_stand_in import ODD, SHAPES, Install, check, edited
from sanitizer_stand_in import install as install

from mini_dnn.checking import on_gpu as check_cuda
from mini_dnn.checking import sanitizer
from mini_dnn.cli import main
from mini_dnn.device import tools
from mini_dnn.errors import MiniDnnError


class TestVerb:
    def test_endless(
        self,
        install: Install,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        install()
        monkeypatch.setattr(check_cuda, "KERNELS_S", 0.5)
        folder = edited(
            tmp_path,
            M1,
            "kernel.cu",
            "  float acc = 0.0f;",
            "  float acc = 0.0f;\n  for (;;) __nanosleep(9);",
        )
        assert main(["check", "--device", "cuda", "--impl", folder, "--shapes", ODD]) == 1
        assert "1. endless: the kernels did not finish within 0.5 s" in capsys.readouterr().out

    def test_a_slow_machine_is_no_endless_kernel(
        self, install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The time before a kernel starts, such as that of Python and the compiler, does not count."""
        install()
        monkeypatch.setattr(check_cuda, "PROGRAM", ("-c", "import time; time.sleep(60)"))
        monkeypatch.setattr(check_cuda, "LIMIT_S", 0.5)
        assert check("--impl", "m1") == 2
        told = capsys.readouterr()
        assert "took more than 0.5 s, although its kernels may take only 60; try again when" in told.err
        assert "endless" not in told.out + told.err

    @pytest.mark.exhaustive
    @pytest.mark.parametrize(("alone", "status"), [(True, 0), (False, 2)])
    def test_problems_that_take_too_long_together(
        self,
        alone: bool,
        status: int,
        install: Install,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """The one that takes too long alone is an error."""
        install()
        real = tools.run

        def slow(words: list[str], *rest: object) -> tools.Done:
            done = real(words, *rest)  # type: ignore[arg-type]
            return replace(done, timed_out=not alone or (SHAPES[0] in words and SHAPES[1] in words))

        monkeypatch.setattr(sanitizer, "run", slow)
        assert check("--impl", "m1") == status
        told = capsys.readouterr()
        assert ("no findings at 2 shapes" in told.out) == alone
        assert ("memcheck did not end within 600 s; try smaller shapes" in told.err) != alone

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ("print('Error: Unable to find injection library'); sys.exit(1)", "cuda-sanitizer-api"),
            ("print('========= Error: Device not supported'); sys.exit(1)", "does not know this GPU"),
            ("sys.exit(5)", "ended with exit status 5 and no report"),
        ],
    )
    def test_a_tool_that_fails(
        self, install: Install, body: str, message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        install(body)
        assert check("--impl", "m1") == 2
        assert message in capsys.readouterr().err

    def test_no_gpu(
        self, install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        install()
        body = "import sys; print('error: no GPU 0: the driver reports 0', file=sys.stderr); sys.exit(2)"
        monkeypatch.setattr(check_cuda, "PROGRAM", ("-c", body))
        assert check("--impl", "m1") == 2
        assert "m1/direct cannot be checked on a GPU here: no GPU 0" in capsys.readouterr().err

    def test_no_tool(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(tools, "USUAL_PLACES", ())
        for variable in ("PATH", *tools.HOMES):
            monkeypatch.setenv(variable, "")
        assert check("--impl", "m1") == 2
        assert "cuda-sanitizer-api" in capsys.readouterr().err

    def test_arch_is_the_gpus(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert check("--impl", "m1", "--arch", "80") == 2
        assert "--device cuda uses the installed GPU" in capsys.readouterr().err

    def test_a_tool_that_may_not_run(self, install: Install, tmp_path: Path) -> None:
        install()
        program = tmp_path / "bin" / "compute-sanitizer"
        program.write_text("no program")
        with pytest.raises(MiniDnnError, match=r"cannot be started: .*check whether it is executable"):
            tools.run([str(program)])
