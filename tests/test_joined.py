"""Plans that call several variants, written as one kernel file by `show --expand` and `--standalone`."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from take_home_helpers import GEMM, files_of

from mini_dnn.checking.launches import shared_limit
from mini_dnn.device import Device
from mini_dnn.errors import UsageError
from mini_dnn.ops import Array
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.running.runner import run
from mini_dnn.variant import Step, find
from mini_dnn.variant.export import expand
from mini_dnn.variant.joined import joined
from mini_dnn.variant.plan import Call, Code, Images, Launch
from mini_dnn.variant.tensor_map import TensorMap

CALLING = [
    "m3/ladder_gemm 3,2,20,20,4,7,7",
    "networks/vit/layer_by_layer 3,12,4,3,64,2,2,2,7",
    "networks/vit/fused 3,12,4,3,64,2,2,2,7",
    "networks/resnet18/v4_tensor_cores 2,33,3,imagenet,64-64-64-64,1-1-1-1,3,fp16",
]


@pytest.mark.parametrize("words", CALLING)
def test_the_file_computes_what_the_variants_compute(
    words: str, tmp_path: Path, quick_emulator: Device
) -> None:
    name, text = words.split(" ")
    variant = find(name)
    problem = variant.operation.parse(text)
    (tmp_path / "kernel.cu").write_text(expand(variant, problem, "a test", shared_limit(90)))
    planned = joined(variant.planned(problem, shared_limit(90)))
    assert planned.codes

    def alone(steps: tuple[Step, ...]) -> list[Step]:
        return [replace(step, code=None) if isinstance(step, Launch) else step for step in steps]

    taken = replace(
        variant,
        plan=lambda p: alone(planned.steps),
        setup=lambda p: alone(planned.setup),
        scratch=lambda p: planned.scratch,
        defines={},
        min_arch=90,
        folder=tmp_path,
        name="taken",
    )
    arrays = variant.operation.inputs(problem, 0)
    expected = run(variant, problem, arrays, quick_emulator).outputs
    found = run(taken, problem, arrays, quick_emulator).outputs
    for output, values in expected.items():
        np.testing.assert_array_equal(found[output], values)


def test_kernels_of_several_variants_are_in_one_file(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text('extern "C" __global__ void gemm(float* c) {}\n')
    problem = GEMM.parse("70,40,30")
    same = {name: name for name in problem.arrays}
    half = GEMM.parse("72,40,32,fp16,fp16")
    halves = {"a": "x", "b": "y", "c": "z"}
    variant = replace(
        find("gemm/v3"),
        plan=lambda p: [
            Launch("gemm", (1,), (32,), ("c",)),
            *(Call("gemm/v2", problem, same) for _ in range(2)),
            Call("gemm/v2", half, halves),
            Call("gemm/v6", half, halves),
        ],
        scratch=lambda p: {name: Array((1, 80, 80), "float16") for name in "xyz"},
        defines={},
        folder=tmp_path,
        name="mine",
        min_arch=90,
        refuses=lambda p: "",
    )
    kernel = files_of(variant, problem)["kernel.cu"].decode()
    lines = kernel.splitlines()
    words = ["gemm_v2_tiled", "gemm_v2_tiled_2", "gemm_v6_wgmma"]
    assert [line for line in lines if line.startswith("using gemm")] == [
        f"using {word}::{word}_gemm;" for word in words
    ]
    for word in words:
        start, end = lines.index(f"namespace {word} {{"), lines.index(f"}}  // namespace {word}")
        assert start < lines.index(f"#define gemm {word}_gemm") < end
        assert "#undef gemm" in lines[start:end]
        inside = {line for line in lines[start:end] if line.startswith("#include")}
        assert inside <= set(lines[:start]), "the toolkit's names are outside of the namespace"
    text = files_of(variant, problem)["main.cu"].decode().splitlines()
    launched = [match[1] for line in text if (match := re.match(r"\s*(\w+)<<<", line))]
    first = "gemm_v2_tiled_gemm"
    assert launched == ["gemm", first, first, "gemm_v2_tiled_2_gemm", "gemm_v6_wgmma_gemm"]
    assert any(
        "gemm_v2_tiled_gemm<<<6, dim3(32, 32), 0, stream[0]>>>(d_a, d_b, d_c, d_c," in line for line in text
    )
    assert any(
        "harness::tensor_map(d_x, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, {1, 72, 32}," in line for line in text
    )


def test_arrays_of_calls_are_the_buffers_that_they_lie_in(tmp_path: Path) -> None:
    code = Code(tmp_path / "ladders" / "mine" / "kernel.cu", ())
    args = ("inner", Images("inner", 1, 2), TensorMap("inner", (4, 64)), "y", 7)
    variant = replace(find("m1"), plan=lambda s: [Launch("k", (1,), (32,), args, code=code)], min_arch=90)
    problem = ConvShape(4, 1, 16, 16, 1, 1, 1)
    planned = replace(
        variant.planned(problem, shared_limit(90)),
        views={"outer": ("x", Array((4, 16, 16))), "inner": ("outer", Array((16, 128), "float16"))},
    )
    with pytest.raises(UsageError, match=r"part of an array \(16, 128\) in the buffer 'x'"):
        joined(planned)
    planned = replace(planned, views={**planned.views, "inner": ("outer", Array((4, 256), "float16"))})
    (launch,) = joined(planned).launches
    assert launch.kernel == "ladders_mine_k"
    first, part, map_, *rest = launch.args
    assert (first, part, rest) == ("x", Images("x", 1, 2), ["y", 7])
    assert map_ == TensorMap("x", (4, 64), (4, 256), (256,), dtype="float16")
