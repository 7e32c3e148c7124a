"""The comparison with libraries, on the emulator and without the libraries themselves."""

import json
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import peers
import peers_common
import peers_cupy
import peers_floors
import peers_ours
import pytest
from peers_common import TIMING, Budget, Case, Prepared, Session
from peers_floors import CUTS, Cut, Mix
from peers_problems import Subject, layers, network, spread

from mini_dnn.datasets import ImageSet, draw
from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.device.nvcc import build_cubin, find_nvcc
from mini_dnn.errors import CheckError
from mini_dnn.measuring.inference import Program
from mini_dnn.measuring.strict import checksum
from mini_dnn.nn.models import lenet
from mini_dnn.nn.weights import WeightsInfo
from mini_dnn.running.timing import WINDOW, Timing
from mini_dnn.variant import find, names

BATCH = 2


class TickingClock:
    """A counter as a clock: the time is the number of records between two events."""

    has_clock = True

    def __init__(self) -> None:
        self.flushes = self.records = 0

    def record(self) -> int:
        self.records += 1
        return self.records

    def elapsed_ms(self, start: int, end: int) -> float:
        return float(end - start)

    def flush_cache(self) -> None:
        self.flushes += 1

    def synchronize(self) -> None:
        pass


def a_program() -> Program:
    """The program with an untrained network and two images."""
    data = ImageSet("synthetic", "test", *draw(BATCH), origin="drawn", note="")
    trained = lenet.build(np.random.default_rng(5))
    return Program(trained, WeightsInfo("synthetic", {}, 5, ""), Path("none.h5"), data)


@pytest.fixture(scope="module")
def subjects() -> list[Subject]:
    return [*layers(BATCH), network(a_program(), BATCH)]


@pytest.fixture
def session() -> Session:
    return Session({"versions": {}}, None)


@pytest.mark.exhaustive
def test_ours_are_checked_and_timed(subjects: list[Subject], session: Session, emulator: Device) -> None:
    variants = peers_ours.variants(["m1", "layers/fused"])
    for case in peers_ours.cases(variants, subjects, emulator):
        clock = TickingClock()
        assert session.attempt(case, clock), session.record["skipped"]
        row = session.rows[-1]
        warm_up = TIMING.warm_up + 2 * WINDOW  # two windows agree at once
        assert clock.flushes - warm_up == row["repeats"] >= 20
        assert row["settled"] is True
        assert row["op_ms"] == row["op_ms_min"] == row["op_ms_max"] == 1.0
        assert 0 < row["relative_error"] < 1e-3
        assert row["variant"] == row["peer"]
        assert len(row["code_hash"]) == len(row["source_hash"]) == 64
    fused = session.rows[3]
    assert (fused["op"], fused["problem"], fused["batch"]) == ("conv2d_relu_pool", "conv2", BATCH)
    found = [(row["what"], row["peer"]) for row in session.rows]
    expected = [("conv1", "m1/direct"), ("conv2", "m1/direct")]
    expected += [("fused1", "layers/fused"), ("fused2", "layers/fused")]
    assert found == expected + [("network", name) for name in names("lenet")]
    sizes = {row["what"]: row["bytes"] for row in session.rows}
    assert sizes["conv1"] == BATCH * (29_584 + 102_400) + 4 * 196
    assert sizes["network"] == subjects[-1].problem.min_bytes


def test_a_wrong_result_gets_no_time(
    subjects: list[Subject], session: Session, capsys: pytest.CaptureFixture
) -> None:
    subject = subjects[0]

    def case(y: np.ndarray) -> Case:
        return Case(
            *("library", "none", subject.what, "fp32", "NCHW", "", 1),
            prepare=lambda: closing_prepared(Prepared(lambda: None, lambda: y)),
            check=lambda found: subject.check_library(found, "fp32"),
        )

    assert session.attempt(case(subject.expected), TickingClock())
    one_pixel, nan = subject.expected.copy(), subject.expected.copy()
    one_pixel[1, 2, 3, 4] += 1
    nan[0, 0, 0, 0] = np.nan
    for y in (one_pixel, nan, np.zeros_like(nan)):
        assert not session.attempt(case(y), TickingClock())
    assert len(session.rows) == 1
    assert [row["wrong"] for row in session.record["skipped"]] == [True] * 3
    assert capsys.readouterr().out.count("WRONG: library none conv1 fp32 NCHW: CheckError") == 3


def closing_prepared(prepared: Prepared) -> Any:
    class Block:
        def __enter__(self) -> Prepared:
            return prepared

        def __exit__(self, *error: object) -> None:
            pass

    return Block()


def test_a_wrong_classification_is_refused(subjects: list[Subject]) -> None:
    subject = subjects[-1]
    probabilities = subject.expected.copy()  # for a batch of 2, all are compared
    assert subject.check_library(probabilities, "fp32")["max_error"] == 0
    with pytest.raises(CheckError, match="elements differ from float64"):
        subject.check_library(probabilities[::-1], "fp16")


def test_ours_are_held_to_the_bound_of_their_operation(subjects: list[Subject]) -> None:
    """An error that norms do not notice: one element is off by more than its own bound."""
    subject = subjects[0]
    found = subject.expected.copy()
    assert subject.check_ours(found, "fp32") == {"relative_error": 0.0, "max_error": 0.0}
    found[0, 0, 0, 0] += 1.01 * subject.bound["fp32"][0, 0, 0, 0]
    assert subject.check_library(found, "fp32")["max_error"] > 0
    with pytest.raises(CheckError, match=r"1 of \d+ elements differ from float64; .* for fp32"):
        subject.check_ours(found, "fp32")
    assert subject.check_ours(found, "fp16")["max_error"] > 0


def test_failure_and_budget_are_named(session: Session, subjects: list[Subject], emulator: Device) -> None:
    (case,) = peers_ours.cases([find("m1")], subjects[:1], emulator)
    name = {"kind": "ours", "peer": "m1/direct", "what": "conv1", "precision": "fp32", "order": "NCHW"}

    def fail() -> Any:
        raise RuntimeError("first line\n\nsecond\n" + "x\n" * 99)

    assert not session.attempt(replace(case, prepare=fail), TickingClock())
    budget = Budget(0.05)
    assert not session.attempt(replace(case, prepare=lambda: time.sleep(5)), TickingClock(), budget)
    assert not session.attempt(case, TickingClock(), budget)  # no budget is left
    reasons = [row.pop("reason") for row in session.record["skipped"]]
    spent = "TimeoutError: the 0.05 s of --budget are spent"
    assert reasons == ["RuntimeError: first line | second | x", spent, spent]
    assert all(row.items() >= name.items() for row in session.record["skipped"])
    assert session.rows == []


MIXES = [(29_584, 102_400), (25_600, 73_984), (48, 80), (4096, 16), (0, 4096)]


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize(("read", "write"), MIXES)
def test_floors_move_every_byte(
    read: int, write: int, cut: Cut, device: Device, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    items = 9
    mix = Mix("mix", read, write, rng.integers(0, 256, (items, read), np.uint8))
    if not cut.fits(mix):
        pytest.skip("fewer than 16 bytes a part")
    monkeypatch.setattr(peers_floors, "CUTS", (cut,))
    with peers_floors._moved(mix, device) as prepared:
        for _ in range(3):  # the counters are 0 again
            prepared.op()
        assert not prepared.result().any()
    whole = np.stack([peers_floors.moved(mix, cut, item) for item in range(items)])
    assert whole.shape == (items, write)
    if read >= write:
        np.testing.assert_array_equal(peers_floors.moved(replace(mix, write=read), cut, 0), mix.source[0])


def test_floors_notice_a_wrong_byte(device: Device, rng: np.random.Generator) -> None:
    mix = Mix("copy", 64, 64, rng.integers(0, 256, (3, 64), np.uint8))
    with peers_floors._copied(mix, device) as prepared:
        prepared.op()
        assert not prepared.result().any()
        mix.source[2, 5] ^= 1
        assert prepared.result().tolist() == [0, 0, 1]
        with pytest.raises(CheckError, match="1 bytes of 3 compared items"):
            peers_floors._check(prepared.result())


def test_nothing_in_checked_mode(rng: np.random.Generator) -> None:
    mix = Mix("mix", 96, 208, rng.integers(0, 256, (40, 96), np.uint8))
    with closing(CheckedEmulator()) as device, peers_floors._moved(mix, device) as prepared:
        prepared.op()
        assert not prepared.result().any()


@pytest.mark.exhaustive
@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")
def test_floors_compile() -> None:
    for lag in {cut.lag for cut in CUTS}:
        assert build_cubin(peers_floors.SOURCE, {"LAG": lag}, "sm_90")[:4] == b"\x7fELF"


def test_floors_have_the_bytes_of_the_operations(subjects: list[Subject]) -> None:
    mixes = {subject.what: peers_floors.mix_of(subject) for subject in subjects}
    sizes = {what: (mix.read, mix.write, mix.items) for what, mix in mixes.items()}
    assert sizes == {
        "conv1": (29_584, 102_400, BATCH),
        "conv2": (25_600, 73_984, BATCH),
        "fused1": (29_584, 25_600, BATCH),
        "fused2": (25_600, 5_184, BATCH),
        "network": (2 * 29_584, 2 * 40, BATCH // 2),  # ten floats are not a multiple of 16 bytes
    }
    for mix in mixes.values():
        fitting = [cut for cut in CUTS if cut.fits(mix)]
        assert len(fitting) >= 3
        assert all(cut.blocks * cut.buffers(mix) * cut.pitch(mix) <= 224 * 1024 for cut in fitting)


@pytest.mark.parametrize("bytes_", [1, 1 << 30], ids=["an image a part", "all at once"])
def test_array_convolutions(subjects: list[Subject], session: Session, bytes_: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(peers_cupy, "UNROLLED_BYTES", bytes_)
    # NumPy's is slow
    monkeypatch.setattr(peers_common, "TIMING", Timing(warm_up=0, repeats=1, max_repeats=1))
    for case in peers_cupy.cases(subjects[:2], np):
        assert session.attempt(case, TickingClock()), session.record["skipped"]
    assert len(session.rows) == 2 * 2 * 2
    assert {row["setting"].split(", ")[-1] for row in session.rows} == {f"{min(bytes_, 2)} images at a time"}


@pytest.mark.exhaustive
def test_a_run_is_written_and_drawn(
    subjects: list[Subject], emulator: Device, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "run.json"
    session = Session(peers.record_of(emulator, "synthetic"), None, out)
    variants = peers_ours.variants(["m1"])
    bench = peers.Bench(emulator, TickingClock(), subjects, variants, budget_s=1.0)
    clocked = {"__getattr__": lambda self, name: getattr(emulator, name)}
    with_clock = type("WithClock", (TickingClock,), clocked)()
    peers.measure(["ours"], replace(bench, device=with_clock), session)
    written = json.loads(out.read_text())
    assert written.pop("sha256") == checksum(msgspec.to_builtins(session.record))
    assert written == msgspec.to_builtins(session.record)
    picture = tmp_path / "run.svg"
    assert peers.main(["--from", str(out), "--picture", str(picture)]) == 0
    assert "drawn" in capsys.readouterr().out
    assert picture.stat().st_size > 1000


def test_libraries_that_are_missing_are_named(
    subjects: list[Subject], session: Session, monkeypatch: Any
) -> None:
    for name in ("torch", "cupy"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "peers_torch", raising=False)
    bench = peers.Bench(None, TickingClock(), subjects, [], 1.0)  # type: ignore[arg-type]
    peers.measure(["cupy", "compile", "torch"], bench, session)
    missing = [row["peer"] for row in session.record["skipped"]]
    assert missing == ["PyTorch (torch)", "CuPy", "PyTorch (compile)"]
    assert all("cannot be imported" in row["reason"] for row in session.record["skipped"])


def test_compared_images_are_all_over_the_batch() -> None:
    assert spread(1).tolist() == [0]
    assert spread(5).tolist() == [0, 1, 2, 3, 4]
    far = spread(10_000)
    assert len(far) == 64
    assert far[0] == 0
    assert far[-1] == 9999
    assert np.diff(far).max() < 200
