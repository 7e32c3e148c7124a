"""Plans with several streams: unordered steps are reported with both lines, and ordered steps pass."""

# ruff: noqa: E501
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from stream_samples import KERNEL, RIGHT, VARIANT, WRONG

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


def test_a_plan_with_events_is_sent_and_written_in_words(folder: Folder) -> None:
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


def test_a_plan_with_events_becomes_a_program(folder: Folder, tmp_path: Path) -> None:
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
def test_invalid_events_are_refused(step: dict[str, object], folder: Folder) -> None:
    variant = folder.variant(RIGHT["recorded and waited for"])
    values = plans.encode_values(variant.planned(SHAPE, 1 << 16))
    with pytest.raises(VariantError, match=r"is not a valid name in C|a stream has 64"):
        decoding.decode_values({**values, "steps": [step]}, SHAPE, plans.Head.of(variant), variant.source)


def test_a_name_of_an_event_is_a_word(folder: Folder) -> None:
    variant = folder.variant("    steps = [Record('a b')]")
    with pytest.raises(VariantError, match='it must be a name such as "x_is_there"'):
        variant.planned(SHAPE, 1 << 16)
