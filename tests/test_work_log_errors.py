"""The work log: commands that end with an error, and variants that are wrong."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pytest
from work_log_entries import log as log

from mini_dnn.cli import main
from mini_dnn.cli.log import logged
from mini_dnn.errors import MiniDnnError, UsageError
from mini_dnn.measuring.work_log import Entry, Tried, read
from mini_dnn.variant import find

WRONG_LATER = """
import numpy as np

from mini_dnn.nn.numpy_conv import conv2d_forward
from mini_dnn.variant import Variant


def wrong_with_two_images(x, w):
    return conv2d_forward(x, w) * np.float32(len(x) != 2)


VARIANT = Variant(op="conv2d", idea="an idea", host=wrong_with_two_images)
"""


def test_a_variant_that_is_wrong_at_a_later_problem_is_not_right(log: Path, tmp_path: Path) -> None:
    """The variants that were right up to then are not said to be wrong."""
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong/variant.py").write_text(WRONG_LATER)
    words = ["bench", "--impl", "cpu", str(tmp_path / "wrong"), "--shapes", "1,1,6,5,2,3,2", "2,1,6,5,2,3,2"]
    assert main([*words, "--budget", "0.01", "--device", "emulator", "--log", str(log)]) == 1
    right, wrong = read(log).entries
    assert (right.variant, right.ok, len(right.results)) == ("m1/cpu", True, 2)
    assert "measured; agrees with float64, until an error ended the command" in right.verdict
    assert (wrong.ok, len(wrong.results)) == (False, 1)
    assert wrong.verdict.startswith("failed: ")
    assert "2,1,6,5,2,3,2" in wrong.verdict


def ended_by(error: BaseException, log: Path, tried: Sequence[str] = (), others: Sequence[str] = ()) -> None:
    """Log a command of these variants that an error ends. The first ones have a result."""
    args = argparse.Namespace(log=log, expect=None, verb="bench")
    with logged(args, [find(name) for name in (*tried, *others)]) as trial:
        for name in tried:
            trial.add(name, Tried(problem="conv1", shape={"N": 1}))
        raise error


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (MiniDnnError("no memory is left"), "failed: no memory is left"),
        (OSError(28, "No space left on device"), "failed: OSError: [Errno 28] No space left on device"),
        (MemoryError("8 GB"), "failed: MemoryError: 8 GB"),
        (RuntimeError("a bug"), "failed: RuntimeError: a bug"),
    ],
)
def test_errors_of_all_kinds_are_logged(error: Exception, verdict: str, log: Path) -> None:
    with pytest.raises(type(error)):
        ended_by(error, log, others=["cpu"])
    (entry,) = read(log).entries
    assert (entry.ok, entry.verdict) == (False, verdict)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BrokenPipeError(), UsageError("a wrong flag")])
def test_what_the_user_ends_is_not_logged(error: BaseException, log: Path) -> None:
    with pytest.raises(type(error)):
        ended_by(error, log, others=["cpu"])
    assert not log.exists()


def test_an_error_is_kept_if_it_cannot_be_logged(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full_disk(path: Path, entry: Entry) -> None:
        raise MiniDnnError(f"--log {path} cannot be written")

    monkeypatch.setattr("mini_dnn.cli.log.append", full_disk)
    with pytest.raises(OSError, match="No space left"):
        ended_by(OSError(28, "No space left on device"), log, others=["cpu"])
    assert f"WARNING: not logged: --log {log} cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        ("m1/direct, conv1: 3 elements differ", ["m1/direct"]),
        ("an access is out of bounds. Find the cause with: run.py check m1/direct", ["m1/direct"]),
        ("m1/direct_2 is unknown", ["m1/tiled_direct"]),
    ],
)
def test_whose_error_it_is(error: str, failed: list[str], log: Path) -> None:
    """If no variant is named, it is that of the variants without a result."""
    with pytest.raises(MiniDnnError):
        ended_by(MiniDnnError(error), log, ["m1/direct"], ["m1/tiled_direct"])
    assert [one.variant for one in read(log).entries if not one.ok] == failed


def test_an_error_of_nobody_is_one_of_all(log: Path) -> None:
    with pytest.raises(MiniDnnError):
        ended_by(MiniDnnError("no memory is left"), log, ["m1/direct", "m1/cpu"])
    assert [one.ok for one in read(log).entries] == [False, False]
