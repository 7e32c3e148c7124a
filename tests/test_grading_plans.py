"""Plans as text: nothing is lost in the conversion."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plan_texts import NETWORK, SHAPE, decoded, text

from mini_dnn import ops
from mini_dnn.errors import VariantError
from mini_dnn.grading import decoding, plans
from mini_dnn.grading.plans import Head
from mini_dnn.ops import Array
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.variant import (
    CopyIn,
    CopyToSymbol,
    Gemm,
    Images,
    Launch,
    Planned,
    TensorMap,
    Variant,
    find,
    names,
)

LARGE = 227 * 1024


@pytest.mark.parametrize("name", [name for name in names() if find(name).host is None])
def test_a_plan_comes_back_as_it_was(name: str) -> None:
    variant = find(name)
    head = decoding.decode_head(plans.encode_head(Head.of(variant)))
    assert head == Head.of(variant)
    operation = variant.operation
    problems = [*operation.check, *operation.spare, *operation.course.values()]
    taken = [problem for problem in problems if not variant.limit_for(problem)]
    assert len(taken) > 3
    for problem in taken:
        planned = replace(variant.planned(problem, LARGE), name=variant.source.parent.name)
        if planned.codes:
            with pytest.raises(VariantError, match="runs kernels of other variants; expected only its own"):
                plans.encode(planned)
            continue
        assert decoding.decode(plans.encode(planned), problem, head, variant.source) == planned
        values = json.loads(json.dumps(plans.encode_values(planned)))
        assert ops.find(head.op).decode(values["problem"]) == problem
        assert decoding.decode_values(values, problem, head, variant.source) == planned


def planned_as(steps: list[Any], problem: Any = SHAPE, **more: Any) -> Planned:
    """The plan of a variant with these steps."""
    op = "lenet" if isinstance(problem, LenetBatch) else "conv2d"
    return Variant(op, "", plan=lambda s: steps, **more).planned(problem, LARGE)


def test_scalars_keep_their_types() -> None:
    args = (1, 2.5, np.int64(2**40), np.float32(0.5), np.uint8(7), np.float64(0.1), np.bool_(True))
    (launch,) = decoded(plans.encode(planned_as([Launch("k", (1,), (1,), args)]))).steps
    assert isinstance(launch, Launch)
    assert [type(a) for a in launch.args] == [type(a) for a in args]
    assert launch.args == args


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    two = np.int64(2)
    step = Launch("k", (two,), (np.int32(32),), (Images("x", np.int64(0), two),), np.int64(8), np.int64(1))
    planned = planned_as([step], scratch=lambda s: {"col": (two, two)})
    assert decoded(plans.encode(planned)).steps == (Launch("k", (2,), (32,), (Images("x", 0, 2),), 8, 1),)


@pytest.mark.parametrize("cluster", [1, 2, (4,), (2, 1), (1, 2, 4)])
def test_clusters_come_back(cluster: int | tuple[int, ...]) -> None:
    steps = [Launch("k", (8, 8, 8), (32,), ("x",), cluster=cluster, early=cluster != 1)]
    assert list(decoded(plans.encode(planned_as(steps, min_arch=90))).steps) == steps


def test_tensor_maps_come_back() -> None:
    maps = (TensorMap("col", (16, 64)), TensorMap("col", (2, 8, 8), (2, 16, 60), (1024, 64), 0, "bfloat16"))
    step = Launch("k", (1,), (1,), maps)
    scratch = {"col": Array((32, 64), "float16")}
    found = decoded(plans.encode(planned_as([step], scratch=lambda s: scratch, min_arch=90)))
    assert found.steps == (step,)


def test_scratch_keeps_its_types() -> None:
    scratch = {
        "halves": Array((2, 3), "float16", axes="mk"),
        "bytes": Array((7,), "uint8"),
        "short": Array((3,), "bfloat16"),
        "plain": (4,),
        "long": Array((2,), np.int64),  # type: ignore[arg-type]
    }
    found = decoded(plans.encode(planned_as([], scratch=lambda s: scratch))).scratch
    assert found == {
        "halves": Array((2, 3), "float16", axes="mk"),
        "bytes": Array((7,), "uint8"),
        "short": Array((3,), "bfloat16"),
        "plain": Array((4,)),
        "long": Array((2,), "int64"),
    }
    assert sum(array.nbytes for array in found.values()) == 12 + 7 + 6 + 16 + 16


def test_setup_comes_back() -> None:
    setup = [CopyToSymbol("w1", "conv1.weight"), Launch("fold", (1,), (32,), ("fc1.bias", "folded", 32))]
    planned = planned_as([], NETWORK, setup=lambda s: setup, scratch=lambda s: {"folded": (32,)})
    found = decoded(plans.encode(planned), NETWORK)
    assert found.setup == tuple(setup)
    assert found.steps == ()


def test_products_come_back() -> None:
    step = Gemm("x", "w", "y", 3, 2, 4, 1, "tn", 2, 0.5, -1.0, 0, 5, 6)
    planned = planned_as([replace(step, c="out", m=np.int64(3))], scratch=lambda s: {"out": (36,)})
    found = decoded(plans.encode(planned)).steps
    assert found == (replace(step, c="out"),)


def test_parts_of_any_array_may_be_copied() -> None:
    steps = [{"copy_in": ["images", 1, 3], "stream": 2}, {"copy_out": ["probabilities", 0, 1], "stream": 0}]
    assert decoded(text(steps), NETWORK).steps[0] == CopyIn(Images("images", 1, 3), 2)
    with pytest.raises(VariantError, match=r"copies 'fc1\.bias' in; it may copy images"):
        decoded(text([{"copy_in": ["fc1.bias", 0, 1], "stream": 0}]), NETWORK)
