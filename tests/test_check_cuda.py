"""``check --device cuda`` with stand-ins for the tool and the GPU, and on a GPU with the real ones."""

import json
from pathlib import Path

import numpy as np
import pytest
from sanitizer_samples import DIVERGENT, HAZARDS, LOAD, M1, M2, OUT_OF_BOUNDS
from sanitizer_stand_in import ALL, ODD, SHAPES, Install, check, edited
from sanitizer_stand_in import install as install

from mini_dnn.checking import on_gpu as check_cuda
from mini_dnn.checking import sanitizer, workload
from mini_dnn.checking.verdicts import Run
from mini_dnn.cli import main
from mini_dnn.device import tools
from mini_dnn.device.cuda import CudaDevice
from mini_dnn.device.cuda_buffer import CudaBuffer
from mini_dnn.device.nvcc import build_cubin, find_nvcc
from mini_dnn.device.tools import find_tool
from mini_dnn.errors import DeviceError
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.profiling.workload import UnfilledCudaDevice
from mini_dnn.variant import Variant, find

CLEAN_SHAPE = {"N": 1, "C": 1, "H": 4, "W": 5, "M": 2, "R": 3, "S": 2}


@pytest.mark.parametrize("kind", [workload.WatchedCudaDevice, UnfilledCudaDevice])
def test_only_what_the_copy_engine_may_write_is_filled_for_initcheck(
    kind: type[CudaDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = find("attention/v9")
    planned = attention.planned(attention.operation.parse("1,1,65,64,fp16"), 232_448)
    device = kind.__new__(kind)  # no GPU
    device._unfilled, device.mapped = True, planned.mapped  # type: ignore[attr-defined]
    filled: list[str] = []
    monkeypatch.setattr(CudaDevice, "fill", lambda self, buffer: filled.append(buffer.name))
    for name in planned.arrays:
        device.fill(CudaBuffer(name, (1,), np.dtype("float16"), 0, 2))
    assert filled == ["o"]
    assert M1.planned(M1.operation.parse(ODD), 48_000).mapped == ()
    nested = find("gemm/v16")  # its plan calls a variant, whose plan calls another one
    assert nested.planned(nested.operation.parse("136,72,264,fp16,fp16,nt"), 232_448).mapped == ("c",)


class TestVerb:
    @pytest.mark.exhaustive
    def test_out_of_bounds(
        self, install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        install(memcheck=OUT_OF_BOUNDS)
        out = tmp_path / "verdict.json"
        assert check("--impl", "m1", "--json", str(out)) == 1
        told = capsys.readouterr().out
        assert "clean           (1, 1, 4, 5)" in told
        assert "OUT-OF-BOUNDS   (2, 1, 9, 21)" in told
        assert "1. out-of-bounds: read of x[n=2, c=0, h=0, w=0]: outside global array x (2, 1, 9, 21)" in told
        assert f"   here     kernel.cu:{LOAD} | const float value = x[" in told
        assert "block (1, 2, 1), thread (35, 0, 0) of conv_direct" in told
        assert "   cure     check the index" in told
        verdict = json.loads(out.read_text())
        assert (verdict["clean"], [s["clean"] for s in verdict["shapes"]]) == (False, [True, False])
        (finding,) = verdict["findings"]
        assert (finding["kind"], finding["own"]["place"]["line"], finding["own"]["thread"]) == (
            "out-of-bounds",
            LOAD,
            [35, 0, 0],
        )
        assert len(finding["shapes"]) == 1

    @pytest.mark.exhaustive
    def test_findings_of_several_checkers(self, install: Install, capsys: pytest.CaptureFixture[str]) -> None:
        install(racecheck=HAZARDS, synccheck=DIVERGENT)
        assert check("--impl", "m2") == 1
        told = capsys.readouterr().out
        assert "RACE (+1)" in told
        assert "1. divergence: " in told
        assert "it also causes: race (kernel.cu:44)" in told

    def test_clean(
        self,
        install: Install,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        install()
        monkeypatch.setattr(sanitizer, "SUBTOOLS", ALL)
        seen = []
        real = sanitizer.check
        monkeypatch.setattr(
            sanitizer,
            "check",
            lambda work, subtool, limit: seen.append(subtool) or real(work, subtool, limit),
        )
        out = tmp_path / "verdict.json"
        assert check("--impl", "m1", "--json", str(out)) == 0
        assert seen == ["memcheck", "racecheck", "synccheck", "initcheck"]  # once each for all shapes
        assert "no findings at 2 shapes" in capsys.readouterr().out
        assert json.loads(out.read_text())["shapes"][0] == {
            **CLEAN_SHAPE,
            "clean": True,
            "sampled": False,
            "refused": "",
            "solver": "",
            "kinds": [],
        }

    @pytest.mark.exhaustive
    def test_what_initcheck_cannot_see_is_noted(
        self, install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        install()
        out = tmp_path / "verdict.json"
        words = ["--impl", "attention/v9", "--shapes", "1,1,65,64,fp16", "--json", str(out)]
        assert main(["check", "--device", "cuda", *words]) == 0
        note = "what the copy engine writes through a tensor map, so before initcheck o is filled"
        assert f"note: compute-sanitizer does not see {note}" in capsys.readouterr().out
        assert note in json.loads(out.read_text())["note"]
        assert check("--impl", "m1") == 0
        assert "note: " not in capsys.readouterr().out

    @pytest.mark.exhaustive
    @pytest.mark.parametrize(
        ("limit", "status", "told"),
        [
            ("s.R != s.S", 0, "no findings at 7 shapes; 4 more were not run"),
            ("True", 1, "not enough was checked: no findings at 0 shapes; 11 more were not run"),
        ],
    )
    def test_what_a_variant_refuses_is_replaced(
        self,
        limit: str,
        status: int,
        told: str,
        install: Install,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        install()
        refuses = f'op="conv2d", refuses=lambda s: "no" if {limit} else "",'
        folder = edited(tmp_path, M1, "variant.py", 'op="conv2d",', refuses)
        assert main(["check", "--device", "cuda", "--impl", folder]) == status
        assert told in capsys.readouterr().out

    @pytest.mark.exhaustive
    def test_state_that_a_run_leaves(
        self, install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        install()
        folder = edited(tmp_path, M1, "kernel.cu", BOUNDS_TEXT, BOUNDS_TEXT + COUNT_TEXT)
        kernel = Path(folder) / "kernel.cu"
        text = kernel.read_text().replace('extern "C"', '__device__ int runs;\nextern "C"')
        kernel.write_text(text.replace("+ pixel] = acc;", "+ pixel] = runs == 3 ? 2.0f * acc : acc;"))
        assert check("--impl", folder) == 1
        told = capsys.readouterr().out
        assert "1. wrong: the first run is right, and the third one on the same memory is not: " in told
        assert "cure     reset the state that a run changes" in told

    def test_wrong_result(self, install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        install()
        folder = edited(tmp_path, M1, "kernel.cu", "* R + r) * S + s]", "* R + R - 1 - r) * S + S - 1 - s]")
        assert check("--impl", folder) == 1
        told = capsys.readouterr().out
        assert "1. wrong: " in told
        assert "the filter is mirrored" in told

    def test_launch_that_no_gpu_does(
        self, install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        install()
        assert check("--impl", edited(tmp_path, M1, "variant.py", "THREADS = 256", "THREADS = 2048")) == 1
        assert "1. launch: block (2048,) has 2,048 threads" in capsys.readouterr().out


def test_too_many_registers() -> None:
    """Only the driver knows that."""
    failure = "launching k of kernel.cu: cuLaunchKernel failed: too many resources requested for launch"
    found = check_cuda._result(M1, Run(ConvShape(1, 1, 1, 1, 1, 1, 1), "a GPU", 90, failure=failure), 0)
    assert found is not None
    assert (found.kind, found.what) == ("launch", failure)
    assert "registers" in found.cure


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc")
def test_kernels_know_their_lines() -> None:
    assert b".debug_line" in build_cubin(M1.source, {}, "sm_90")


def test_the_program_on_a_machine_without_gpu(tmp_path: Path) -> None:
    """The real program, up to the call of the driver."""
    work = check_cuda.Program(M1, (), 0, tmp_path)
    done = tools.run([*work.command(), SHAPES[0]])
    assert done.status == 0 or done.output.startswith("error: "), done.output


BARRIER_TEXT = "    __syncthreads();  // the tiles have been read\n"
BOUNDS_TEXT = "  if (pixel >= P * Q) return;  // the last block of a plane has threads without a pixel\n"
COUNT_TEXT = "  if (pixel == 0 && blockIdx.y == 0 && n == 0) atomicAdd(&runs, 1);\n"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("variant", "mistake", "kind"),
    [(M2, BARRIER_TEXT, "race"), (M1, BOUNDS_TEXT, "out-of-bounds"), (M1, "", "")],
)
def test_on_a_gpu(
    cuda: object,
    tmp_path: Path,
    variant: Variant,
    mistake: str,
    kind: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        find_tool("compute-sanitizer")
    except DeviceError as error:
        pytest.skip(str(error))
    folder = edited(tmp_path, variant, "kernel.cu", mistake, "") if mistake else str(variant.folder)
    assert check("--impl", folder, "--shapes", "2,3,9,21,3,2,5") == (1 if kind else 0)
    assert (f"1. {kind}: " if kind else "no findings") in capsys.readouterr().out
