"""Students' kernels for square filters only: a correct kernel, and typical mistakes."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sampling import some_of

from mini_dnn.checking.check import check
from mini_dnn.checking.results import LEAST, Report
from mini_dnn.checking.schedules import SCHEDULES
from mini_dnn.cli import main
from mini_dnn.cli.check import describe
from mini_dnn.device.finding import Finding
from mini_dnn.ops import conv2d
from mini_dnn.ops.conv2d import LAYERS, OPERATION
from mini_dnn.variant import find

KERNEL = """\
extern "C" __global__ void conv(const float* x, const float* w, float* y, int C, int H, int W, int M, int K) {
  extern __shared__ float tile[];
  const int P = H - K + 1, Q = W - K + 1, side = TILE + K - 1;
  const int tiles = (Q + TILE - 1) / TILE;
  const int p0 = blockIdx.x / tiles * TILE, q0 = blockIdx.x % tiles * TILE;
  const int m = blockIdx.y, n = blockIdx.z, p = p0 + threadIdx.y, q = q0 + threadIdx.x;
  float acc = 0.0f;
  for (int c = 0; c < C; c++) {
    for (int i = threadIdx.y; i < side; i += TILE)
      for (int j = threadIdx.x; j < side; j += TILE) {
        const bool inside = p0 + i < H && q0 + j < W;
        tile[i * side + j] = inside ? x[((n * C + c) * H + p0 + i) * W + q0 + j] : 0.0f;
      }
    __syncthreads();  // the tile is complete
    for (int r = 0; r < K; r++)
      for (int s = 0; s < K; s++)
        acc += tile[(threadIdx.y + r) * side + threadIdx.x + s] * w[((m * C + c) * K + r) * K + s];
    __syncthreads();  // the tile has been read
  }
  if (p < P && q < Q) y[((n * M + m) * P + p) * Q + q] = acc;
}
"""
VARIANT = """\
from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

TILE = 16


def plan(s: ConvShape) -> list[Launch]:
    grid = (ceil_div(s.P, TILE) * ceil_div(s.Q, TILE), s.M, s.N)
    shared_bytes = 4 * (TILE + s.R - 1) ** 2
    return [Launch("conv", grid, (TILE, TILE), ("x", "w", "y", s.C, s.H, s.W, s.M, s.R), shared_bytes)]


VARIANT = Variant(op="conv2d", idea="", plan=plan, defines={"TILE": TILE}REFUSES)
"""
REFUSES = ', refuses=lambda s: "" if s.R == s.S else "square filters only"'


def write(folder: Path, refuses: bool, kernel: str = KERNEL, variant: str = VARIANT) -> Path:
    (folder / "kernel.cu").write_text(kernel)
    (folder / "variant.py").write_text(variant.replace("REFUSES", REFUSES if refuses else ""))
    return folder


KINDS = ("says nothing", "refuses")  # what a kernel does with other filters
LAYERS_OF_ONE = [layer.with_batch(1) for layer in LAYERS.values()]


@dataclass(frozen=True)
class Mistake:
    """A change of the kernel or of its plan, and the expected finding."""

    old: str
    new: str
    kinds: tuple[str, ...]  # one of these is found, on the line that contains `at`, or on no line
    at: str = ""
    says: str = ""  # in a note, if a result is wrong


FIRST, SECOND = (
    "    __syncthreads();  // the tile is complete\n",
    "    __syncthreads();  // the tile has been read\n",
)
USE, LOAD, STORE = "acc += tile[", "tile[i * side + j] =", "y[((n * M + m)"
MISTAKES = {
    "no first barrier": Mistake(FIRST, "", ("race", "uninitialised"), USE),
    "no second barrier": Mistake(SECOND, "", ("race",), USE),
    "an early return": Mistake(
        "  float acc = 0.0f;\n",
        "  if (p >= P || q >= Q) return;\n  float acc = 0.0f;\n",
        ("uninitialised",),
        USE,
    ),
    "a barrier in a branch": Mistake(
        FIRST,
        "    if (p < P && q < Q) __syncthreads();  // the tile is complete\n",
        ("divergence",),
        FIRST.strip(),
    ),
    "a tile without its halo": Mistake("(TILE + s.R - 1) ** 2", "TILE**2", ("out-of-bounds",), LOAD),
    "each thread loads once": Mistake("j < side; j += TILE", "j < TILE; j += TILE", ("uninitialised",), USE),
    "cells outside of the image are left": Mistake(
        "tile[i * side + j] = inside ? ",
        "if (inside) tile[i * side + j] = !false ? ",
        ("uninitialised",),
        USE,
    ),
    "no check of the load": Mistake("p0 + i < H && q0 + j < W", "true", ("out-of-bounds",), LOAD),
    "no check of the store": Mistake("if (p < P && q < Q) y", "y", ("race", "out-of-bounds"), STORE),
    "a wrong pitch of the output": Mistake(
        "* P + p) * Q + q]", "* P + p) * W + q]", ("race", "out-of-bounds"), STORE
    ),
    "rows of the tile overlap": Mistake(
        "side = TILE + K - 1;", "side = TILE;", ("race", "uninitialised"), USE
    ),
    "a grid that is too small": Mistake(
        "ceil_div(s.P, TILE) * ceil", "s.P // TILE * ceil", ("launch",), "grid, (TILE"
    ),
    "a mirrored filter": Mistake(
        "K + r) * K + s]", "K + K - 1 - r) * K + K - 1 - s]", ("wrong",), says="is mirrored"
    ),
    "a channel too few": Mistake(
        "c < C; c++", "c < C - 1; c++", ("wrong",), says="last input channel is left out"
    ),
    "one image for all": Mistake(
        "x[((n * C + c)", "x[((0 * C + c)", ("wrong",), says="image 0 is used for all"
    ),
}


def line_of(words: str, *texts: str) -> int:
    """The number of the only line that contains these words."""
    (number,) = (i for text in texts for i, line in enumerate(text.splitlines(), 1) if words in line)
    return number


def lines(finding: Finding) -> list[int | None]:
    """The lines of both sides; None if the finding has no line."""
    places = [party.place for party in (finding.own, finding.other) if party and party.place]
    return [place.line for place in places] or [None]


def told(report: Report) -> str:
    return "\n".join(describe(report))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the course's layers, which take most of the time: the smaller problems show every mistake."""
    spare = tuple(problem for problem in OPERATION.spare if problem.with_batch(1) not in LAYERS_OF_ONE)
    monkeypatch.setattr(conv2d, "OPERATION", replace(OPERATION, spare=spare))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("name", "kind"), some_of(MISTAKES, KINDS, one_of=2))
def test_mistakes(name: str, kind: str, tmp_path: Path) -> None:
    assert_found(name, kind == "refuses", tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "kind"), [(name, KINDS[at % 2]) for at, name in enumerate(list(MISTAKES)[::8])]
)
def test_mistakes_at_all_problems(name: str, kind: str, tmp_path: Path) -> None:
    assert_found(name, kind == "refuses", tmp_path)


def assert_found(name: str, refuses: bool, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    assert KERNEL.count(mistake.old) + VARIANT.count(mistake.old) == 1
    kernel, variant = (text.replace(mistake.old, mistake.new) for text in (KERNEL, VARIANT))
    # The result is equally wrong in each order
    orders = SCHEDULES[:1] if mistake.kinds == ("wrong",) else SCHEDULES
    report = check(find(write(tmp_path, refuses, kernel, variant)), schedules=orders)
    assert not report.clean
    assert len(report.ran) >= LEAST
    line = line_of(mistake.at, kernel, variant) if mistake.at else None
    found = [  # a finding of its own, or one that was attributed to another cause
        one
        for f, problems in report.findings.items()
        for one in (f, *f.effects)
        if one.kind in mistake.kinds and line in lines(one) and any(p.R == p.S for p in problems)
    ]
    assert found, told(report)
    own = [f for f in found if f in report.findings]  # findings with another cause keep no notes
    assert not mistake.says or not own or any(mistake.says in n for f in own for n in f.notes), told(report)
    assert not any("refuses=" in note for f in found for note in f.notes), told(report)


@pytest.mark.exhaustive
def test_a_correct_kernel_that_says_nothing(tmp_path: Path) -> None:
    """The kernel fails if R != S, and each finding says so. It passes for all other problems."""
    report = check(find(write(tmp_path, refuses=False)))
    trials = [trial.problem for trial in OPERATION.trials]
    assert [result.problem for result in report.results] == [*OPERATION.check, *trials, *OPERATION.spare]
    assert all(bool(result.finding) == (result.problem.R != result.problem.S) for result in report.results)
    assert len(report.findings) > 1
    note = "it occurs only at problems with R != S (the filter is not square), and all of these fail"
    assert all(any(note in words for words in finding.notes) for finding in report.findings)


@pytest.mark.exhaustive
def test_a_correct_kernel_that_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused problems are replaced, and the report counts the problems that were run."""
    out = tmp_path / "verdict.json"
    assert main(["check", "--impl", str(write(tmp_path, refuses=True)), "--json", str(out)]) == 0
    told = capsys.readouterr().out
    assert "\nnot run: square filters only (2, 3, 5, 4) * (2, 3, 5, 4)" in told
    assert "no findings at 10 shapes; 4 more were not run (seed 0)" in told
    verdict = json.loads(out.read_text())
    assert (verdict["ran"], verdict["enough"], verdict["clean"]) == (10, True, True)
    halos = {(s["R"], s["S"]) for s in verdict["shapes"] if not s["refused"] and s["R"] > 1}
    assert halos == {(3, 3), (5, 5), (7, 7)}
    layers = {(s["C"], s["H"], s["M"]) for s in verdict["shapes"] if not s["refused"] and s["N"] in (2, 3)}
    assert {(1, 86, 4), (4, 40, 16)} <= layers


@pytest.mark.parametrize(
    ("limit", "ran"),
    [
        ("'nothing'", 0),
        ("'' if s.K == 1 else 'one product'", 2),
        ("'' if s.R == s.S and 1 < s.H < 24 else 'no'", 6),
    ],
)
def test_a_kernel_that_refuses_nearly_all(
    limit: str, ran: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = write(tmp_path, refuses=False), tmp_path / "verdict.json"
    text = VARIANT.replace("REFUSES", f", refuses=lambda s: {limit}")
    (folder / "variant.py").write_text(text)
    enough = ran >= LEAST
    assert main(["check", "--impl", str(folder), "--json", str(out)]) == (0 if enough else 1)
    told = capsys.readouterr().out
    verdict = json.loads(out.read_text())
    assert (verdict["ran"], verdict["enough"], verdict["clean"]) == (ran, enough, enough)
    where = f"no findings at {ran} shape{'s' * (ran != 1)}; {14 - ran} more were not run"
    assert where in told
    assert (f"not enough was checked: {where}, but a verdict needs {LEAST}" in told) != enough


def test_shapes_that_were_asked_for_are_enough(tmp_path: Path) -> None:
    """A user who names shapes has chosen them, but at least one must run."""
    folder = str(write(tmp_path, refuses=True))
    assert main(["check", "--impl", folder, "--shapes", "1,1,6,5,2,3,3"]) == 0
    assert main(["check", "--impl", folder, "--shapes", "1,1,6,5,2,3,2"]) == 1
