"""Similar code is found despite other names and layout; given or common code and other ideas are not."""

import re
from pathlib import Path

import pytest
from grade_samples import NASTY, html_of, rows

from mini_dnn.grading import rubric
from mini_dnn.grading.outputs.similarity import similarity, similarity_csv
from mini_dnn.grading.similarity import Likeness, Place, Work, alike, compare
from mini_dnn.grading.submission import named
from mini_dnn.variant import find
from mini_dnn.variant.fingerprints import GRAM, WINDOW, cpp_tokens, fingerprints, line_ranges, python_tokens

TILED = find("m1/tiled_direct").source.read_text()


def work(name: str, *texts: str) -> Work:
    return Work(name, {f"{i}.cu": fingerprints(cpp_tokens(text)) for i, text in enumerate(texts)})


def disguised(kernel: str) -> str:
    """The same kernel with different names, numbers, comments and lines."""
    kernel = re.sub(r"//.*", "", kernel)
    kernel = re.sub(r"\b(acc|tile|pixel|value|row|col|TILE)\b", lambda name: f"my_{name[0]}", kernel)
    kernel = re.sub(r"\bint (\w)\b", r"int the_\1", kernel)
    return "/* my own work */\n\n" + kernel.replace(" 16", " 32").replace(";", " ;\n  // and then\n")


def sums(count: int, call: str) -> str:
    """A sequence of ``count`` tokens that differ from those of another call."""
    return f"void f() {{ {' '.join(f'{call}({i}, a[{i}]);' for i in range(count))} }}"


def test_names_numbers_comments_and_lines_do_not_hide_a_copy() -> None:
    (pair,) = alike([work("ada", TILED), work("bob", disguised(TILED))], [], set())
    assert (pair.one, pair.other, pair.shipped) == ("ada", "bob", False)
    assert min(pair.share, pair.other_share) > 0.9
    (place,) = pair.places
    first, last = place.lines[0][0], place.lines[-1][1]
    code = [i for i, line in enumerate(TILED.splitlines(), 1) if not line.startswith("//")]
    assert first == code[0]
    assert last >= len(TILED.splitlines()) - 3


def test_other_ideas_are_not_alike() -> None:
    constant = find("m3/constant_memory").source.read_text()
    assert not alike([work("ada", TILED), work("bob", constant)], [], set())


def test_any_run_that_is_long_enough_is_found_with_its_lines() -> None:
    """It is found at any position, as winnowing guarantees."""
    run = "\n".join(f"x{i}[y] = (p->z{i} * {i}) / a + b;" for i in range(GRAM))
    tokens = cpp_tokens(run)
    own, other = "a.b->c[0]{1}(2);\n" * 30, "if (q) r <<= s; else t--;\n" * 30
    for start in range(0, 20, 7):
        part = " ".join(token.text for token in tokens[start : start + GRAM + WINDOW - 1])
        one, two = (fingerprints(cpp_tokens(f"{text}{part}\n{text}")) for text in (own, other))
        shared = one.keys() & two.keys()
        assert shared
        assert any(
            first <= 31 + len(part.splitlines()) and last >= 31 for first, last in line_ranges(one, shared)
        )


def test_what_was_given_does_not_count() -> None:
    given = set(fingerprints(cpp_tokens(TILED)))
    pair = [work("ada", TILED), work("bob", TILED)]
    assert alike(pair, [], set())
    assert not alike(pair, [], given)


def test_what_most_of_a_class_has_does_not_count() -> None:
    mine = [sums(40, f"f<{'+'.join('a' * i)}>") for i in range(1, 6)]
    several = [work(f"s{i}", TILED, text) for i, text in enumerate(mine)]
    assert len(alike(several[:4], [], set())) == 6
    assert not alike(several, [], set())
    copied = [*several, work("eve", TILED, mine[2])]
    assert [(pair.one, pair.other) for pair in alike(copied, [], set())] == [("s2", "eve")]


@pytest.mark.parametrize(
    "text", ["", "def f(:\n  (", "a = 1\n  b = 2\n c", "'''", "\0", "x = '\\N{no such}'"]
)
def test_what_python_cannot_read_is_no_error(text: str) -> None:
    assert isinstance(fingerprints(python_tokens(text)), dict)


def test_python_without_comments_and_docstrings() -> None:
    text = '"""What it is."""\n\n# a comment\ndef f(x):  # another\n    """Twice."""\n    return 2 * x\n'
    tokens = python_tokens(text)
    assert "".join(token.text for token in tokens) == "deff(x):return2*x"
    assert [token.line for token in tokens][-4:] == [6, 6, 6, 6]


def test_submissions_are_compared_with_each_other_and_with_this_repository(tmp_path: Path) -> None:
    for name, kernel in (("ada", TILED), ("bob", disguised(TILED)), ("cyd", sums(60, "h"))):
        folder = tmp_path / name / "layers/custom"
        folder.mkdir(parents=True)
        (folder / "kernel.cu").write_text(kernel)
        (folder / "variant.py").write_text("VARIANT = None\n")
    (tmp_path / "dan").mkdir()
    submissions = named(sorted(tmp_path.iterdir()))
    found = compare(submissions, rubric.load("small"), given=[])
    assert ("ada", "bob") in {(pair.one, pair.other) for pair in found}
    shipped = {pair.one for pair in found if pair.shipped and pair.other == "m1/tiled_direct"}
    assert shipped == {"ada", "bob"}
    assert not {"cyd", "dan"} & {name for pair in found for name in (pair.one, pair.other)}
    assert not compare(submissions, rubric.load("small"), given=["m1/tiled_direct"])


def test_the_staffs_page_and_table() -> None:
    place = Place("layers/custom/kernel.cu", ((12, 40), (44, 44)), "kernel.cu", ((3, 31),))
    pairs = [
        Likeness("ada", "bob", False, 0.8, 0.5, (place,)),
        Likeness(NASTY[0], NASTY[5], True, 0.4, 0.1, (place,)),
    ]
    page, (first, second) = similarity(pairs), rows(similarity_csv(pairs))
    assert "| `ada` | 80% | `bob` | 50% |" in page
    assert "| `layers/custom/kernel.cu:12-40, 44` | `kernel.cu` | `3-31` |" in page
    assert " of this repository |" in page
    assert not {"html_block", "html_inline", "link_open", "image"} & set(html_of(page))
    assert (first["share"], first["lines"]) == ("0.8", "layers/custom/kernel.cu:12-40, 44")
    assert second["shipped"] == "yes"
    assert "No two submissions have similar code" in similarity([])
