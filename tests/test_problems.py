"""The rules that every operation follows for problems and arrays. New operations are found automatically."""

import re
from typing import Any

import numpy as np
import pytest

from mini_dnn import ops
from mini_dnn.errors import ShapeError, VariantError
from mini_dnn.ops import Array, softmax
from mini_dnn.running.parts import entries
from mini_dnn.variant import find

EVERY = [
    pytest.param(ops.find(op), problem, id=f"{op}/{problem.text}")
    for op in ops.names()
    for problem in dict.fromkeys([*ops.find(op).check, *ops.find(op).spare])
]
every = pytest.mark.parametrize(("operation", "problem"), EVERY)
each = pytest.mark.parametrize("operation", [ops.find(op) for op in ops.names()], ids=lambda o: o.name)


@every
def test_text_and_numbers_name_a_problem(operation: ops.Operation, problem: Any) -> None:
    assert operation.parse(problem.text) == problem
    assert operation.decode(list(problem.numbers)) == problem
    assert operation.problem(**problem.fields) == problem
    assert str(problem)
    # An empty last field, such as a constant that was left out
    left_out = list(problem.fields.values())[-1] == ""
    assert len(operation.usage.split(",")) == len(problem.text.split(",")) + left_out == len(operation.fields)


@every
def test_a_batch_is_cut_along_the_first_axis(operation: ops.Operation, problem: Any) -> None:
    assert problem.with_batch(problem.batch) == problem
    larger = problem.with_batch(problem.batch + 3)
    assert larger.batch == problem.batch + 3
    for name, array in problem.arrays.items():
        assert array.axes == "" or len(array.axes) == len(array.shape)
        if array.split:
            assert array.shape[0] == problem.batch
            assert larger.arrays[name].shape == (larger.batch, *array.shape[1:])
        else:
            assert larger.arrays[name] == array
    assert problem.min_bytes == sum(array.nbytes for array in problem.arrays.values())
    assert larger.flops >= problem.flops >= 0


@every
def test_inputs_and_answers_are_as_the_problem_says(operation: ops.Operation, problem: Any) -> None:
    arrays, again, other = (operation.inputs(problem, seed) for seed in (1, 1, 2))
    given, out = problem.named("in", "weight"), problem.named("out")
    assert list(problem.arrays) == [*given, *out], "inputs come first"
    for name, array in given.items():
        assert (arrays[name].shape, arrays[name].dtype) == (array.shape, array.dtype)
        assert np.array_equal(arrays[name], again[name], equal_nan=True)
    assert any(not np.array_equal(arrays[name], other[name], equal_nan=True) for name in given)
    answer = operation.answer(problem, arrays)
    assert {name: (a.shape, a.dtype) for name, a in answer.items()} == {
        name: (array.shape, np.float64) for name, array in out.items()
    }
    for sentence, outputs in operation.mistakes(problem, arrays):
        assert {name: a.shape for name, a in outputs.items()} == {n: a.shape for n, a in out.items()}, (
            sentence
        )


@each
def test_what_it_says_of_itself(operation: ops.Operation) -> None:
    assert ops.find(operation.name) is operation
    assert operation.about
    assert operation.course
    for name in (operation.default, operation.baseline):
        assert find(name).op == operation.name
    letters = {letter for p in operation.check for array in p.named("out").values() for letter in array.axes}
    assert letters <= set(operation.axes), "findings name the axes of outputs"
    assert all(len(word.split(",")) == 1 for word in operation.course)


@each
@pytest.mark.parametrize("text", ["", "x", "1.5", ",".join(["1"] * 99)])
def test_text_that_is_no_problem(operation: ops.Operation, text: str) -> None:
    with pytest.raises(
        ShapeError, match=re.escape(f"'{text}' does not have the form {operation.usage}, such as")
    ) as error:
        operation.parse(text)
    assert re.search(r"such as [\w.,-]+: .", str(error.value))


@pytest.mark.parametrize(
    ("op", "text", "message"),
    [
        ("conv2d", "1,1,5,5,1,9,9", "'1,1,5,5,1,9,9' (N,C,H,W,M,R,S): the filter 9 x 9 is larger than"),
        ("softmax", "-1,3", "'-1,3' (N,L): softmax needs a row and a value in it; found N = -1"),
    ],
)
def test_sizes_that_do_not_fit_together(op: str, text: str, message: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(message)) as error:
        ops.find(op).parse(text)
    assert "form" not in str(error.value), "the form is right"


@each
def test_numbers_of_other_kinds(operation: ops.Operation) -> None:
    numbers = list(operation.check[0].numbers)
    for wrong in ([], [*numbers, 1], ["1", *numbers[1:]], [True, *numbers[1:]], [1.0, *numbers[1:]]):
        with pytest.raises(ShapeError, match=r"found \d+ values; expected|expected an integer"):
            operation.decode(wrong)


def test_an_unknown_operation() -> None:
    with pytest.raises(VariantError, match=r"no operation 'conv2' \(did you mean 'conv2d'\?\)"):
        ops.find("conv2")
    with pytest.raises(VariantError, match=r"no operation 'operation'; .*'run.py list' shows all operations"):
        ops.find("operation")


def test_arrays() -> None:
    assert Array((3, 4), "int64").nbytes == 96
    assert Array((3, 4), "uint8").nbytes == 12
    assert Array((3, 4)).split
    assert not Array((3, 4), role="weight").split, "the whole batch needs it"
    assert Array((3, 4), axes="mn").index((1, 2)) == "[m=1, n=2]"
    assert Array((3, 4)).index((1, 2)) == "[1, 2]"
    gapped = Array((2, 5), "bfloat16", gap=2)
    values = np.arange(10).reshape(2, 5)
    assert gapped.nbytes == 20
    assert gapped.without_gap(values).tolist() == [[0, 1, 2], [5, 6, 7]]
    assert gapped.in_gap(values).tolist() == [[3, 4], [8, 9]]
    assert Array((2, 5)).in_gap(values).size == 0
    with pytest.raises(ShapeError, match="role is 'inout'; expected one of in, weight, out"):
        Array((3,), role="inout")
    with pytest.raises(ShapeError, match=r"shape \(3, 4\) has axes 'm'; expected one letter for each axis"):
        Array((3, 4), axes="m")


def test_an_array_that_the_whole_batch_needs_is_said_to_be_so() -> None:
    """The author of an operation with a vector of the length of a row gets this message at the first run."""
    problem = softmax.Rows(4, 3)
    with pytest.raises(ShapeError, match=r"x \(3,\) has to be divided along its first axis.*split=False"):
        entries(problem, {"x": np.zeros(3, np.float32)}, 0, 2)
