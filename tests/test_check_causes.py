"""Several findings with one cause are reported as one; findings with two causes as two."""

from dataclasses import replace

import pytest

from mini_dnn.checking.causes import each_once, mistakes
from mini_dnn.checking.results import Report, Result
from mini_dnn.cli.check import describe
from mini_dnn.device.finding import Finding, Party, Place
from mini_dnn.ops.conv2d import OPERATION, ConvShape
from mini_dnn.ops.hints import ACCURACY, SAME_AS

SHAPES = [ConvShape(n, 1, 9, 9, 1, 3, 3) for n in (1, 2, 3)]


def party(line: int, write: bool = False) -> Party:
    return Party(Place("kernel.cu", line, f"line {line}"), (0, 0, 0), (line, 0, 0), write=write)


def race(store: int, load: int, array: str = "tile[0]", memory: str = "shared") -> Finding:
    return Finding("race", "", "conv", party(load), array, party(store, True), "barrier", memory=memory)


def unset(line: int, array: str = "tile[0]") -> Finding:
    return Finding("uninitialised", "", "conv", party(line), array, memory="shared")


def beyond(line: int, array: str = "x[9]", memory: str = "global") -> Finding:
    return Finding("out-of-bounds", "", "conv", party(line), array, memory=memory)


WRONG = Finding("wrong", "3 of 9 elements differ", array="y[0]", cure="look")
GUESSED = replace(WRONG, notes=(SAME_AS + "the filter is mirrored",))
SAME_ELEMENT = Finding(
    "race", "", "conv", party(20, True), "y[3]", party(20, True), memory="global"
)  # an index
DIVERGENCE = Finding("divergence", "", "conv", party(14))


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        ([race(10, 14), race(11, 15, "other[3]")], 0),  # one barrier ends both
        ([unset(14), race(10, 14)], 1),
        ([race(10, 15), unset(12, "other[3]")], 0),
        ([race(10, 16), DIVERGENCE], 1),
        ([SAME_ELEMENT, beyond(17)], 1),
        ([WRONG, GUESSED], 0),
        ([beyond(12), Finding("misaligned", "", "conv", party(12), "struct float4")], 0),
        ([Finding("launch", "grid.x is 0", "conv", cure="round up"), Finding("unwritten", "")], 0),
        ([Finding("launch", text, "conv", cure="one for each") for text in ("6 of 7", "7 of 8")], 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("where", [SHAPES[:1] * 2, SHAPES[:2]], ids=["together", "apart"])
def test_findings_with_one_cause(found: list[Finding], cause: int, where: list[ConvShape]) -> None:
    (one,) = mistakes(zip(where, found, strict=True))
    told = one.told()
    assert (told.kind, told.place) == (found[cause].kind, found[cause].place)
    assert one.met == list(dict.fromkeys([where[cause], *where])), "what is described is at the first one"
    assert all(effect in [replace(f, effects=()) for f in found] for effect in told.effects)


@pytest.mark.parametrize(
    "found",
    [
        [race(10, 14), race(20, 24)],  # each needs a barrier of its own
        [race(10, 14), beyond(10)],  # of a tile, and of what it is loaded from
        [race(10, 14), beyond(10, "float [64]", "")],
        [beyond(12), beyond(18, "y[80]")],
        [race(10, 14), replace(race(10, 14), kernel="other")],
        [DIVERGENCE, race(20, 24)],
        [Finding("launch", "", "conv", cure=cure) for cure in ("smaller tiles", "round up")],
    ],
    ids=str,
)
def test_findings_with_two_causes(found: list[Finding]) -> None:
    assert len(mistakes((SHAPES[0], finding) for finding in found)) == 2


@pytest.mark.parametrize(("effect", "count"), [(WRONG, 1), (GUESSED, 2)])
def test_a_wrong_result_elsewhere(effect: Finding, count: int) -> None:
    """It is a separate mistake if it indicates one, or if a barrier would not have changed it."""
    assert len(mistakes([(SHAPES[0], beyond(12)), (SHAPES[1], effect)])) == count
    assert len(mistakes([(SHAPES[0], race(10, 14)), (SHAPES[1], effect)])) == 2
    assert len(mistakes([(SHAPES[0], race(10, 14)), (SHAPES[0], effect)])) == 1


def test_guesses_of_all_problems_are_reported() -> None:
    (one,) = mistakes([(SHAPES[0], WRONG), (SHAPES[1], GUESSED), (SHAPES[2], GUESSED)])
    assert one.told().notes == GUESSED.notes


def test_report() -> None:
    """The report shows the cause with its lines, the other findings in one line, and all shapes."""
    results = (
        Result(SHAPES[0], unset(14)),
        Result(SHAPES[1], race(10, 14), more=(beyond(30),)),
        Result(SHAPES[2], WRONG),
    )
    report = Report("mine", "conv2d", 0, results, "emulator", 90)
    told = "\n".join(describe(report))
    assert "1. race: " in told
    assert "   also     it also causes: uninitialised (kernel.cu:14); fix this first" in told
    assert "2. out-of-bounds: " in told
    assert "   also     it also causes: wrong result" in told
    first, second = report.as_dict()["findings"]
    assert [effect["kind"] for effect in first["effects"]] == ["uninitialised"]
    assert first["effects"][0]["place"]["line"] == 14
    assert [shape["N"] for shape in first["shapes"]] == [2, 1], "the race is at the second"
    assert [shape["N"] for shape in second["shapes"]] == [2, 3]


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ([], True),
        (["9 elements are infinite: ..."], True),
        ([""], False),
        (["all of them have q >= 16"], False),
    ],
)
def test_a_lower_precision_has_to_explain_all_results(others: list[str], told: bool) -> None:
    note = f"{ACCURACY}tf32, not of fp32"
    found = [replace(WRONG, notes=(each,) if each else ()) for each in (note, *others)]
    for order in (found, found[::-1]):
        (one,) = mistakes(zip(SHAPES, order, strict=False))
        assert (note in one.told().notes) == told


def test_a_guess_is_reported_with_the_cause() -> None:
    """One problem shows an index beyond the array, and another shows which index is wrong."""
    results = (Result(SHAPES[0], WRONG), Result(SHAPES[1], beyond(30)), Result(SHAPES[2], GUESSED))
    told = describe(Report("mine", "conv2d", 0, results, "emulator", 90))
    assert f"   note     {GUESSED.notes[0]}" in told
    assert sum("out-of-bounds: " in line for line in told) == 1


@pytest.mark.parametrize(
    ("at_square", "at_others", "noted"),
    [
        ((None, None), (beyond(30), beyond(40)), True),
        ((beyond(10), None), (beyond(30), beyond(30)), True),
        ((beyond(10), beyond(10)), (beyond(10), beyond(30)), False),
        ((None, None), (beyond(30), None), False),
    ],
    ids=["only they fail", "all of them have it", "others fail, too", "one is clean"],
)
def test_a_kind_of_problems(
    at_square: tuple[Finding | None, ...], at_others: tuple[Finding | None, ...], noted: bool
) -> None:
    """The report gives a filter that is not square as the reason only if the findings show it."""
    others = [replace(shape, R=2) for shape in SHAPES[:2]]
    results = tuple(map(Result, [*SHAPES[:2], *others], [*at_square, *at_others]))
    report = Report("mine", "conv2d", 0, results, "emulator", 90, traits=OPERATION.traits)
    found = {f.place.line: f for f in report.findings if f.place}
    assert any("R != S" in note for note in found[30].notes) == noted


def test_each_finding_is_reported_once() -> None:
    assert each_once([race(10, 14), race(10, 15), race(20, 24)]) == [race(10, 14), race(20, 24)]
