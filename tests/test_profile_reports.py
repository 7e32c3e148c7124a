"""Reports of NVIDIA's tools as in their manuals and releases, and the text made from them."""

import sys
from pathlib import Path

import pytest
from profile_samples import (
    BULK,
    CLEAN,
    INITCHECK,
    MEMCHECK,
    NSYS,
    OLD_UNITS,
    RACECHECK,
    RAW,
    STALL,
    SYNCCHECK,
)

from mini_dnn.checking import sanitizer
from mini_dnn.checking.sanitizer import Finding, Place
from mini_dnn.ops.conv2d import LAYERS
from mini_dnn.profiling import advice, ncu, nsys
from mini_dnn.profiling.job import Job
from mini_dnn.profiling.ncu import Kernel
from mini_dnn.variant import find


def job(folder: Path, name: str = "m2") -> Job:
    return Job(find(name), {layer: shape.with_batch(3) for layer, shape in LAYERS.items()}, folder)


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
            "100% possible, 80% achieved, 8 blocks per SM, limited by registers and warps (the SM is full)"
            in text
        )
        assert "32 registers per thread, 1.0 KB of shared memory per block" in text
        assert (
            "86% of a warp's stalls are waits for data from global memory" in text
        )  # 30 of 35, because "selected" is not a stall
        assert "move fewer bytes" in text

    def test_description_of_a_kernel_that_waits(self) -> None:
        text = "\n".join(advice.describe(ncu.parse(RAW)[1]))
        assert "L1 cache and shared memory, at 55% of its peak: no unit is busy, so warps wait" in text
        assert "75% of a warp's stalls are waits for other warps at __syncthreads() (barrier)" in text
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

    def test_a_launch_of_one_thread_is_not_advised(self) -> None:
        reset = ncu.parse(BULK)[0]
        text = "reset  grid (1, 1, 1), block (1, 1, 1)\n  time       0.002 ms under the profiler"
        assert "\n".join(advice.describe(reset)).startswith(text)
        assert (len(advice.describe(reset)), advice.hints(reset)) == (2, [])

    @pytest.mark.parametrize(
        ("grid", "block", "is_advised"),
        [("(1, 1, 1)", "(32, 1, 1)", False), ("(33, 1, 1)", "(1, 1, 1)", True), ("", "", True)],
    )
    def test_threads_are_counted_where_the_report_does_not(
        self, grid: str, block: str, is_advised: bool
    ) -> None:
        metrics = {"launch__waves_per_multiprocessor": 0.01}
        assert bool(advice.hints(Kernel("k", grid, block, metrics))) == is_advised

    def test_bulk_copies_are_no_scattered_loads(self) -> None:
        _, conv, gather = ncu.parse(BULK)
        assert "loaded bytes are used" not in "\n".join(advice.describe(conv))
        assert not any("scattered" in hint for hint in advice.hints(conv))
        assert "8 of every 32 loaded bytes are used" in "\n".join(advice.describe(gather))
        assert any("scattered" in hint for hint in advice.hints(gather))

    def test_command(self, tmp_path: Path) -> None:
        words = ncu.command("ncu", job(tmp_path), "conv2", tmp_path / "conv2.ncu-rep")
        assert words[words.index("--kernel-name") + 1] == "regex:^(unroll|gemm|permute)$"
        assert words[words.index("--clock-control") + 1] == "none"
        assert words[words.index("--export") + 1] == str(tmp_path / "conv2")  # the tool adds the suffix
        workload_words = words[words.index(sys.executable) :]
        assert workload_words[-3:] == ["--shapes", "3,4,40,40,16,7,7", "--capture"]

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
        records = tuple(sanitizer.read(RACECHECK))
        outcome = sanitizer.Outcome("racecheck", records, sanitizer.parse(RACECHECK), 2, tmp_path / "log")
        text = "\n".join(sanitizer.describe(outcome, tmp_path / "kernel.cu"))
        assert (
            "race, 2,048 times\n    write kernel.cu:13 in gemm | tile[i] = x;\n    read kernel.cu:14" in text
        )

    def test_only_initcheck_sees_unfilled_buffers(self, tmp_path: Path) -> None:
        flags = {s: sanitizer.command("cs", job(tmp_path), s, tmp_path / "log") for s in sanitizer.SUBTOOLS}
        assert [s for s in flags if "--unfilled" in flags[s]] == ["initcheck"]
        assert "--racecheck-report" in flags["racecheck"]
