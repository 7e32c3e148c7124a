"""The programs that measure savings."""

import numpy as np
import pytest
import savings_programs

from mini_dnn import ops
from mini_dnn.device import Device
from mini_dnn.errors import CheckError
from mini_dnn.ops.gemm import GemmShape


def test_ours_in_each_type_that_they_take(device: Device) -> None:
    found = savings_programs.programs(["gemm/v3", "gemm/v5"], 96, device)
    assert [program.words for program in found] == [
        "gemm/v3_registers, fp32 as fp32",
        "gemm/v3_registers, fp16 as fp32",
        "gemm/v5_mma_async, fp16 as fp16",
        "cuBLAS, fp32 as fp32",
        "cuBLAS, fp32 as tf32",
        "cuBLAS, fp16 as fp16",
    ]
    for program in found[:3]:
        with program.prepare() as ready:
            ready.op()
            ready.synchronize()
            assert 0 < program.check(ready.result()) < 1e-3
            assert ready.peak_bytes() == program.problem.min_bytes


def test_a_wrong_result_is_reported() -> None:
    problem = GemmShape(200, 96, 96)
    arrays = ops.find("gemm").inputs(problem, 0)
    c = ops.find("gemm").answer(problem, arrays)["c"].astype(np.float32)
    some = c[:, savings_programs.checked_rows(problem)]
    assert savings_programs.relative_error(problem, arrays, "fp32", some) < 1e-7
    some[0, -1, -1] += 0.01
    with pytest.raises(CheckError, match="1 of 6144 elements differ"):
        savings_programs.relative_error(problem, arrays, "fp32", some)


@pytest.mark.gpu
def test_cublas(cuda: Device) -> None:
    pytest.importorskip("torch")
    for program in savings_programs.programs([], 256, cuda):
        with program.prepare() as ready:
            ready.op()
            ready.synchronize()
            assert 0 < program.check(ready.result()) < 1e-3
            assert ready.peak_bytes() >= program.problem.min_bytes
