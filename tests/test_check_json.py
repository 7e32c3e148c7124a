"""What programs may rely on: fields of ``check --json``, exit statuses, no progress in pipes."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from mini_dnn import progress
from mini_dnn.checking.results import Report
from mini_dnn.cli import main
from mini_dnn.paths import ROOT
from mini_dnn.variant import find

SHAPE = "1,3,6,7,2,3,3"
FIELDS = {"variant", "op", "device", "arch", "seed", "ran", "enough", "clean", "shapes", "findings"}
SHAPE_FIELDS = {"N", "C", "H", "W", "M", "R", "S", "clean", "refused", "kinds"}
FINDING_FIELDS = {"kind", "what", "kernel", "array", "own", "other", "cure", "notes", "shapes"}
PARTY_FIELDS = {"place", "block", "thread", "does"}
PLACE_FIELDS = {"file", "line", "code"}


def verdict(impl: str, status: int, folder: Path) -> Any:
    out = folder / "verdict.json"
    assert main(["check", "--impl", impl, "--shapes", SHAPE, "--seed", "3", "--json", str(out)]) == status
    return json.loads(out.read_text())


def racy(folder: Path) -> str:
    """m2 without the barrier that keeps its tiles from being overwritten."""
    shutil.copytree(find("m2").folder, folder / "mine")
    kernel = folder / "mine" / "kernel.cu"
    kernel.write_text(kernel.read_text().replace("    __syncthreads();  // the tiles have been read\n", ""))
    return str(folder / "mine")


def test_fields_of_a_clean_verdict(tmp_path: Path) -> None:
    report = verdict("m1", 0, tmp_path)
    assert set(report) >= FIELDS
    assert (report["variant"], report["arch"], report["seed"]) == ("m1/direct", 90, 3)
    assert "emulator" in report["device"]
    assert (report["clean"], report["findings"]) == (True, [])
    (shape,) = report["shapes"]
    assert set(shape) >= SHAPE_FIELDS
    assert [shape[name] for name in "NCHWMRS"] == [1, 3, 6, 7, 2, 3, 3]
    assert (shape["clean"], shape["refused"]) == (True, "")


def test_fields_of_a_finding(tmp_path: Path) -> None:
    report = verdict(racy(tmp_path), 1, tmp_path)
    assert not report["clean"]
    assert not report["shapes"][0]["clean"]
    (finding,) = report["findings"]
    assert set(finding) >= FINDING_FIELDS
    assert (finding["kind"], finding["kernel"], finding["array"]) == ("race", "gemm", "w_tile[0][0]")
    assert all(isinstance(finding[name], str) for name in ("what", "cure"))
    assert isinstance(finding["notes"], list)
    assert finding["shapes"] == [dict(zip("NCHWMRS", map(int, SHAPE.split(",")), strict=True))]
    for party in (finding["own"], finding["other"]):
        assert set(party) >= PARTY_FIELDS
        assert set(party["place"]) >= PLACE_FIELDS
        assert party["place"]["file"] == "kernel.cu"
        assert isinstance(party["place"]["line"], int)
        assert "w_tile" in party["place"]["code"]
        assert len(party["block"]) == len(party["thread"]) == 3
    assert {finding["own"]["does"], finding["other"]["does"]} == {"reads", "writes"}


def test_a_finding_without_a_place(tmp_path: Path) -> None:
    """The grid is too small, so no line is at fault."""
    shutil.copytree(find("m1").folder, tmp_path / "mine")
    plan = tmp_path / "mine" / "variant.py"
    plan.write_text(plan.read_text().replace("min(s.M, GRID_Y), s.N)", "min(s.M, GRID_Y) - 1, s.N)"))
    text = (tmp_path / "mine" / "kernel.cu").read_text()
    (tmp_path / "mine" / "kernel.cu").write_text(
        text.replace("m < M; m += gridDim.y", "m <= blockIdx.y; m++")
    )
    (finding,) = verdict(str(tmp_path / "mine"), 1, tmp_path)["findings"]
    assert (finding["kind"], finding["own"], finding["other"]) == ("unwritten", None, None)


def test_the_fields_are_documented() -> None:
    text = Report.as_dict.__doc__ or ""
    for name in (FIELDS | FINDING_FIELDS | PARTY_FIELDS | PLACE_FIELDS | SHAPE_FIELDS) - set("NCHWMRS"):
        assert f"``{name}``" in text, name
    readme = (ROOT / "README.md").read_text()
    assert "`--json FILE`" in readme
    for name in FIELDS | FINDING_FIELDS:
        assert f"`{name}`" in readme, name


def test_quiet_where_nobody_looks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    assert main(["check", "--impl", "m1", "--shapes", SHAPE]) == 0
    out, error = capsys.readouterr()
    assert error == ""
    assert "\x1b" not in out


def test_progress_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich treats the output as a terminal
    assert main(["check", "--impl", racy(tmp_path), "--shapes", SHAPE]) == 1
    out, error = capsys.readouterr()
    assert "checking" in error
    assert "1/1" in error
    assert "\x1b[1;31mrace\x1b[0m" in out


TWO_MISTAKES = """\
extern "C" __global__ void conv(const float* x, const float* w, float* y, int n) {
  __shared__ float tile[32];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x / 2] = x[i];  // two threads an element, and nothing keeps i below n
  __syncthreads();
  if (i < n) y[i] = w[0] * tile[threadIdx.x / 2];
}
"""
ONE_LAUNCH = """\
from mini_dnn.variant import Launch, Variant, ceil_div


def plan(s):
    n = s.N * s.H * s.W
    return [Launch("conv", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]


VARIANT = Variant("conv2d", "", plan)
"""


def test_two_mistakes_on_one_line_are_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table, the list and the file report the same two mistakes, each with its shapes."""
    (tmp_path / "kernel.cu").write_text(TWO_MISTAKES)
    (tmp_path / "variant.py").write_text(ONE_LAUNCH)
    # N = 128, which has no tail; n = 144
    out, shapes = tmp_path / "verdict.json", ["1,1,8,16,1,1,1", "1,1,9,16,1,1,1"]
    assert main(["check", "--impl", str(tmp_path), "--shapes", *shapes, "--json", str(out)]) == 1
    told = capsys.readouterr().out
    assert "RACE            (1, 1, 8, 16)" in told
    assert "OUT-OF-BOUNDS (+1) (1, 1, 9, 16)" in told
    assert re.findall(r"^\d\. ([\w-]+): ", told, re.MULTILINE) == ["race", "out-of-bounds"]
    verdict = json.loads(out.read_text())
    assert [shape["kinds"] for shape in verdict["shapes"]] == [["race"], ["out-of-bounds", "race"]]
    race, beyond = verdict["findings"]
    assert [finding["own"]["place"]["line"] for finding in (race, beyond)] == [4, 4]
    assert [[shape["H"] for shape in finding["shapes"]] for finding in (race, beyond)] == [[8, 9], [9]]


def test_one_mistake_that_shows_twice_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If a barrier is missing, each order of threads may show the race on another array."""
    report = verdict(racy(tmp_path), 1, tmp_path)
    told = capsys.readouterr().out
    assert "RACE            (1, 3, 6, 7)" in told
    assert [len(finding["shapes"]) for finding in report["findings"]] == [1]
    assert report["shapes"][0]["kinds"] == ["race"]
