"""Assignment sheets: what they contain, what they must not reveal, and how they are written."""

import re
from pathlib import Path

import pytest

from mini_dnn.cli import main
from mini_dnn.grading import rubric
from mini_dnn.handout.pdf import as_pdf
from mini_dnn.handout.sheet import groups, sheet
from mini_dnn.paths import ROOT
from mini_dnn.variant import find

pytestmark = pytest.mark.whole
Output = pytest.CaptureFixture[str]

HIDDEN = """
name = "tiny"
op = "softmax"
[limits]
seconds = 7
[correct]
shapes = [[3, 7], [130, 5]]
seed = 1
[hidden]
shapes = [[17, 1025]]
seeds = [711712]
[checked]
shapes = [[3, 7]]
hidden = [[19, 1033]]
[performance]
at = ["tokens"]
reference = "softmax/v0_naive"
full = 0.25
none = 1.0
[[variant]]
name = "softmax/v1_warp"
required = false
points = { correct = 4, hidden = 3, checked = 1, performance = 2 }
"""


@pytest.mark.parametrize("group", groups())
def test_a_sheet_of_each_group(group: str) -> None:
    text = sheet(group)
    parts = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert parts == ["What is computed", "What to write", "How to work", "Questions for your report"]
    assert "](" not in text, "a sheet stands alone"
    assert text.count("```") == 2
    start = re.search(r"run.py new (\S+) --from (\S+)", text)
    assert start
    assert start[1] != start[2], "a copy of the variant to write is its solution"
    assert find(start[1]).plan
    assert not find(start[1]).needs_gpu, "the emulator can run it"
    assert "run.py run " not in text, "the emulator takes too long for the problems of most operations"


def test_a_sheet_says_how_it_is_graded(tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(HIDDEN)
    text = sheet("softmax", rubric.load(tmp_path / "rubric.toml"), kept=["m1/cpu", "m1/direct"])
    assert "| `softmax/v1_warp` (extra) | 4 | 3 | 1 | 2 | 10 |" in text
    assert "all at 0.25 times the time of `softmax/v0_naive` or less, none at 1 times" in text
    assert "Published shapes, for `--shapes`: `3,7`, `130,5`." in text
    assert "7 s and" in text
    assert "Hand in `mine/`, with your variants.\n- Git ignores `mine/`." in text
    assert "run.py new softmax/v1_warp --from m1/direct" in text, "what students have"
    assert "## Questions for your report\n\n1. How many bytes does `v0` request" in text
    for secret in ("1025", "711712", "1033"):
        assert secret not in text


@pytest.mark.parametrize(
    ("kept", "start"),
    [
        (["m1/direct"], "m1/tiled_direct --from m1/direct"),
        (["m1/cpu", "m1/direct", "m1/tiled_direct"], "mine/m1/tiled_direct --from m1/direct"),
    ],
)
def test_a_copy_does_not_take_the_name_of_a_variant_that_students_have(kept: list[str], start: str) -> None:
    assert f"run.py new {start} " in sheet("m1", kept=kept)


def test_what_students_have_is_not_to_be_written() -> None:
    text = sheet("gemm", kept=["m1/direct", "gemm/v0_naive", "gemm/v1_coalesced"])
    assert re.findall(r"^\| `gemm/(v\d_\w+)`.* given \|$", text, re.MULTILINE) == ["v0_naive", "v1_coalesced"]
    assert "python run.py new gemm/v2_tiled --from gemm/v1_coalesced " in text


def test_a_variant_that_only_the_rubric_names(tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(HIDDEN.replace("softmax/v1_warp", "softmax/mine"))
    text = sheet("softmax", rubric.load(tmp_path / "rubric.toml"))
    assert "| `softmax/mine` | your own | – | fp32 | optional |" in text
    assert "python run.py new softmax/mine --from softmax/v0_naive" in text
    assert "| `softmax/mine` (extra) | 4 | 3 | 1 | 2 | 10 |" in text


def test_the_final_kernel_goes_with_the_last_milestone() -> None:
    texts = {group: sheet(group, rubric.load("fa24")) for group in ("m1", "m3")}
    assert "layers/custom" in texts["m3"]
    assert "layers/custom" not in texts["m1"]
    assert "all at 80 ms or less, none at 200 ms or more" in texts["m3"]
    assert "Hand in `mine/` and `layers/`, with" in texts["m3"]
    assert "run.py check layers/custom " in sheet("m3", rubric.load(ROOT / "course/rubric.toml")), (
        "where `new` puts it"
    )


@pytest.mark.exhaustive
def test_pdf_has_the_page() -> None:
    pytest.importorskip("fpdf")
    plain = as_pdf("# A title\n\nText with `code` and **bold − ≤ ×**.\n", "A title")
    whole = as_pdf(sheet("m1", rubric.load("fa24")), "Milestone 1")
    assert plain.startswith(b"%PDF-")
    assert len(whole) > len(plain) + 1000


def test_files_are_written_and_not_overwritten(tmp_path: Path, capsys: Output) -> None:
    words = ["assign", "m2", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["m2.md", "m2.pdf"]
    (tmp_path / "out/m2.md").write_text("my own words\n")
    assert main(words) == 2
    assert "has m2.md, m2.pdf; name another folder, or add --force" in capsys.readouterr().err
    assert (tmp_path / "out/m2.md").read_text() == "my own words\n"
    assert main([*words, "--force"]) == 0


def test_without_fpdf2_there_is_markdown_and_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fpdf", None)
    assert main(["assign", "softmax", "--out", str(tmp_path)]) == 0
    assert "NOTE: no PDF: PDF files need fpdf2, which is not installed" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["softmax.md"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["m9", "--out", "x"], "no assignment 'm9'; expected one of m1, m2, m3, attention"),
        (["softmax", "--rubric", "fa24", "--out", "x"], "the rubric fa24 asks for no variant of softmax"),
    ],
)
def test_wrong_use(words: list[str], message: str, capsys: Output) -> None:
    assert main(["assign", *words]) == 2
    assert message in capsys.readouterr().err
