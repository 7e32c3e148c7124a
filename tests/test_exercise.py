"""Exercises: kernels with blanks, hints, and the way to the reference."""

import errno
import re
from pathlib import Path

import pytest

from mini_dnn.cli import main
from mini_dnn.device import Device
from mini_dnn.errors import CompileError, UsageError
from mini_dnn.paths import ROOT
from mini_dnn.variant import exercise, find
from mini_dnn.variant.scaffold import create

Output = pytest.CaptureFixture[str]
NAMES = exercise.exercises()


def tokens(kernel: str) -> str:
    return "".join(re.sub(r"//.*", "", kernel).split())


def filled(kernel: str, number: int, code: str) -> str:
    """The kernel with a blank replaced by the answer. The semicolon of a statement is already there."""
    answer = code.partition("  //")[0]
    answer = answer.removesuffix(";") if code.endswith(";") else answer
    return re.sub(rf"\bBLANK_{number}\b", lambda _: answer, kernel)


def test_the_ladder_has_exercises() -> None:
    assert {"m1/direct", "m1/tiled_direct", "m2/unroll_gemm", "m3/fusion"} <= set(NAMES)


@pytest.mark.whole
def test_the_page_for_staff_lists_them() -> None:
    page = (ROOT / "docs/handout.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", NAMES)
def test_filled_with_the_answers_it_is_the_reference(name: str, tmp_path: Path) -> None:
    source = find(name)
    folder = create(str(tmp_path / "mine"), source, exercise.make)
    text = (folder / "kernel.cu").read_text()
    blanks = exercise.blanks_of(source)
    for number, blank in enumerate(blanks, 1):
        assert blank.code not in text, "nothing tells the answer"
        assert blank.hints[-1] in blank.code, "the last hint is the answer"
        assert text.count(f"// blank {number}: {blank.ask}") == 1
        text = filled(text, number, blank.code)
    assert tokens(text) == tokens(source.source.read_text())
    assert max(map(len, text.splitlines())) <= 120
    assert not (folder / exercise.FILE).exists()
    if source.parent:
        assert f"How much faster than {source.parent} do you expect it to be" in text


def test_from_the_first_blank_to_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "./mine", "--exercise", "m1/direct"]) == 0
    assert "has 4 blanks, BLANK_1 to BLANK_4" in capsys.readouterr().out
    kernel = tmp_path / "mine/kernel.cu"
    for number, blank in enumerate(exercise.blanks_of(find("m1/direct")), 1):
        for level, hint in enumerate(blank.hints, 1):
            assert main(["hint", "./mine"]) == 0
            out = capsys.readouterr().out
            assert f"blank {number} of 4, {kernel}:" in out
            assert f"hint {level} of {len(blank.hints)}: {hint}" in out
        assert main(["hint", "./mine"]) == 0, "the last hint again"
        assert blank.hints[-1] in capsys.readouterr().out
        kernel.write_text(filled(kernel.read_text(), number, blank.code))
    assert main(["hint", "./mine"]) == 0
    assert "no blanks are left; the reference is m1/direct" in capsys.readouterr().out
    assert main(["check", "./mine", "--shapes", "1,1,5,4,2,3,3"]) == 0
    assert re.search(
        r"compare it with the reference: python \S*run.py diff \S+/mine m1/direct", capsys.readouterr().out
    )


def test_a_hint_that_cannot_be_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = create(str(tmp_path / "mine"), find("m1/direct"), exercise.make)

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(exercise, "write_atomically", refuse)
    with pytest.raises(UsageError, match=r"mine cannot be written \(Read-only file system\), .* copy the"):
        exercise.next_hint(folder)


def test_an_exercise_that_has_got_more_blanks_since_it_was_made(tmp_path: Path) -> None:
    folder = create(str(tmp_path / "mine"), find("m1/direct"), exercise.make)
    (folder / exercise.STATE).write_text('{"of": "m1/direct", "read": [1]}')
    assert "hint 2 of" in exercise.next_hint(folder)[1]
    kernel = (folder / "kernel.cu").read_text()
    (folder / "kernel.cu").write_text(re.sub(r"\bBLANK_[12]\b", "0", kernel))
    assert [line.partition(" of ")[0] for line in exercise.next_hint(folder)] == ["blank 3", "hint 1"]


def test_a_blank_does_not_compile(tmp_path: Path, emulator: Device) -> None:
    variant = find(create(str(tmp_path / "mine"), find("m1/direct"), exercise.make))
    shape = variant.operation.course["conv1"].with_batch(1)
    with pytest.raises(CompileError, match="BLANK_1"):
        emulator.compile(variant.source, variant.defines_for(shape))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["new", "--exercise", "m3/sweep"], "m3/sweep has no exercise; expected one of m1/direct, "),
        (["new", "--from", "m1"], "name the new folder: python"),
        (
            ["hint", "m1/tiled_direct"],
            "is not an exercise: 'run.py new --exercise m1/tiled_direct' makes one",
        ),
        (["hint", "m3/sweep"], "is not an exercise: 'run.py new --exercise m1/direct' makes one"),
    ],
)
def test_wrong_use(words: list[str], message: str, capsys: Output) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_the_default_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setattr("mini_dnn.variant.scaffold.ROOT", tmp_path)
    assert main(["new", "--exercise", "m2/unroll_gemm"]) == 0
    assert (tmp_path / "mine/unroll_gemm/kernel.cu").is_file()
    assert "run.py hint mine/unroll_gemm" in capsys.readouterr().out


def test_a_kernel_need_not_be_utf_8(tmp_path: Path, capsys: Output) -> None:
    """Every verb reads a comment in Latin-1, as compilers do."""
    folder = create(str(tmp_path / "mine"), find("m1"), exercise.make)
    kernel = folder / "kernel.cu"
    kernel.write_bytes(kernel.read_bytes() + "// é\n".encode("latin-1"))
    for words in (
        ["hint", str(folder)],
        ["diff", str(folder), "m1"],
        ["show", str(folder)],
        ["show", str(folder), "--expand"],
        ["new", str(tmp_path / "copy"), "--from", str(folder)],
    ):
        assert main(words) == 0, (words, capsys.readouterr().err)
        assert exercise.left(folder)
    assert (tmp_path / "copy/kernel.cu").read_text().endswith("// \N{REPLACEMENT CHARACTER}\n")
