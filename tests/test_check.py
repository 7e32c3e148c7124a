"""Checked mode: no finding in correct kernels, and the right kind and line in wrong ones."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mini_dnn.check import Report, check
from mini_dnn.cli import main
from mini_dnn.cli.check import describe
from mini_dnn.plan import CopyToSymbol, Launch, Step
from mini_dnn.shapes import ConvShape
from mini_dnn.variant import Variant, ceil_div, find, names

TILE = 16
THREADS = 64
WRONG = sorted(Path(__file__).with_name("wrong").glob("*.cu"))
SHAPE = ConvShape(2, 3, 12, 21, 9, 3, 5)
SMALL = (ConvShape(2, 3, 7, 9, 5, 3, 2), ConvShape(1, 2, 12, 37, 17, 2, 5))
CHECKABLE = [name for name in names() if (v := find(name)).plan is not None and not v.needs_gpu]

Plan = Callable[[ConvShape], Sequence[Step]]


def arguments(s: ConvShape) -> tuple[str | int, ...]:
    return ("x", "w", "y", s.N, s.C, s.H, s.W, s.M, s.R, s.S)


def direct(pixels: Callable[[int, int], int] = ceil_div) -> Plan:
    return lambda s: [Launch("conv", (pixels(s.P * s.Q, THREADS), s.M, s.N), (THREADS,), arguments(s))]


def gemm(tile: int, block: tuple[int, ...]) -> Plan:
    return lambda s: [Launch("conv", (ceil_div(s.cols, tile), ceil_div(s.M, tile)), block, arguments(s))]


def tiled(halo: int) -> Plan:
    def plan(s: ConvShape) -> list[Step]:
        tiles = ceil_div(s.P, TILE) * ceil_div(s.Q, TILE)
        shared_bytes = 4 * (TILE + halo * (s.R - 1)) * (TILE + halo * (s.S - 1))
        return [Launch("conv", (tiles, s.M, s.N), (TILE, TILE), arguments(s), shared_bytes)]

    return plan


def constant(s: ConvShape) -> list[Step]:
    return [CopyToSymbol("w_const", "w"), *direct()(s)]


PLANS: dict[str, Plan] = {
    "direct": direct(),
    "direct_floor": direct(lambda a, b: a // b),
    "gemm": gemm(TILE, (TILE, TILE)),
    "wmma": gemm(TILE, (32,)),
    "tiled": tiled(halo=1),
    "tiled_no_halo": tiled(halo=0),
    "constant": constant,
}


def run_wrong(file: Path, folder: Path) -> Report:
    """Check a kernel of the corpus under the plan that it names."""
    shutil.copy(file, folder / "kernel.cu")
    name = re.search(r"^// plan: (\w+)$", file.read_text(), re.MULTILINE)
    assert name, f"{file} names no plan"
    plan = PLANS[name[1]]
    precision = "fp16" if name[1] == "wmma" else "fp32"
    variant = Variant(
        "conv2d", "", plan, defines={"TILE": TILE}, precision=precision, folder=folder, name=file.stem
    )
    shape = ConvShape(2, 1, 12, 21, 9, 3, 5) if name[1] == "constant" else SHAPE
    return check(variant, [shape])


@pytest.mark.parametrize("file", WRONG, ids=lambda file: file.stem)
def test_corpus(file: Path, tmp_path: Path) -> None:
    """The kind of the finding, and its line where the file marks one."""
    (number, code), kind = next(
        ((i, line), match[1])
        for i, line in enumerate(file.read_text().splitlines(), 1)
        if (match := re.search(r"// expect: ([\w-]+)$", line))
    )
    report = run_wrong(file, tmp_path)
    told = "\n".join(describe(report))
    if kind == "nothing":
        assert not report.findings, told
        return
    (finding,) = report.findings
    assert finding.kind == kind, told
    assert finding.cure
    if not code.startswith("//"):
        assert finding.place is not None, told
        assert (finding.place.line, finding.place.code) == (number, code.strip()), told
        assert f"kernel.cu:{number} | " in told


def test_both_parties_of_a_race(tmp_path: Path) -> None:
    (finding,) = run_wrong(Path(__file__).with_name("wrong") / "gemm_no_second_barrier.cu", tmp_path).findings
    assert finding.own is not None
    assert finding.other is not None
    assert finding.other.place is not None
    assert "w_tile[ty][tx] = " in finding.other.place.code
    assert finding.own.thread != finding.other.thread
    assert finding.own.block == finding.other.block
    assert finding.array == "w_tile[0][0]"
    assert "__syncthreads()" in finding.cure


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("direct_mirrored_filter", "the filter is mirrored"),
        ("gemm_last_tile_missing", "after 32 of its 45 terms"),
        ("direct_last_channel_missing", "the last input channel is left out"),
        ("gemm_swapped_filter_sides", "w[s * R + r] for w[r * S + s]"),
        ("direct_grid_too_small", "p >= 7 (output row)"),
    ],
)
def test_hint(name: str, sentence: str, tmp_path: Path) -> None:
    (finding,) = run_wrong(Path(__file__).with_name("wrong") / f"{name}.cu", tmp_path).findings
    assert any(sentence in note for note in finding.notes), finding


class TestVerb:
    def test_clean(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        out = tmp_path / "verdict.json"
        assert main(["check", "--impl", "m2", "--shapes", "1,1,4,5,2,3,2", "--json", str(out)]) == 0
        assert "no findings" in capsys.readouterr().out
        verdict = json.loads(out.read_text())
        assert verdict["clean"]
        assert verdict["shapes"][0]["W"] == 5

    def test_findings(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        """A copy of m2 without its second barrier, as a student would hand it in."""
        folder, out = tmp_path / "mine", tmp_path / "verdict.json"
        shutil.copytree(find("m2").folder, folder)
        kernel = folder / "kernel.cu"
        text = kernel.read_text()
        kernel.write_text(text.replace("    __syncthreads();  // the tiles have been read\n", ""))
        assert kernel.read_text() != text
        shapes = ["1,3,6,7,2,3,3", "2,3,6,7,2,3,3"]
        assert main(["check", "--impl", str(folder), "--json", str(out), "--shapes", *shapes]) == 1
        told = capsys.readouterr().out
        assert "1. race: " in told
        assert "2. " not in told  # met at both shapes, told once
        (finding,) = json.loads(out.read_text())["findings"]
        assert finding["kernel"] == "gemm"
        assert len(finding["shapes"]) == 2

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--impl", "cpu"], "it has no kernels to check"),
            (["--impl", "m1", "--json", "/no/such/folder/x.json", "--shapes", "1,1,1,1,1,1,1"], "--json"),
        ],
    )
    def test_wrong_use(self, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", *words]) == 2
        assert message in capsys.readouterr().err

    def test_shape_that_is_none(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit, match="2"):
            main(["check", "--impl", "m1", "--shapes", "1,2,3"])
        assert "seven integers" in capsys.readouterr().err


@pytest.mark.parametrize("name", CHECKABLE)
def test_no_false_finding(name: str) -> None:
    report = check(find(name), SMALL)
    assert not report.findings, "\n".join(describe(report))
    assert not any(result.refused for result in report.results)
