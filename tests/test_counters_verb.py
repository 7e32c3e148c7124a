"""What is derived from the emulator's counters: occupancy, times, and ``run.py profile --tool emulator``."""

import json
from pathlib import Path

import pytest

from mini_dnn.checking.launches import shared_limit
from mini_dnn.cli import main
from mini_dnn.errors import UsageError
from mini_dnn.profiling.bracket import Bracket, together
from mini_dnn.profiling.emulated import profile
from mini_dnn.profiling.gpus import GPUS, gpu, occupancy
from mini_dnn.variant import find

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("name", "threads", "shared_bytes", "registers", "blocks", "limiter"),
    [
        ("a100", 256, 0, 32, 8, "warps"),  # 2,048 threads
        ("a100", 256, 0, 64, 4, "registers"),
        ("t4", 1024, 0, 32, 1, "warps"),
        ("h100", 128, 100 * 1024, 32, 2, "shared_mem"),  # 101 KB with what the system takes, of 228
        ("3090", 32, 0, 16, 16, "blocks"),
        ("4090", 1024, 0, 32, 1, "warps"),  # 48 warps, of which a block has 32
    ],
)
def test_occupancy(
    name: str, threads: int, shared_bytes: int, registers: int, blocks: int, limiter: str
) -> None:
    found = occupancy(GPUS[name], threads, shared_bytes, registers)
    assert found.blocks == blocks
    assert found.limits[limiter] == blocks


def test_unknown_registers_limit_nothing() -> None:
    assert "registers" not in occupancy(GPUS["h200"], 256, 0, None).limits


def test_names_of_gpus() -> None:
    assert gpu("RTX 4090") is GPUS["4090"]
    with pytest.raises(UsageError, match="expected one of h200, h100"):
        gpu("k80")


def test_brackets_add_up() -> None:
    first = Bracket({"DRAM": 3.0, "FMA units": 1.0}, 3.1, 3.2, 4.5)
    second = Bracket({"DRAM": 1.0, "FMA units": 2.0}, 2.1, 2.2, 3.5)
    both = together([first, second])
    assert both.limiter == "DRAM"
    assert (both.low_ms, both.likely_ms, both.high_ms) == pytest.approx((5.2, 5.4, 8.0))
    assert (first.sure, second.sure) == ("clearly", "clearly")
    assert Bracket({"DRAM": 1.0, "FMA units": 0.95}, 1, 1, 2).sure == "about as much as the next one"


def test_latency_limits_where_no_unit_is_busy_for_most_of_the_time() -> None:
    times = Bracket({"DRAM": 0.5, "FMA units": 0.3}, 0.5, 1.0, 1.5)
    assert (times.limiter, times.longest, times.second) == ("latency", "DRAM", "DRAM")
    assert times.sure == "probably"


@pytest.mark.exhaustive
def test_older_gpus_have_other_tiles_and_instructions() -> None:
    """On an H200, they would be those of wgmma_m64k16."""
    variant, of = find("layers/custom"), GPUS["a40"]
    found = profile(variant, variant.operation.parse("1,4,20,20,16,7,7"), of)
    kernel = found.kernels[-1]
    assert kernel.products
    assert all(instruction.startswith("mma_m16n8k16") for instruction in kernel.products)
    assert kernel.shared_bytes <= shared_limit(of.arch)


def test_a_block_that_no_multiprocessor_can_hold_is_named(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "variant.py").write_text(
        "from mini_dnn.variant import Launch, Variant\n"
        "VARIANT = Variant(op='conv2d', idea='too large', plan=lambda s: [\n"
        "    Launch('k', (1,), (32,), ('y',), shared_bytes=60 * 1024)])\n"
    )
    (tmp_path / "kernel.cu").write_text(
        'extern "C" __global__ void k(float* y) {\n'
        "  __shared__ float t[2048];\n"
        "  extern __shared__ float more[];\n"
        "  t[threadIdx.x] = more[threadIdx.x] = 1;\n  __syncthreads();\n"
        "  y[threadIdx.x] = t[31 - threadIdx.x] + more[threadIdx.x];\n}\n"
    )
    words = ["profile", str(tmp_path), "--tool", "emulator", "--shapes", "1,1,8,8,1,1,1", "--gpu"]
    assert main([*words, "t4"]) == 0
    assert "a block needs more shared memory than an SM of NVIDIA T4 has" in capsys.readouterr().out
    assert main([*words, "a40"]) == 0
    assert "1 block per SM, limited by shared memory" in capsys.readouterr().out


class TestVerb:
    """`run.py profile --tool emulator`."""

    def test_json_and_words(self, tmp_path: Path, capsys: Output) -> None:
        file = tmp_path / "counters.json"
        words = ["profile", "m1/direct", "--tool", "emulator", "--shapes", "2,3,19,37,5,3,5"]
        assert main([*words, "--gpu", "a100", "--json", str(file)]) == 0
        text = capsys.readouterr().out
        assert "NVIDIA A100" in text
        assert "limited by" in text
        assert "would be enough: let each access of a warp begin at a multiple of 32 bytes" in text
        assert "let neighbouring threads" not in text, "they already do"
        found = json.loads(file.read_text())
        assert found["variant"] == "m1/direct"
        (kernel,) = found["problems"]["2,3,19,37,5,3,5"]["kernels"]
        assert {access["array"] for access in kernel["accesses"]} == {"x", "w", "y"}
        stores = [access for access in kernel["accesses"] if access["operation"] == "store"]
        assert sum(access["lanes"] for access in stores) == 2 * 5 * 17 * 33
        assert sum(work["ffma"] for work in kernel["work"]) == 2 * 5 * 17 * 33 * 3 * 3 * 5
        times = kernel["bracket"]
        assert times["low_ms"] <= times["likely_ms"] <= times["high_ms"]
        assert (
            f"{times['low_ms']:.3g} to {times['high_ms']:.3g} ms, likely {times['likely_ms']:.3g} ms" in text
        )
        assert found["problems"]["2,3,19,37,5,3,5"]["bracket"] == times, "it is the only kernel"

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["m1/direct", "--tool", "emulator", "--gpu", "k80"], "no such GPU"),
            (["m1/direct", "--tool", "emulator", "--batch", "100000"], "GFLOP"),
            (["m3/cublas", "--tool", "emulator"], "does not run on the emulator"),
            (["m3/stack_1", "--tool", "emulator", "--gpu", "t4"], "needs a GPU of sm_80"),
            (["m1/direct", "--tool", "nsys", "--json", "x.json"], "needs --tool emulator"),
            (["m1/direct", "--tool", "ncu", "--gpu", "a100"], "--gpu a100 needs --tool emulator"),
            (["m1/direct", "--gpu", "k80"], "no such GPU"),
            (["m1/direct", "--tool", "emulator", "--out", "x"], "is for reports of NVIDIA's tools"),
        ],
    )
    def test_wrong_use(self, words: list[str], message: str, capsys: Output) -> None:
        assert main(["profile", *words]) == 2
        assert message in capsys.readouterr().err

    def test_somebody_elses_file_stays(self, tmp_path: Path, capsys: Output) -> None:
        file = tmp_path / "notes.json"
        file.write_text("mine")
        words = ["profile", "m1/direct", "--tool", "emulator", "--shapes", "1,1,1,1,1,1,1"]
        assert main([*words, "--json", str(file)]) == 2
        assert file.read_text() == "mine"
        assert "--force" in capsys.readouterr().err
