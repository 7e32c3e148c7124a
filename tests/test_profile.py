"""NVIDIA's tools: what is asked of them, and how their reports are read; on a GPU, the tools themselves."""

import stat
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mini_dnn.cli import main
from mini_dnn.course import LAYERS, layer_shape
from mini_dnn.device import open_device
from mini_dnn.errors import DeviceError, LaunchError, MiniDnnError, UsageError
from mini_dnn.models import lenet
from mini_dnn.profiling import advice, ncu, nsys, sanitizer, tools, workload
from mini_dnn.profiling.ncu import Kernel
from mini_dnn.profiling.sanitizer import Finding, Place
from mini_dnn.profiling.tools import Job, find_tool
from mini_dnn.variant import find

Output = pytest.CaptureFixture[str]
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
RAW = f"""==PROF== Connected to process 4711 (/usr/bin/python3.12)
"ID","Process ID","Kernel Name","Block Size","Grid Size","CC","device__attribute_display_name",\
"gpu__time_duration.sum","dram__bytes_read.sum","dram__bytes_write.sum",\
"dram__throughput.avg.pct_of_peak_sustained_elapsed","sm__throughput.avg.pct_of_peak_sustained_elapsed",\
"l1tex__throughput.avg.pct_of_peak_sustained_active","sm__warps_active.avg.pct_of_peak_sustained_active",\
"sm__maximum_warps_per_active_cycle_pct","launch__occupancy_limit_registers","launch__occupancy_limit_warps",\
"launch__occupancy_limit_shared_mem","launch__registers_per_thread","launch__shared_mem_per_block",\
"sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active","lts__t_sector_hit_rate.pct",\
"{STALL.format("long_scoreboard")}","{STALL.format("barrier")}","{STALL.format("selected")}",\
"{STALL.format("long_scoreboard_pipe_l1tex")}","{STALL.format("barrier_not_issued")}"
"","","","","","","","ns","byte","byte","%","%","%","%","%","block","block","block","register/thread",\
"byte/block","%","%","inst","inst","inst","inst","inst"
"0","4711","unroll","(256, 1, 1)","(25, 49, 1000)","9.0","NVIDIA H200",\
"1,000,000.00","1,000,000,000","2,000,000,000","91.50","30.00","45.00","80.25","100.00","8","8","32","32",\
"1,024","0.00","12.00","30.00","5.00","1.00","30.00","4.00"
"1","4711","gemm(const float *, long long)","(16, 16, 1)","(400000, 1, 1)","9.0","NVIDIA H200",\
"2,500,000.00","1,000,000,000","n/a","20.00","40.00","55.00","40.00","50.00","4","8","8","64",\
"2,048","","88.00","2.00","6.00","1.00","2.00","6.00"
==PROF== Disconnected from process 4711
"""
OLD_UNITS = """"ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum","dram__bytes.sum.per_second","cc"
"","","usecond","Mbyte","Gbyte/second","cycle/nsecond"
"0","conv","1,250.50","3","2.5","1.5"
"""

MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at gemm+0x160 in kernel.cu:34
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f6510c00001 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6510c00000 of size 16 bytes
=========
========= Invalid __global__ read of size 4 bytes
=========     at gemm(const float *, int)+0x160 in /home/me/kernel.cu:34
=========     by thread (1,0,0) in block (0,0,0)
=========
========= Invalid __shared__ write of size 4 bytes
=========     at 0x160 in /home/me/my kernels/tile.cuh:7:permute(float*)
=========     by thread (1,0,0) in block (0,0,0)
========= Target application returned an error
========= ERROR SUMMARY: 4 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= ERROR: Potential RAW hazard detected at __shared__ 0x10 in block (0,0,0) :
=========     Write Thread (0,0,0) at gemm(int *)+0x90 in kernel.cu:13
=========     Read Thread (1,0,0) at gemm(int *)+0xa0 in kernel.cu:14
=========     Current Value : 1, Incoming Value : 2
=========
========= Error: Race reported between Write access at gemm(int *)+0x90 in kernel.cu:13
=========     and Read access at gemm(int *)+0xa0 in kernel.cu:14 [2048 hazards]
=========
========= Warning: Maximum number of barriers reached. An environment variable can raise it.
========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)
"""
SYNCCHECK = """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at gemm(int*)+0xb0 in kernel.cu:17
=========     by thread (32,0,0) in block (0,0,0)
========= ERROR SUMMARY: 1 error
"""
INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at permute(int *)+0x70 in kernel.cu:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"

NSYS = {
    "cuda_gpu_kern_sum": """Processing [timeline.sqlite] with [cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
25.0,500000,1,500000.0,500000.0,500000,500000,0.0,permute
75.0,"1,500,000",2,750000.0,750000.0,500000,1000000,0.0,"gemm(const float *, int)"
""",
    "cuda_gpu_mem_time_sum": """
Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
100.0,8000000,3,1,1,1,1,0,[CUDA memcpy Device-to-Host]
""",
    "cuda_api_sum": "SKIPPED: timeline.sqlite does not contain CUDA trace data.\n",
}


def job(folder: Path, name: str = "m2", batch: int = 3, layers: tuple[str, ...] = ("conv1",)) -> Job:
    return Job(find(name), batch, layers, folder)


def test_layers_are_those_of_the_network(rng: np.random.Generator) -> None:
    seen = []

    def note(x: np.ndarray, w: np.ndarray, name: str) -> np.ndarray:
        seen.append((name, x.shape, w.shape))
        return np.zeros(layer_shape(name, 2).y, np.float32)

    network = lenet.build(rng)
    network.convolve_with(note)
    network.predict(np.zeros((2, 1, 86, 86), np.float32))
    assert seen == [(name, layer_shape(name, 2).x, layer_shape(name, 2).w) for name in LAYERS]
    with pytest.raises(UsageError, match="no layer 'conv3'; there are conv1, conv2"):
        layer_shape("conv3")
    with pytest.raises(UsageError, match="a batch of 0"):
        layer_shape("conv1", 0)


class TestNcu:
    def test_raw_page(self) -> None:
        unroll, gemm = ncu.parse(RAW)
        assert (unroll.name, unroll.grid, unroll.block) == ("unroll", "(25, 49, 1000)", "(256, 1, 1)")
        assert gemm.name == "gemm"
        assert unroll.metrics["gpu__time_duration.sum"] == pytest.approx(1e-3)
        assert unroll.metrics["launch__shared_mem_per_block"] == 1024
        assert "dram__bytes_write.sum" not in gemm.metrics  # n/a
        assert "device__attribute_display_name" not in gemm.metrics

    def test_units_of_older_versions(self) -> None:
        (conv,) = ncu.parse(OLD_UNITS)
        assert conv.metrics["gpu__time_duration.sum"] == pytest.approx(1.2505e-3)
        assert conv.metrics["dram__bytes.sum"] == 3e6
        assert conv.metrics["dram__bytes.sum.per_second"] == 2.5e9

    @pytest.mark.parametrize("text", ["", "==ERROR== nothing\n", '"Kernel Name"\n', RAW.splitlines()[1]])
    def test_no_table(self, text: str) -> None:
        assert ncu.parse(text) == []

    def test_description_of_a_kernel_bound_by_memory(self) -> None:
        text = "\n".join(advice.describe(ncu.parse(RAW)[0]))
        assert text.startswith("unroll  grid (25, 49, 1000), block (256, 1, 1)\n")
        assert "1.000 ms under the profiler" in text
        assert "DRAM, at 92% of its peak: near its peak, so this is the limit" in text
        assert "DRAM 92% of its peak (3,000 GB/s)" in text
        assert (
            "100% possible, 80% achieved, 8 blocks an SM, limited by registers and warps (the SM is full)"
            in text
        )
        assert "32 registers a thread, 1.0 KB shared memory a block" in text
        assert (
            "86% of a warp's waiting is for data from global memory" in text
        )  # 30 of 35: selected is no stall
        assert "move fewer bytes" in text

    def test_description_of_a_kernel_that_waits(self) -> None:
        text = "\n".join(advice.describe(ncu.parse(RAW)[1]))
        assert "L1 cache and shared memory, at 55% of its peak: nothing is busy, so warps wait" in text
        assert "75% of a warp's waiting is for other warps at __syncthreads() (barrier)" in text
        assert "limited by registers" in text
        assert "move fewer bytes" not in text

    def test_description_of_nothing(self) -> None:
        assert advice.describe(Kernel("k", "", "", {})) == ["k"]

    @pytest.mark.parametrize(
        ("metrics", "words"),
        [
            ({"launch__waves_per_multiprocessor": 0.4}, "does not fill the GPU"),
            ({"smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 4.0}, "scattered"),
            (
                {
                    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 30.0,
                    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 100.0,
                },
                "bank conflicts",
            ),
            (
                {"sm__maximum_warps_per_active_cycle_pct": 25.0, "launch__occupancy_limit_shared_mem": 2.0},
                "smaller tiles",
            ),
            ({STALL.format("a_new_reason"): 3.0}, ""),
        ],
    )
    def test_hints(self, metrics: dict[str, float], words: str) -> None:
        found = advice.hints(Kernel("k", "", "", metrics))
        assert len(found) == (1 if words else 0)
        assert words in "".join(found)

    def test_command(self, tmp_path: Path) -> None:
        words = ncu.command("ncu", job(tmp_path), "conv2", tmp_path / "conv2.ncu-rep")
        assert words[words.index("--kernel-name") + 1] == "regex:^(unroll|gemm|permute)$"
        assert words[words.index("--clock-control") + 1] == "none"
        assert words[words.index("--export") + 1] == str(tmp_path / "conv2")  # the tool adds the suffix
        workload_words = words[words.index(sys.executable) :]
        assert workload_words[-5:] == ["--batch", "3", "--layers", "conv2", "--capture"]

    def test_a_library_has_names_of_its_own(self, tmp_path: Path) -> None:
        words = ncu.command("ncu", job(tmp_path, "m3/cublas"), "conv1", tmp_path / "conv1.ncu-rep")
        assert "--kernel-name" not in words


def test_nsys_reports() -> None:
    found = {name: nsys.parse(text) for name, text in NSYS.items()}
    gemm, permute = found["cuda_gpu_kern_sum"]
    assert (gemm.name, gemm.count, gemm.total_ms) == ("gemm(const float *, int)", 2, 1.5)
    assert permute.total_ms == 0.5
    assert found["cuda_api_sum"] == []
    text = "\n".join(nsys.describe(found))
    assert "kernels, on the GPU: 2.000 ms in all" in text
    assert "copies take 4.0 times as long as the kernels" in text
    assert nsys.describe({}) == []


class TestSanitizer:
    def test_memcheck(self) -> None:
        findings = sanitizer.parse(MEMCHECK)
        read = Finding("Invalid __global__ read of size 4 bytes", (Place("gemm", "kernel.cu", 34),))
        write = Finding("Invalid __shared__ write of size 4 bytes", (Place("permute", "tile.cuh", 7),))
        assert findings == {read: 2, write: 1}
        assert sanitizer.summary(MEMCHECK) == 4

    def test_racecheck(self) -> None:
        places = (Place("gemm", "kernel.cu", 13, "write"), Place("gemm", "kernel.cu", 14, "read"))
        hazard = Finding("Potential RAW hazard detected at __shared__", places)
        assert sanitizer.parse(RACECHECK) == {hazard: 1, Finding("race", places): 2048}
        assert sanitizer.summary(RACECHECK) == 2

    @pytest.mark.parametrize(
        ("text", "what", "line"),
        [
            (SYNCCHECK, "Barrier error detected. Divergent thread(s) in block", 17),
            (INITCHECK, "Uninitialized __global__ memory read of size 4 bytes", 41),
        ],
    )
    def test_other_checkers(self, text: str, what: str, line: int) -> None:
        (finding,) = sanitizer.parse(text)
        assert finding.what == what
        assert [place.line for place in finding.places] == [line]

    def test_clean_and_cut_short(self) -> None:
        assert (sanitizer.parse(CLEAN), sanitizer.summary(CLEAN)) == ({}, 0)
        assert sanitizer.summary(MEMCHECK[:200]) is None

    def test_description_shows_the_source(self, tmp_path: Path) -> None:
        (tmp_path / "kernel.cu").write_text("// one\n" * 12 + "  tile[i] = x;\n  y = tile[j];\n")
        outcome = sanitizer.Outcome("racecheck", sanitizer.parse(RACECHECK), 2, tmp_path / "log")
        text = "\n".join(sanitizer.describe(outcome, tmp_path / "kernel.cu"))
        assert (
            "race, 2,048 times\n    write kernel.cu:13 in gemm | tile[i] = x;\n    read kernel.cu:14" in text
        )

    def test_only_initcheck_sees_unfilled_buffers(self, tmp_path: Path) -> None:
        flags = {s: sanitizer.command("cs", job(tmp_path), s, tmp_path / "log") for s in sanitizer.SUBTOOLS}
        assert [s for s in flags if "--unfilled" in flags[s]] == ["initcheck"]
        assert "--racecheck-report" in flags["racecheck"]


FAKE = """#!{python}
import sys
from pathlib import Path
words = sys.argv[1:]
{body}
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str) -> None:
    """Put a program of that name first on PATH, and let the rehearsal pass."""
    program = folder / name
    program.write_text(FAKE.format(python=sys.executable, body=body))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr("mini_dnn.cli.profile.rehearse", lambda job, may_crash: "a GPU")


class TestVerb:
    """The verb around programs that behave as NVIDIA's do."""

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
            (CLEAN, 2, 2),  # the workload failed for a reason of its own
            (MEMCHECK[:200], 0, 2),  # no verdict
            (CLEAN.replace("0 errors", "5 errors"), 0, 2),  # errors in a form that is not understood
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
            (["--impl", "cpu", "--tool", "ncu"], "runs on the host: it has no kernels to profile"),
            (["--tool", "nsys", "--subtool", "memcheck"], "--subtool memcheck goes with --tool sanitizer"),
            (["--tool", "ncu", "--batch", "0"], "a batch of 0: expected one image or more"),
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


class TestWorkload:
    def run(self, monkeypatch: pytest.MonkeyPatch, *flags: str) -> tuple[int, list[str]]:
        """The workload on the emulator instead; its exit status, and what it did, in order."""
        done = []

        @contextmanager
        def captured():
            done.append("start")
            yield
            done.append("stop")

        real_run = workload.run

        def note(x: np.ndarray, w: np.ndarray, *rest: object) -> object:
            done.append(f"{x.shape} {w.shape}")
            return real_run(x, w, *rest)

        monkeypatch.setattr(workload, "open_device", lambda name: open_device("emulator"))
        monkeypatch.setattr(workload, "profiler_range", captured)
        monkeypatch.setattr(workload, "run", note)
        return workload.main(["m1", "--batch", "1", *flags]), done

    def test_warms_up_outside_the_range(self, monkeypatch: pytest.MonkeyPatch) -> None:
        conv2 = "(1, 4, 40, 40) (16, 4, 7, 7)"
        assert self.run(monkeypatch, "--layers", "conv2", "--capture") == (0, [conv2, "start", conv2, "stop"])
        assert self.run(monkeypatch)[1] == ["(1, 1, 86, 86) (4, 1, 7, 7)", conv2]

    @pytest.mark.parametrize(("error", "status"), [(DeviceError("x"), 2), (LaunchError("x"), tools.CRASHED)])
    def test_failures(
        self, monkeypatch: pytest.MonkeyPatch, capsys: Output, error: MiniDnnError, status: int
    ) -> None:
        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(workload, "convolve", fail)
        assert self.run(monkeypatch)[0] == status
        assert capsys.readouterr().err == "error: x\n"

    def test_a_batch_in_parts_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        device = open_device("emulator")
        monkeypatch.setattr(device, "free_bytes", lambda: 300_000)  # two images
        with pytest.raises(DeviceError, match=r"does not fit.*take a smaller --batch: 2"):
            workload.convolve(find("m1"), workload.inputs([layer_shape("conv1", 4)]), device)

    def test_rehearsal_passes_on_why_it_failed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def ends(status: int) -> None:
            output = "NVIDIA H200 (sm_90)\nerror: the kernel failed\n"
            monkeypatch.setattr(tools, "run", lambda command: tools.Done((), status, output))

        ends(tools.CRASHED)
        assert tools.rehearse(job(tmp_path), may_crash=True) == "NVIDIA H200 (sm_90)"
        with pytest.raises(MiniDnnError, match=r"m2/unroll_gemm does not run here.*: the kernel failed$"):
            tools.rehearse(job(tmp_path))
        ends(2)
        with pytest.raises(MiniDnnError, match="does not run here"):
            tools.rehearse(job(tmp_path), may_crash=True)


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
    assert main([*command, "--layer", "conv2", "--batch", "1", "--out", str(tmp_path / "out")]) == status
    if status:
        assert "kernel.cu:" in capsys.readouterr().out


@pytest.mark.gpu
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
