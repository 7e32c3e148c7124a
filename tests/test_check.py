"""Checked mode finds nothing in correct kernels, and the right kind and line in wrong kernels."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from check_plans import direct
from shipped import CHECKABLE, SMALL, small_problem
from wrong_kernels import NAMES, SHAPE, expected, marked, run_wrong, source_of

from mini_dnn.checking.check import check
from mini_dnn.checking.results import LEAST
from mini_dnn.checking.schedules import SCHEDULES
from mini_dnn.cli import main
from mini_dnn.cli.check import describe
from mini_dnn.ops.conv2d import LONG_SUM, OPERATION, ConvShape, conv2d_bound, conv2d_float64, large_sums
from mini_dnn.ops.hints import hint
from mini_dnn.ops.softmax import Rows
from mini_dnn.variant import Variant, find

HIDDEN = [name for name in NAMES if marked(source_of(name), "clean in order")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_corpus(name: str, tmp_path: Path) -> None:
    """Each finding has the expected kind, and the expected line if the file marks one."""
    source = source_of(name)
    marks = expected(source)
    report = run_wrong(source, tmp_path)
    told = "\n".join(describe(report))
    if marks[0][0] == "nothing":
        assert not report.findings, told
        return
    found = sorted(
        (f.kind, f.place.line, f.place.code) if f.place else (f.kind, 0, "") for f in report.findings
    )
    anywhere = [
        (kind, 0, "") if marks[0][0] == "endless" and not marks[0][1] else (kind, *at) for kind, *at in found
    ]
    assert anywhere == sorted(marks), told
    assert all(f.cure for f in report.findings)
    for _, number, _ in marks:
        assert not number or f"kernel.cu:{number} | " in told


@pytest.mark.parametrize("name", HIDDEN)
def test_mistakes_that_luck_hides(name: str, tmp_path: Path) -> None:
    """Kernels that pass in one order of threads and fail in the others."""
    source = source_of(name)
    order = marked(source, "clean in order")
    report = run_wrong(source, tmp_path, order)
    assert not report.findings, "\n".join(describe(report))
    for other in set(SCHEDULES) - set(order):
        assert run_wrong(source, tmp_path, [other]).findings, other
    told = "\n".join(describe(run_wrong(source, tmp_path)))
    assert f"not found in {order[0]} order: found when blocks and threads run in reverse order" in told


def test_the_random_order_is_that_of_the_seed(tmp_path: Path) -> None:
    def told(seed: int) -> str:
        variant = Variant("conv2d", "", direct(), folder=tmp_path, name="twice")
        report = check(variant, [SHAPE], seed, schedules=["random"])
        return "\n".join(describe(report)).rpartition("\n")[0]

    # All threads of a block write one element; the order decides which two are noticed first.
    (tmp_path / "kernel.cu").write_text(
        'extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H,\n'
        "    int W, int M, int R, int S) { y[blockIdx.x] = threadIdx.x; }\n"
    )
    assert told(1) == told(1)
    assert len({told(seed) for seed in range(4)}) > 1


def test_both_parties_of_a_race(tmp_path: Path) -> None:
    (finding,) = run_wrong(source_of("gemm_no_second_barrier"), tmp_path).findings
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
    (finding,) = run_wrong(source_of(name), tmp_path).findings
    assert any(sentence in note for note in finding.notes), finding


def test_hint_of_a_lower_precision() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((2, 2, 9, 21), (3, 2, 2, 5)))
    bound = conv2d_bound(x, w, "fp16_sum")
    y = conv2d_float64(x, w) + 0.05 * bound * rng.standard_normal(bound.shape)

    def told() -> str:
        return hint(OPERATION, ConvShape.of(x, w), {"x": x, "w": w}, {"y": y}, "fp32")

    assert "the result has the accuracy of fp16_sum, not of fp32" in told()
    y[0, 1, 2, 3] += 100
    assert "accuracy" not in told()
    y[:] = conv2d_float64(x, w) + 0.5 * bound  # within the bound, but not the result of rounding
    assert "accuracy" not in told()


def misread(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The kernel's loops with Q in the place of W."""
    (N, C, H, W), (M, _, R, S) = x.shape, w.shape
    P, Q = H - R + 1, W - S + 1
    y, flat = np.zeros((N, M, P, Q)), x.ravel()
    for n, m, p, q in np.ndindex(y.shape):
        for c, r, s in np.ndindex(C, R, S):
            y[n, m, p, q] += flat[((n * C + c) * H + p + r) * Q + q + s] * w[m, c, r, s]
    return y


@pytest.mark.parametrize(
    ("mistaken", "words"),
    [
        (misread, "rows of x are Q elements apart"),
        (lambda x, w: conv2d_float64(x, w).swapaxes(0, 1).reshape(2, 3, 5, 4), "channels are exchanged"),
    ],
)
def test_hint_of_a_wrong_index(mistaken: Callable[..., np.ndarray], words: str) -> None:
    shape = ConvShape(2, 2, 6, 7, 3, 2, 4)
    arrays = OPERATION.inputs(shape, seed=0)
    assert words in hint(OPERATION, shape, arrays, {"y": mistaken(**arrays)}, "fp32")


def test_what_no_half_holds_is_no_rounding_to_half() -> None:
    """The bound of long sums in half precision is wide, so other wrong results may lie within it."""
    arrays = large_sums(LONG_SUM, "fp32", np.random.default_rng(0))
    y = conv2d_float64(arrays["x"], arrays["w"]) + 100
    assert y.max() > np.finfo(np.float16).max
    assert "accuracy" not in hint(OPERATION, LONG_SUM, arrays, {"y": y}, "fp32")


class TestVerb:
    def test_clean(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        out = tmp_path / "verdict.json"
        assert main(["check", "--impl", "m2", "--shapes", "1,1,4,5,2,3,2", "--json", str(out)]) == 0
        assert "no findings at 1 shape (" in capsys.readouterr().out
        verdict = json.loads(out.read_text())
        assert verdict["clean"]
        assert verdict["shapes"][0]["W"] == 5

    def test_findings(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        """A copy of m2 without its second barrier, as a student might submit it."""
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
        assert "2. " not in told  # found at both shapes, but reported once
        (finding,) = json.loads(out.read_text())["findings"]
        assert finding["kernel"] == "gemm"
        assert len(finding["shapes"]) == 2

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--impl", "cpu"], "it has no kernels to check"),
            (["--impl", "m1", "--json", "/no/such/folder/x.json", "--shapes", "1,1,1,1,1,1,1"], "--json"),
            (
                ["--impl", "m1", "--shapes", "1000000,64,9999,9999,1,1,1"],
                "does not fit in this machine's memory",
            ),
            (["--impl", "m1", "--shapes", f"{10**30},1,1,1,1,1,1"], "does not fit in this machine's memory"),
        ],
    )
    def test_wrong_use(self, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", *words]) == 2
        assert message in capsys.readouterr().err

    def test_text_that_is_not_a_shape(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "--impl", "m1", "--shapes", "1,2,3"]) == 2
        told = capsys.readouterr().err
        assert (
            "'1,2,3' does not have the form N,C,H,W,M,R,S, such as 3,3,19,37,17,3,5: found 3 values" in told
        )

    def test_text_that_is_not_a_seed(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit, match="2"):
            main(["check", "--impl", "m1", "--seed", "-1"])
        assert "expected an integer of 0 or more" in capsys.readouterr().err


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CHECKABLE)
def test_no_false_finding(name: str) -> None:
    report = check(find(name), [small_problem(name)])
    assert report.clean or report.ran[0].solver, "\n".join(describe(report))
    assert not report.findings, "\n".join(describe(report))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CHECKABLE[2::48])  # each takes seconds; the test above covers all of them
def test_no_false_finding_at_several_problems(name: str) -> None:
    variant = find(name)
    among = [*variant.operation.check, *variant.operation.spare]
    taken = [problem for problem in among if not variant.limit_for(problem)][:4]
    report = check(variant, SMALL if variant.op == "conv2d" else taken)
    assert report.clean, "\n".join(describe(report))
    assert variant.op != "conv2d" or not any(result.refused for result in report.results)


# These variants leave most of the problems to other variants
LARGE = ("gemm/v12_eighths", "gemm/v14_mixed", "gemm/v15_idle", "gemm/v16_pingpong")


@pytest.mark.parametrize("name", [name for name in CHECKABLE if name not in LARGE])
def test_enough_problems_run_kernels_of_the_variant_itself(name: str) -> None:
    variant = find(name)
    operation = variant.operation
    among = [*operation.check, *operation.spare, *operation.particular]
    own = [p for p in among if not variant.limit_for(p) and variant.solver(p) is variant]
    assert len(own) >= LEAST


def test_kernels_of_another_variant_are_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text("// nobody launches anything of this file\n")
    (tmp_path / "variant.py").write_text(
        "from mini_dnn.variant import Call, Variant\n"
        "def plan(p):\n"
        "    return [Call('softmax/v1_warp', p, {name: name for name in p.arrays})]\n"
        "VARIANT = Variant(op='softmax', idea='', plan=plan)\n"
    )
    report = check(find(tmp_path), [Rows(3, 7)])
    assert not report.findings
    assert not report.enough
    assert [result.solver for result in report.ran] == ["softmax/v1_warp"]
    told = describe(report)
    assert told[0] == "clean           3 rows of 7, by softmax/v1_warp"
    assert "no findings at 1 shape, all of them by the kernels of other variants, but a verdict" in told[-1]
