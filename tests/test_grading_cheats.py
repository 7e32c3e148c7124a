"""No cheat earns a point; each gets a message that gives the reason, and none leaves anything behind."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from grading_helpers import CHEATS, QUICK, assemble, expected, honest, names, quick_setting

from mini_dnn import ops
from mini_dnn.grading import rubric
from mini_dnn.grading.confined.sandbox import Isolation, can_hide_files
from mini_dnn.grading.grader import Grader
from mini_dnn.grading.submission import Submission
from mini_dnn.variant import find
from mini_dnn.variant import names as names_of_variants
from mini_dnn.variant.scaffold import create

pytestmark = pytest.mark.skipif(not Isolation().full, reason=f"no isolation here: {Isolation()}")


OF_OTHERS = (  # these call other variants
    *("m3/ladder_gemm", "networks/vit/fused", "networks/vit/layer_by_layer"),
    *(f"networks/resnet18/{name}" for name in ("v0_transfers", "v1_conv_bn", "v2_layers", "v3_shared")),
    *("networks/resnet18/v4_tensor_cores", "attention/v10_heads"),
    *("attention/v11_odd_token", "attention/v12_accurate", "attention/v13_renewed"),
    *("gemm/v11_ahead", "gemm/v12_eighths"),
)
# These include a header of another variant, which a submission does not have
NOT_ALONE = (
    *("gemm/v10_small", "gemm/v13_split", "gemm/v14_mixed", "gemm/v15_idle", "gemm/v16_pingpong"),
    "gemm/v18_thirds",
    "linear/v2_ahead",
)
OFTEN = (  # one of each operation, one on the host, one that needs a GPU
    *{
        find(name).op: name
        for name in sorted(names_of_variants(), key=(*OF_OTHERS, *NOT_ALONE).__contains__, reverse=True)
    }.values(),
    *("m1/cpu", "m3/cublas"),
)
GRADED = [
    name
    for at, name in enumerate(names_of_variants())
    if name in OFTEN or (at % 3 == 0 and name not in NOT_ALONE)
]
HANGING = ("endless_kernel", "endless_plan", "memory_bomb")


def grounds(folder: Path, text: str) -> Iterator[tuple[Path, Grader]]:
    (folder / "any.toml").write_text(text)
    setting = quick_setting(folder, rubric=rubric.load(folder / "any.toml"))
    (setting.out / "grades").mkdir(parents=True)
    (setting.out / "grades" / "other.json").write_text("{}")
    honest(folder, "other")
    work = setting.out / ".work"
    work.mkdir()
    with Grader(setting, work) as grader:
        yield folder, grader


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Grader]]:
    """Results with a grade, a rubric, another submission, and a grader."""
    yield from grounds(tmp_path_factory.mktemp("grading"), QUICK)


@pytest.fixture(scope="module")
def impatient_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Grader]]:
    """The same with a grader that waits at most a second for an answer."""
    yield from grounds(tmp_path_factory.mktemp("grading"), QUICK.replace("seconds = 300", "seconds = 1"))


def skipped(name: str) -> object:
    """Direct system calls are written for one kind of processor."""
    other = name.startswith("bare_") and platform.machine() != "x86_64"
    return pytest.param(name, marks=pytest.mark.skipif(other, reason="system calls of x86-64"))


@pytest.mark.parametrize("name", [skipped(name) for name in names("processor")])
def test_cheats_get_no_credit_and_a_reason(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    earns_nothing(
        name, request.getfixturevalue("impatient_ground" if name in HANGING else "ground"), tmp_path
    )


def earns_nothing(name: str, ground: tuple[Path, Grader], tmp_path: Path) -> None:
    folder, grader = ground
    places = {"rubric": folder / "quick.toml", "out": folder / "out", "other": folder / "other"}
    grade = grader.grade(Submission(name, assemble(name, tmp_path, **places)))
    said = grade.refused + "\n" + "\n".join(check.message for check in grade.checks)
    assert grade.points == 0, said
    assert re.search(expected(name), said), said
    assert "4242" not in said, "the hidden seed"
    assert (folder / "out/grades/other.json").read_text() == "{}"
    assert sorted(path.name for path in (folder / "out").iterdir()) == [".work", "grades"]
    assert sorted(path.name for path in (folder / "out/grades").iterdir()) == ["other.json"]


@pytest.mark.parametrize("name", names("apart"))
def test_a_guessed_path_tells_nothing(name: str, ground: tuple[Path, Grader], tmp_path: Path) -> None:
    if not can_hide_files():
        pytest.skip("this system lets nobody make a mount namespace")
    if name.startswith("bare_") and platform.machine() != "x86_64":
        pytest.skip("system calls of x86-64")
    earns_nothing(name, ground, tmp_path)


@pytest.fixture(scope="module")
def checking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grader]:
    """A grader that runs kernels in checked mode."""
    folder = tmp_path_factory.mktemp("checking")
    text = QUICK.replace("hidden = 3 }", "checked = 3 }\n[checked]\nshapes = [[2, 3, 9, 11, 5, 3, 2]]")
    (folder / "checked.toml").write_text(text)
    setting = quick_setting(folder, rubric=rubric.load(folder / "checked.toml"))
    with Grader(setting, folder) as grader:
        yield grader


@pytest.mark.parametrize("name", names("checked"))
def test_checked_mode_is_not_silenced(name: str, checking: Grader, tmp_path: Path) -> None:
    grade = checking.grade(Submission(name, assemble(name, tmp_path)))
    assert grade.points == 0
    assert re.search(expected(name), grade.refused)


def test_a_race_where_nobody_looks_is_found_and_not_shown(tmp_path: Path) -> None:
    """The race occurs at a hidden shape of checked mode.

    Its points are lost, and the message names nothing.
    """
    text = QUICK.replace("hidden = 3 }", "checked = 3 }\n[checked]\nshapes = [[2, 3, 9, 11, 5, 3, 2]]")
    (tmp_path / "any.toml").write_text(text + "hidden = [[3, 3, 9, 11, 5, 3, 2]]\n")
    folder = honest(tmp_path)
    kernel = (folder / "kernel.cu").read_text()
    end = kernel.rindex("}")
    (folder / "kernel.cu").write_text(kernel[:end] + "  if (gridDim.z == 3) y[0] += 1;\n" + kernel[end:])
    setting = quick_setting(tmp_path, rubric=rubric.load(tmp_path / "any.toml"))
    with Grader(setting, tmp_path) as grader:
        checks = {
            check.name.partition(": ")[2]: check for check in grader.grade(Submission("one", folder)).checks
        }
    hidden = checks["checked, hidden"]
    assert (checks["checked"].status, checks["checked"].points) == ("passed", 0)
    assert (hidden.status, hidden.message) == ("failed", "a hidden test failed")
    assert "race" in hidden.staff
    assert checks["correct"].points == 4


def test_checked_mode_accepts_an_honest_submission(checking: Grader, tmp_path: Path) -> None:
    assert checking.grade(Submission("honest", honest(tmp_path))).points == 7


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", GRADED)
def test_honest_submissions_are_not_refused(
    name: str, exact: Callable[[str, str], Grader], tmp_path: Path
) -> None:
    variant = find(name)
    folder = variant.folder
    shared = ("m3/fp32_split", "layers/fused", "networks/resnet18/v")  # they include files of another folder
    if name.startswith(shared):  # a submission cannot do that
        folder = create(str(tmp_path / "copy"), variant)
    among = [*variant.operation.check, *variant.operation.spare]
    taken = [problem.numbers for problem in among if not variant.limit_for(problem)]
    grade = exact(variant.op, json.dumps(taken[1:3])).grade(Submission("honest", folder))
    assert not grade.refused
    skipped = [check for check in grade.checks if check.status == "skipped"]
    if name in OF_OTHERS:
        assert grade.points == 0
        assert "a submission is graded by its own" in grade.checks[0].message
        return
    assert grade.points == (0 if variant.needs_gpu else 7), grade.checks
    assert bool(skipped) == bool(variant.needs_gpu)


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Grader]]:
    """A grader for an operation and problems that accepts every precision of a shipped variant."""
    folder, graders = tmp_path_factory.mktemp("honest"), ExitStack()

    @cache
    def grader(op: str, shapes: str) -> Grader:
        text = QUICK.replace('"fp16"', '"fp16_sum"')
        text = re.sub("shapes = .*", f"shapes = {shapes}", text) if op != ops.DEFAULT else text
        file = folder / f"{op}-{len(list(folder.glob('*.toml')))}.toml"
        file.write_text(f'op = "{op}"\n{text}')
        setting = quick_setting(folder, rubric=rubric.load(file))
        return graders.enter_context(Grader(setting, folder))

    with graders:
        yield grader


def test_the_grader_still_works_after_all_cheats(ground: tuple[Path, Grader]) -> None:
    folder, grader = ground
    grade = grader.grade(Submission("other", folder / "other"))
    assert (grade.points, grade.refused) == (7, ""), grade.checks


def test_there_are_enough_cheats() -> None:
    assert len(list(CHEATS.iterdir())) - 1 >= 20
