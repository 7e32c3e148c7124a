"""The semesters' rubrics have the course's numbers, and require only what shipped variants can do."""

import pytest

from mini_dnn.grading.rubric import Rubric, load, presets
from mini_dnn.variant import find

# Milliseconds for all points, and for none
SEMESTERS = {"fa24": (80.0, 200.0), "sp25": (50.0, 75.0), "sp26": (60.0, 100.0)}
REQUIRED = ["m1/direct", "m2/unroll_gemm", "m3/streams", "m3/fusion", "layers/custom"]
OPTIONAL = {  # the course's points: lower and upper limit
    "m3/constant_memory": (1, 2),
    "m3/restrict": (1, 2),
    "m3/loop_unroll": (1, 2),
    "m3/sweep": (3, 4),
    "m3/cublas": (3, 4),
    "m3/fp16": (2, 4),
    "m3/register_tiling": (4, 4),
}


@pytest.fixture(params=SEMESTERS)
def rubric(request: pytest.FixtureRequest) -> Rubric:
    return load(request.param)


def test_the_semesters_are_presets() -> None:
    assert set(SEMESTERS) <= set(presets())


def test_performance_is_the_courses(rubric: Rubric) -> None:
    performance = rubric.performance
    assert performance is not None
    assert (performance.full, performance.none) == SEMESTERS[rubric.name]
    assert (performance.batch, performance.warm_up, performance.repeats) == (10_000, 5, 10)
    assert performance.reference is None
    assert rubric.ranking == rubric.single == "layers/custom"


def test_optimisations_are_the_courses(rubric: Rubric) -> None:
    assert sorted(v.name for v in rubric.variants if v.required) == sorted(REQUIRED)
    optional = {v.name: v for v in rubric.variants if not v.required}
    assert set(optional) == {*OPTIONAL, "m3/tensor_cores"}
    for name, (least, most) in OPTIONAL.items():
        points = optional[name].points
        assert sum(points.values()) == most, name
        assert points["correct"] == least or least == most, name


def test_hidden_batches_are_odd_ones(rubric: Rubric) -> None:
    assert rubric.hidden is not None
    assert {1, 127, 4097, 9999} <= {shape.N for shape in rubric.hidden.problems}
    assert not set(rubric.hidden.seeds) & set(rubric.correct.seeds)
    assert not set(rubric.hidden.problems) & set(rubric.correct.problems)


@pytest.mark.parametrize("name", presets())
def test_filters_are_square(name: str) -> None:
    """The course requires only square filters."""
    asked = load(name)
    tried = [asked.correct, asked.hidden, asked.checked, asked.hidden_checked]
    assert all(shape.R == shape.S for some in tried if some for shape in some.problems)


def test_semesters_hide_different_things() -> None:
    hidden = [load(name).hidden for name in SEMESTERS]
    seeds = [seed for tried in hidden if tried is not None for seed in tried.seeds]
    assert len(set(seeds)) == len(seeds)


def test_shipped_variants_meet_the_precision_and_the_shapes(rubric: Rubric) -> None:
    assert rubric.hidden is not None
    assert rubric.checked is not None
    for asked in rubric.variants:
        shipped = find(asked.name)
        assert asked.precision == shipped.precision, asked.name
        for shape in (*rubric.correct.problems, *rubric.hidden.problems, *rubric.checked.problems):
            assert shipped.limit_for(shape) == "", (asked.name, shape)
