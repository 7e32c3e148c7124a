"""The READMEs' tables, which are written from results."""

import re
from pathlib import Path

import pytest
from report_records import GPU, board_of, both, fake_record, fake_streams, stored

from mini_dnn.cli import main
from mini_dnn.cli import report as verb
from mini_dnn.errors import UsageError
from mini_dnn.paths import ROOT
from mini_dnn.report import readmes
from mini_dnn.report.board import boards
from mini_dnn.report.load import RESULTS, load, results_files
from mini_dnn.variant import find


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "milestones" / "m3").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Top\n<!-- op-times:start -->\nold\n<!-- op-times:end -->\nend\n")
    ladder = "# M3\n\n<!-- ladder:start -->\n<!-- ladder:end -->\n\nlast words\n"
    (tmp_path / "milestones" / "m3" / "README.md").write_text(ladder)
    return tmp_path


def test_readme_tables_come_from_the_results(checkout: Path) -> None:
    rows = (
        both("m2/unroll_gemm", 6.0, 4.0)
        + both("m3/fusion", 3.0, 2.0)
        + both("m3/restrict", 3.0, 2.0, streams=fake_streams())
        + both("m1/direct", 8.0, 8.0)
    )
    board = board_of(checkout, rows)
    tables = readmes.updated([board], checkout)
    _, top = tables[checkout / "README.md"]
    _, m3 = tables[checkout / "milestones" / "m3" / "README.md"]
    assert top.startswith("# Top\n<!-- op-times:start -->\n")
    assert top.endswith("\n<!-- op-times:end -->\nend\n")
    assert "old" not in top
    assert "| `m3/fusion` | req_2 | 3.00 | 2.00 | 5.00 | 2.00× `m2/unroll_gemm` |" in m3
    assert [name in m3 for name in ("| `m2/unroll_gemm`", "| `m1/direct`")] == [True, False]
    assert "| `m1/direct`" in top
    assert f"{GPU}, batch 10,000, commit `0123456789`." in m3
    assert "its layer times between pinned arrays are 123 + 122 ms" in m3
    assert "123 + 122 ms. Written" in m3  # no rates, so nothing to compare with
    for path, (_, text) in tables.items():
        path.write_text(text)
    assert all(now == wanted for now, wanted in readmes.updated([board], checkout).values())


def test_the_final_kernel_stands_once_and_at_the_end(checkout: Path) -> None:
    """It is the parent of one of milestone 3's variants, but all of them lead to it."""
    rows = (
        both("m3/fp32_split", 1.0, 1.0)
        + both("layers/custom", 0.3, 0.3)
        + both("m3/sliding_window", 0.6, 0.6)
        + both("m3/stack_2", 0.9, 0.9)
        + both("m2/unroll_gemm", 6.0, 4.0)
        + both("m3/fusion", 3.0, 2.0)
    )
    assert find("m3/fp32_split").parent == "layers/custom"
    _, text = readmes.updated([board_of(checkout, rows)], checkout)[
        checkout / "milestones" / "m3" / "README.md"
    ]
    names = re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)
    inside = ["m3/fusion", "m3/stack_2", "m3/sliding_window", "m3/fp32_split"]  # in the order of the ladder
    assert names == ["m2/unroll_gemm", *inside, "layers/custom"]


def test_readme_without_its_second_marker_is_refused(checkout: Path) -> None:
    board = board_of(checkout, both("m1/direct", 5.0, 9.0))
    (checkout / "README.md").write_text("<!-- op-times:end --> <!-- op-times:start -->")
    with pytest.raises(UsageError, match=r"README\.md: expected one '<!-- op-times:start -->'"):
        readmes.updated([board], checkout)
    for path in checkout.rglob("README.md"):
        path.write_text("nothing")
    with pytest.raises(UsageError, match="no README under"):
        readmes.updated([board], checkout)


def test_verb_writes_the_tables_and_tells_when_they_are_behind(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb, "ROOT", checkout)
    results = str(stored(checkout, fake_record(both("m1/direct", 5.0, 9.0))))
    assert main(["report", results, "--check"]) == 1
    assert "README.md: its table does not match the results" in capsys.readouterr().out
    assert "old" in (checkout / "README.md").read_text()
    assert main(["report", results, "--readmes"]) == 0
    assert main(["report", results, "--check"]) == 0
    assert "up to date" in capsys.readouterr().out


def test_readmes_of_this_repository_are_those_of_its_results() -> None:
    if not list(RESULTS.glob("*.json")):
        pytest.skip("there are no stored results")
    results = load(results_files([]))
    updated = readmes.updated(boards(results), ROOT, results.savings, results.batches)
    behind = [str(path) for path, (now, wanted) in updated.items() if now != wanted]
    assert not behind, "run.py report --readmes writes their tables anew"
