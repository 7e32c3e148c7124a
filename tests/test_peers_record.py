"""The results of `benchmarks/peers.py`: its picture, its rows in the report, and messages for wrong use."""

import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import peers
import pytest
from report_records import fake_full, fake_run, sealed, stored

from mini_dnn.report.board import boards
from mini_dnn.report.load import load
from mini_dnn.report.rivals import peers_table


def test_picture_of_a_stored_run(tmp_path: Path) -> None:
    file, picture = stored(tmp_path, fake_run()), tmp_path / "picture.svg"
    with mpl.rc_context({"svg.fonttype": "none"}):  # text stays text
        assert peers.main(["--from", str(file), "--picture", str(picture)]) == 1  # a result was wrong
    words = re.findall(r"<text[^>]*>([^<]+)</text>", picture.read_text())
    assert words.count("layers/custom, fp16") == 1
    assert "0.600" in words  # 0.34 + 0.26
    assert "cuDNN, fp32" in words
    assert "10.0" in words  # 6.0 + 4.0, each layer in its faster layout
    assert "bytes alone 0.580" in words
    assert not any("CuPy" in word for word in words)  # it has only one layer
    assert sum(word.startswith("The whole network") for word in words) == 1
    assert not any("ReLU" in word for word in words)  # nothing was measured
    order = [word for word in words if ", fp" in word]
    assert order.index("layers/custom, fp16") < order.index("cuDNN, fp32")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "{run}"], "--picture FILE.svg"),
        (["--from", "{run}", "--picture", "{folder}/x.pdf"], "written as .svg or .png"),
        (["--from", "{run}", "--picture", "{folder}/x.svg", "--out", "{folder}/x"], "leave one of them out"),
        (["--from", "{old}", "--picture", "{folder}/x.svg"], "whose schemas are peers-2 and peers-4"),
        (["--from", "{empty}", "--picture", "{folder}/x.svg"], "nothing to draw"),
        (["--from", "{folder}/none.json", "--picture", "{folder}/x.svg"], "cannot be read"),
        (["--budget", "0"], "a positive number of seconds"),
        (["--impl", "cpu"], "runs on the CPU"),
        (["--impl", "m3/fuson"], "did you mean"),
        (["--out", "{folder}/none/x.json"], "there is no folder"),
    ],
)
def test_wrong_use(words: Sequence[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    files = {
        "run": stored(tmp_path, fake_run(), "run.json"),
        "old": stored(tmp_path, sealed(fake_run() | {"schema": "peers-1"}), "old.json"),
        "empty": stored(tmp_path, fake_run() | {"rows": []}, "empty.json"),
    }
    assert peers.main([word.format(folder=tmp_path, **files) for word in words]) == 2
    assert message in capsys.readouterr().err


def test_the_report_takes_the_libraries_of_a_run(tmp_path: Path) -> None:
    files = [stored(tmp_path, fake_full()), stored(tmp_path, fake_run(), "peers.json")]
    (board,) = boards(load(files))
    rows = [row[:6] for row in peers_table(board).rows]
    assert ["cuDNN", "fp32", "NCHW", "7.00", "4.00", "11.0"] in rows  # the faster of two settings
    assert ["cuDNN", "fp32", "NHWC", "6.00", "5.00", "11.0"] in rows
    assert {row[0] for row in rows} == {"cuDNN", "CuPy", "`m3/cublas`"}
    sums = [float(row[5].replace(",", "")) for row in rows if row[5] != "–"]
    assert sums == sorted(sums)
    assert all(row[5] == "–" for row in rows[len(sums) :])  # libraries without all layers come last
    versions = "cuDNN 9.19.0 through PyTorch 2.9.1+cu130, CuPy 14.0.0"
    assert {peer.versions for peer in board.peers} == {versions}
