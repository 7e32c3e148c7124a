"""The verb that profiles, with stand-ins for NVIDIA's programs, and on a GPU with the real ones."""

import stat
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from profile_samples import CLEAN, MEMCHECK, NSYS, RAW

from mini_dnn.checking import sanitizer
from mini_dnn.cli import main
from mini_dnn.device import open_device, tools
from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.device.tools import find_tool
from mini_dnn.errors import DeviceError, LaunchError, MiniDnnError
from mini_dnn.nn.models import lenet
from mini_dnn.ops.conv2d import LAYERS, ConvShape
from mini_dnn.profiling import workload
from mini_dnn.profiling.job import Job, rehearse
from mini_dnn.variant import Variant, find

Output = pytest.CaptureFixture[str]


def job(folder: Path) -> Job:
    return Job(find("m2"), {"conv1": LAYERS["conv1"].with_batch(3)}, folder)


def test_layers_are_those_of_the_network(rng: np.random.Generator) -> None:
    seen = []

    def note(x: np.ndarray, w: np.ndarray, name: str) -> np.ndarray:
        seen.append((name, x.shape, w.shape))
        return np.zeros(LAYERS[name].with_batch(2).y, np.float32)

    network = lenet.build(rng)
    network.convolve_with(note)
    network.predict(np.zeros((2, 1, 86, 86), np.float32))
    assert seen == [(name, shape.with_batch(2).x, shape.w) for name, shape in LAYERS.items()]


FAKE = """#!{python}
import sys
from pathlib import Path
words = sys.argv[1:]
{body}
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str) -> None:
    """Put a program with that name first on PATH, and let the rehearsal pass."""
    program = folder / name
    program.write_text(FAKE.format(python=sys.executable, body=body))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr("mini_dnn.cli.profile.rehearse", lambda job, may_crash: "a GPU")


class TestVerb:
    """The verb with programs that behave like NVIDIA's."""

    def test_ncu(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
        body = (
            "if '--import' in words: print(Path(words[words.index('--import') + 1]).read_text())\n"
            f"else: Path(words[words.index('--export') + 1] + '.ncu-rep').write_text({RAW!r})"
        )
        install(tmp_path, monkeypatch, "ncu", body)
        out = tmp_path / "out"
        assert main(["profile", "--impl", "m2", "--tool", "ncu", "--layer", "conv2", "--out", str(out)]) == 0
        text = capsys.readouterr().out
        assert "conv2: unroll  grid" in text
        assert "conv2: gemm  grid" in text
        (folder,) = out.iterdir()
        names = {path.name for path in folder.iterdir()}
        assert names == {"conv2.ncu-rep", "conv2.csv", "conv2.log", "commands.txt", "summary.txt"}
        assert "near its peak" in (folder / "summary.txt").read_text()

    def test_what_a_variant_refuses_is_left_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
    ) -> None:
        """This applies if the problem was not named by the user."""
        install(tmp_path, monkeypatch, "compute-sanitizer", "sys.exit(5)")
        words = ["--impl", "networks/lenet/fused_pool", "--tool", "sanitizer", "--out", str(tmp_path / "out")]
        assert main(["profile", *words]) == 2
        out = capsys.readouterr().out
        assert "float32   (10,1,86,86) float32" in out
        assert "uint8     (10,1,86,86) uint8" in out
        assert "uint8-28" not in out

    def test_counters_for_administrators(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
    ) -> None:
        error = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters"
        install(tmp_path, monkeypatch, "ncu", f"print({error!r}); sys.exit(1)")
        assert main(["profile", "--tool", "ncu", "--out", str(tmp_path / "out")]) == 2
        assert "NVreg_RestrictProfilingToAdminUsers=0" in capsys.readouterr().err

    def test_nsys(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
        body = (
            f"texts = {NSYS!r}\n"
            "if words[0] == 'stats': print(next(t for n, t in texts.items() if f'--report={n}' in words))\n"
            "else: Path([w for w in words if w.startswith('--output=')][0][9:] + '.nsys-rep').touch()"
        )
        install(tmp_path, monkeypatch, "nsys", body)
        assert main(["profile", "--impl", "m2", "--tool", "nsys", "--out", str(tmp_path / "out")]) == 0
        assert "copies take 4.0 times as long" in capsys.readouterr().out

    def sanitize(self, folder: Path, monkeypatch: pytest.MonkeyPatch, messages: str, status: int) -> int:
        body = f"Path(words[words.index('--log-file') + 1]).write_text({messages!r}); sys.exit({status})"
        install(folder, monkeypatch, "compute-sanitizer", body)
        command = ["profile", "--impl", "m2", "--tool", "sanitizer", "--out", str(folder / "out")]
        return main([*command, "--subtool", "memcheck"])

    @pytest.mark.parametrize(
        ("messages", "status", "expected"),
        [
            (CLEAN, 0, 0),
            (MEMCHECK, sanitizer.FOUND, 1),
            (MEMCHECK, 3, 1),  # the kernel was stopped, so the workload failed too
            (CLEAN, 2, 2),  # the workload failed for another reason
            (MEMCHECK[:200], 0, 2),  # there is no verdict
            # The number of errors is printed in an unknown form
            (CLEAN.replace("0 errors", "5 errors"), 0, 2),
        ],
    )
    def test_sanitizer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: str, status: int, expected: int
    ) -> None:
        assert self.sanitize(tmp_path, monkeypatch, messages, status) == expected

    def test_all_checkers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
        body = f"Path(words[words.index('--log-file') + 1]).write_text({CLEAN!r})"
        install(tmp_path, monkeypatch, "compute-sanitizer", body)
        assert main(["profile", "--tool", "sanitizer", "--out", str(tmp_path / "out")]) == 0
        assert capsys.readouterr().out.count(" clean: ") == 4

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (["--impl", "cpu", "--tool", "ncu"], "runs on the host, so it has no kernels to profile"),
            (["--tool", "nsys", "--subtool", "memcheck"], "--subtool memcheck needs --tool sanitizer"),
            (["--tool", "ncu", "--batch", "0"], "--batch 0: expected 1 or more"),
            (
                ["--tool", "ncu", "--at", "conv3"],
                "conv2d has no such problem (did you mean 'conv2'?); expected one of",
            ),
            (["--tool", "ncu", "--shapes", "1,2"], "--shapes '1,2' does not have the form N,C,H,W,M,R,S"),
            (
                ["--tool", "ncu", "--impl", "networks/lenet/fused_pool", "--at", "uint8-28"],
                "does not support uint8-28",
            ),
        ],
    )
    def test_wrong_use(self, capsys: Output, flags: list[str], message: str) -> None:
        assert main(["profile", *flags]) == 2
        assert message in capsys.readouterr().err

    def test_missing_tool(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tools, "USUAL_PLACES", ())
        for variable in ("PATH", *tools.HOMES):
            monkeypatch.setenv(variable, "")
        with pytest.raises(DeviceError, match=r"ncu was not found on PATH.*package nsight-compute"):
            find_tool("ncu")

    def test_tool_of_the_toolkit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/ncu").touch()
        monkeypatch.setenv("PATH", "")
        monkeypatch.setenv("CUDA_HOME", str(tmp_path))
        assert find_tool("ncu") == tmp_path / "bin/ncu"

    def test_compiler_and_disassembler_are_of_one_toolkit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for folder in ("older", "newer"):
            (tmp_path / folder / "bin").mkdir(parents=True)
            for name in ("nvcc", "nvdisasm"):
                (tmp_path / folder / "bin" / name).touch(0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "older/bin"))
        monkeypatch.setenv("CUDA_HOME", str(tmp_path / "newer"))
        assert [find_nvcc(), find_tool("nvdisasm")] == [
            tmp_path / "newer/bin" / name for name in ("nvcc", "nvdisasm")
        ]


class TestWorkload:
    def run(self, monkeypatch: pytest.MonkeyPatch, *flags: str) -> tuple[int, list[str]]:
        """Run the workload on the emulator. Return its exit status and its actions in order."""
        done = []

        @contextmanager
        def captured():
            done.append("start")
            yield
            done.append("stop")

        real_run = workload.run

        def note(variant: Variant, problem: ConvShape, *rest: object) -> object:
            done.append(problem.text)
            return real_run(variant, problem, *rest)

        monkeypatch.setattr(workload, "open_device", lambda name: open_device("emulator"))
        monkeypatch.setattr(workload, "profiler_range", captured)
        monkeypatch.setattr(workload, "run", note)
        return workload.main(["m1", *flags]), done

    def test_warms_up_outside_the_range(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = (shape.with_batch(1).text for shape in LAYERS.values())
        captured = self.run(monkeypatch, "--shapes", second, "--capture")
        assert captured == (0, [second, "start", second, "stop"])
        assert self.run(monkeypatch, "--shapes", first, second)[1] == [first, second]

    @pytest.mark.parametrize(("error", "status"), [(DeviceError("x"), 2), (LaunchError("x"), tools.CRASHED)])
    def test_failures(
        self, monkeypatch: pytest.MonkeyPatch, capsys: Output, error: MiniDnnError, status: int
    ) -> None:
        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(workload, "solve", fail)
        assert self.run(monkeypatch, "--shapes", "1,1,2,2,1,1,1")[0] == status
        assert capsys.readouterr().err == "error: x\n"

    def test_a_batch_in_parts_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        device = open_device("emulator")
        monkeypatch.setattr(device, "free_bytes", lambda: 300_000)  # two images
        variant, shape = find("m1"), LAYERS["conv1"].with_batch(4)
        with pytest.raises(DeviceError, match=r"does not fit.*use a smaller --batch: 2"):
            workload.solve(variant, [(shape, variant.operation.inputs(shape, seed=0))], device)

    def test_rehearsal_passes_on_why_it_failed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def ends(status: int) -> None:
            output = "NVIDIA H200 (sm_90)\nerror: the kernel failed\n"
            monkeypatch.setattr("mini_dnn.profiling.job.run", lambda command: tools.Done((), status, output))

        ends(tools.CRASHED)
        assert rehearse(job(tmp_path), may_crash=True) == "NVIDIA H200 (sm_90)"
        with pytest.raises(MiniDnnError, match=r"m2/unroll_gemm does not run here.*: the kernel failed$"):
            rehearse(job(tmp_path))
        ends(2)
        with pytest.raises(MiniDnnError, match="does not run here"):
            rehearse(job(tmp_path), may_crash=True)


def needs(tool: str) -> None:
    try:
        find_tool(tool)
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.mark.gpu
@pytest.mark.parametrize("flags", [[], ["--capture"], ["--unfilled"]])
def test_workload_on_a_gpu(cuda: object, tmp_path: Path, flags: list[str]) -> None:
    done = tools.run(job(tmp_path).command(*flags))
    assert (done.status, "sm_" in done.output) == (0, True), done.output


@pytest.mark.gpu
@pytest.mark.parametrize(("subtool", "status"), [("racecheck", 1), ("memcheck", 0)])
def test_sanitizer_on_a_gpu(cuda: object, tmp_path: Path, capsys: Output, subtool: str, status: int) -> None:
    """m2's GEMM without the barrier that keeps tiles from being overwritten."""
    needs("compute-sanitizer")
    source = find("m2")
    before, _, after = source.source.read_text().rpartition("__syncthreads();")
    (tmp_path / "kernel.cu").write_text(before + after)
    (tmp_path / "variant.py").write_text((source.folder / "variant.py").read_text())
    command = ["profile", "--impl", str(tmp_path), "--tool", "sanitizer", "--subtool", subtool]
    assert main([*command, "--shapes", "1,4,12,12,16,7,7", "--out", str(tmp_path / "out")]) == status
    if status:
        assert "kernel.cu:" in capsys.readouterr().out


@pytest.mark.gpu
@pytest.mark.gpu_alone
@pytest.mark.parametrize("tool", ["ncu", "nsys"])
def test_profilers_on_a_gpu(cuda: object, tmp_path: Path, capsys: Output, tool: str) -> None:
    needs(tool)
    command = ["profile", "--impl", "m2", "--tool", tool, "--layer", "conv2", "--batch", "10"]
    status = main([*command, "--out", str(tmp_path / "out")])
    text, error = capsys.readouterr()
    if "ERR_NVGPUCTRPERM" in error:
        pytest.skip(error)
    assert status == 0, error
    assert all(kernel in text for kernel in ("unroll", "gemm", "permute"))
