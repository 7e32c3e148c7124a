"""Plans with several streams: unordered steps are reported with both lines, and ordered steps pass."""

# ruff: noqa: E501

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mini_dnn.checking.check import check
from mini_dnn.checking.results import Report
from mini_dnn.cli import main
from mini_dnn.cli.check import describe
from mini_dnn.device import Device
from mini_dnn.device.finding import Finding
from mini_dnn.errors import VariantError
from mini_dnn.grading import decoding, plans
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.running.runner import run
from mini_dnn.variant import Record, Variant, find
from mini_dnn.variant.export import expand

SHAPE = ConvShape(4, 1, 5, 9, 1, 1, 1)
KERNEL = """\
__constant__ float factor[1];
__device__ float kept[1024];
__device__ int count;
#define I (blockIdx.x * blockDim.x + threadIdx.x)
extern "C" __global__ void scale(const float* x, const float* w, float* y, int n) {
  if (I < n) y[I] = w[0] * x[I];
}
extern "C" __global__ void scale_part(const float* x, const float* w, float* y, int first, int n) {
  if (I < n) y[first + I] = w[0] * x[first + I];
}
extern "C" __global__ void scale_by_constant(const float* x, float* y, int n) {
  if (I < n) y[I] = factor[0] * x[I];
}
extern "C" __global__ void keep(const float* x, int n) {
  if (I < n) kept[I] = x[I];
}
extern "C" __global__ void scale_kept(const float* w, float* y, int n) {
  if (I < n) y[I] = w[0] * kept[I];
}
extern "C" __global__ void clear(float* y, int n) {
  if (I < n) y[I] = 0.0f;
}
extern "C" __global__ void add(const float* x, const float* w, float* y, float share, int n) {
  if (I < n) atomicAdd(&y[I], share * w[0] * x[I]);
}
extern "C" __global__ void tally() { atomicAdd(&count, 1); }
"""
VARIANT = """\
from mini_dnn.variant import CopyIn, CopyOut, CopyToSymbol, Images, Launch, Record, Variant, Wait, ceil_div


def launch(kernel, n, args, stream=0):
    return Launch(kernel, (ceil_div(n, 64),), (64,), args, stream=stream)


def plan(s):
    n, half = s.N * s.H * s.W, s.N // 2
    whole = Images("x", 0, s.N)
    steps = []
{steps}
    return steps


VARIANT = Variant("conv2d", "", plan, scratch=lambda s: {{"t": (s.N, s.H, s.W), "u": (s.N, s.H, s.W)}})
"""
RIGHT = {
    "recorded and waited for": """
    steps += [CopyIn(whole, 1), Record("x_is_there", 1), Wait("x_is_there", 0)]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n)), Record("y_is_there")]
    steps += [Wait("y_is_there", 2), CopyOut(Images("y", 0, s.N), 2)]
""",
    "halves by themselves": """
    for part in range(2):
        x, y = (Images(name, part * half, (part + 1) * half) for name in "xy")
        steps += [CopyIn(x, part), launch("scale", n // 2, (x, "w", y, n // 2), part), CopyOut(y, part)]
""",
    "halves by an offset": """
    steps = [launch("scale_part", n // 2, ("x", "w", "y", part * n // 2, n // 2), part) for part in range(2)]
""",
    "through a third stream": """
    steps += [launch("clear", n, ("t", n), 1), Record("a", 1), Wait("a", 2), Record("b", 2), Wait("b", 0)]
    steps += [launch("scale", n, ("x", "w", "t", n)), launch("scale", n, ("t", "w", "u", n))]
    steps += [launch("scale", n, ("x", "w", "y", n))]
""",
    "atomics on both sides": """
    steps += [launch("clear", n, ("y", n)), Record("is_clear"), Wait("is_clear", 1)]
    steps += [launch("add", n, ("x", "w", "y", 0.5, n), part) for part in range(2)]
    steps += [launch("tally", 1, (), part) for part in range(2)]
""",
    "an event that is recorded twice": """
    for part in range(2):
        x, y = (Images(name, part * half, (part + 1) * half) for name in "xy")
        steps += [CopyIn(x, 1), Record("here", 1), Wait("here")]
        steps += [launch("scale", n // 2, (x, "w", y, n // 2)), CopyOut(y)]
""",
    "a variable that is filled first": """
    steps += [CopyToSymbol("factor", "w", 1), Record("filled", 1), Wait("filled")]
    steps += [launch("scale_by_constant", n, ("x", "y", n))]
""",
}
WRONG = {
    "launch before its copy": """
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]  # expect: race
    steps += [CopyIn(whole, 1)]
    steps += [CopyOut(Images("y", 0, s.N))]
""",
    "launch beside its copy": """
    steps += [CopyIn(whole, 1)]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]  # expect: race
    steps += [CopyOut(Images("y", 0, s.N))]
""",
    "copy out on another stream": """
    steps += [CopyIn(whole)]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]
    steps += [CopyOut(Images("y", 0, s.N), 1)]  # expect: race
""",
    "copy out before the launch, on another stream": """
    steps += [CopyIn(whole)]
    steps += [CopyOut(Images("y", 0, s.N), 1)]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]  # expect: race
""",
    "scratch shared by streams": """
    for part in range(2):
        x, y, m = Images("x", part * half, (part + 1) * half), Images("y", part * half, (part + 1) * half), n // 2
        steps += [
            Launch("add", (1,), (1,), (x, "w", y, 0.0, 0), stream=part),
            Launch("keep", (ceil_div(m, 64),), (64,), (x, m), stream=part),  # expect: race
            Launch("scale_kept", (ceil_div(m, 64),), (64,), ("w", y, m), stream=part),
        ]
""",
    "a scratch buffer shared by streams": """
    for part in range(2):
        x, y, m = Images("x", part * half, (part + 1) * half), Images("y", part * half, (part + 1) * half), n // 2
        steps += [
            Launch("scale", (ceil_div(m, 64),), (64,), (x, "w", "t", m), stream=part),  # expect: race
            Launch("scale", (ceil_div(m, 64),), (64,), (x, "w", y, m), stream=part),
        ]
""",
    "a wait that comes too early": """
    steps += [CopyIn(whole, 1), Record("early", 1), Wait("early"), launch("clear", n, ("t", n), 1)]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("t", "w", "y", n))]  # expect: race
    steps += [CopyOut(Images("y", 0, s.N))]
""",
    "a record that comes too early": """
    steps += [Record("x_is_there", 1), CopyIn(whole, 1), Wait("x_is_there")]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]  # expect: race
    steps += [CopyOut(Images("y", 0, s.N))]
""",
    "a wait on the wrong stream": """
    steps += [CopyIn(whole, 1), Record("x_is_there", 1), Wait("x_is_there", 2)]
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]  # expect: race
    steps += [CopyOut(Images("y", 0, s.N))]
""",
    "a wait for what nobody records": """
    steps += [CopyIn(whole, 1)]
    steps += [Wait("x_is_there")]  # expect: launch
    steps += [Record("x_is_there", 1), launch("scale", n, ("x", "w", "y", n)), CopyOut(Images("y", 0, s.N))]
""",
    "a variable that is filled beside": """
    steps += [CopyToSymbol("factor", "w", 1)]
    steps += [Launch("scale_by_constant", (ceil_div(n, 64),), (64,), ("x", "y", n))]  # expect: race
""",
    "parts that overlap by one image": """
    for part in range(2):
        first, last = (0, half + 1) if not part else (half, s.N)
        x, y, m = Images("x", first, last), Images("y", first, last), (last - first) * s.H * s.W
        steps += [Launch("scale", (ceil_div(m, 64),), (64,), (x, "w", y, m), stream=part)]  # expect: race
""",
    "an atomic beside a plain write": """
    steps += [Launch("clear", (ceil_div(n, 64),), (64,), ("y", n), stream=1)]
    steps += [Launch("add", (ceil_div(n, 64),), (64,), ("x", "w", "y", 1.0, n))]  # expect: race
""",
    "copy out before the launch, on its stream": """
    steps += [CopyIn(whole)]
    steps += [CopyOut(Images("y", 0, s.N))]  # expect: unwritten
    steps += [launch("scale", n, ("x", "w", "y", n))]
""",
    "launch before its copy, on its stream": """
    steps += [Launch("scale", (ceil_div(n, 64),), (64,), ("x", "w", "y", n))]  # expect: uninitialised
    steps += [CopyIn(whole)]
    steps += [CopyOut(Images("y", 0, s.N))]
""",
}


@dataclass(frozen=True)
class Folder:
    """One kernel file for all plans, so that it is compiled only once."""

    path: Path

    def variant(self, steps: str) -> Variant:
        (self.path / "variant.py").write_text(VARIANT.format(steps=steps.strip("\n")))
        return find(self.path)

    def check(self, steps: str) -> Report:
        return check(self.variant(steps), [SHAPE], schedules=["forward"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    path = tmp_path_factory.mktemp("streams")
    (path / "kernel.cu").write_text(KERNEL)
    return Folder(path)


def only(report: Report) -> Finding:
    (finding,) = report.findings
    return finding


@pytest.mark.parametrize("name", RIGHT)
def test_ordered_steps_have_no_finding(name: str, folder: Folder) -> None:
    report = folder.check(RIGHT[name])
    assert report.clean, "\n".join(describe(report))


@pytest.mark.parametrize("name", WRONG)
def test_unordered_steps_are_found(name: str, folder: Folder) -> None:
    finding = only(folder.check(WRONG[name]))
    lines = (folder.path / "variant.py").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if "# expect: " in line]
    assert finding.place, finding
    assert (finding.kind, finding.place.file, finding.place.line) == (
        re.sub(".*# expect: ", "", lines[number - 1]),
        "variant.py",
        number,
    ), finding
    assert finding.cure


def test_words_of_a_race(folder: Folder) -> None:
    """The message names the steps, the streams, the array, and what would order the steps."""
    finding = only(folder.check(WRONG["launch beside its copy"]))
    assert finding.what == (
        "step 2, the launch of scale on stream 0, reads x[n=0, c=0, h=0, w=0] of global array x (4, 1, 5, 9), "
        "which step 1, the copy of x[0:4] to the GPU on stream 1, writes: nothing orders stream 0 after stream 1"
    )
    assert "Record('x_is_done', 1) after step 1 and Wait('x_is_done', 0) before step 2" in finding.cure
    assert finding.other is not None
    assert finding.other.place is not None
    assert "CopyIn(whole, 1)" in finding.other.place.code


def test_run_refuses_to_wait_in_vain(folder: Folder, emulator: Device) -> None:
    variant = folder.variant(WRONG["a wait for what nobody records"])
    arrays = {"x": np.ones(SHAPE.x, np.float32), "w": np.ones(SHAPE.w, np.float32)}
    with pytest.raises(VariantError, match="stream 0 waits for the event 'x_is_there', which no step before"):
        run(variant, SHAPE, arrays, emulator)


def test_a_plan_with_events_travels(folder: Folder) -> None:
    """It is sent to the grader, written in words, and converted to a program to take home."""
    variant = folder.variant(RIGHT["recorded and waited for"])
    planned = variant.planned(SHAPE, 1 << 16)
    head = plans.Head.of(variant)
    decoded = decoding.decode(plans.encode(planned), SHAPE, head, planned.source)
    assert decoded.steps == planned.steps
    assert Record("x_is_there", 1) in decoded.steps
    told = expand(variant, SHAPE, "a test", 1 << 16)
    assert (
        "//   stream 1: record the event x_is_there\n//   stream 0: wait for the event x_is_there\n" in told
    )


def test_a_plan_with_events_goes_home(folder: Folder, tmp_path: Path) -> None:
    folder.variant(RIGHT["recorded and waited for"])
    words = [
        "show",
        str(folder.path),
        "--expand",
        "--shapes",
        SHAPE.text,
        "--standalone",
        str(tmp_path / "home"),
    ]
    assert main(words) == 0
    program = (tmp_path / "home" / "main.cu").read_text()
    assert '    stream.record("x_is_there", 1);\n    stream.wait("x_is_there", 0);\n' in program


@pytest.mark.gpu
@pytest.mark.parametrize("name", RIGHT)
def test_on_a_gpu(name: str, folder: Folder, cuda: Device) -> None:
    rng = np.random.default_rng(0)
    arrays = {"x": rng.standard_normal(SHAPE.x, np.float32), "w": rng.standard_normal(SHAPE.w, np.float32)}
    y = run(folder.variant(RIGHT[name]), SHAPE, arrays, cuda).y
    np.testing.assert_allclose(y, arrays["x"] * arrays["w"][0, 0, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("step", [{"record": "a b", "stream": 0}, {"wait": "x", "stream": 64}])
def test_events_that_are_none(step: dict[str, object], folder: Folder) -> None:
    variant = folder.variant(RIGHT["recorded and waited for"])
    values = plans.encode_values(variant.planned(SHAPE, 1 << 16))
    with pytest.raises(VariantError, match=r"is not a valid name in C|a stream has 64"):
        decoding.decode_values({**values, "steps": [step]}, SHAPE, plans.Head.of(variant), variant.source)


def test_a_name_of_an_event_is_a_word(folder: Folder) -> None:
    variant = folder.variant("    steps = [Record('a b')]")
    with pytest.raises(VariantError, match='it must be a name such as "x_is_there"'):
        variant.planned(SHAPE, 1 << 16)
