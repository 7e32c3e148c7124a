"""Grade one submission: each of its variants is judged in confined processes."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.emulator.runtime_build import build_runtime
from mini_dnn.errors import DeviceError, MiniDnnError, VariantError
from mini_dnn.grading import checks, log, submitted
from mini_dnn.grading.asked import Rubric, VariantRubric
from mini_dnn.grading.checks import Ground
from mini_dnn.grading.confined.forkserver import ForkServer
from mini_dnn.grading.confined.process import FORBIDDEN, SubmissionError
from mini_dnn.grading.confined.sandbox import FILES_SHOW, Isolation
from mini_dnn.grading.credit import Findings, judge
from mini_dnn.grading.grades import FAILED, ISOLATION, PASSED, SKIPPED, Check, Grade
from mini_dnn.grading.network import Examination
from mini_dnn.grading.subject import DeviceInfo, Subject, look
from mini_dnn.grading.submission import Submission
from mini_dnn.grading.turns import alone_with, turn
from mini_dnn.variant import find

LEAST_FREE_BYTES = 64 << 20
MAX_TEXT = 8000  # the most characters of a check's message
# Addresses above 4 GB are places in memory, not something that an author wrote
ADDRESS = re.compile(r"\b0x[0-9a-f]{9,}")


@dataclass(frozen=True)
class Setting:
    """The settings of a grading run.

    Parameters
    ----------
    out
        The folder for the results.
    device
        ``"cuda"``, ``"emulator"``, or ``"auto"``: the GPU if there is one.
    jobs
        The number of submissions that are graded at the same time.
    data, data_dir
        The data set for the accuracy check.
    data_note
        Why `data` is a substitute, if it is one.
    weak_isolation
        Continue with the available isolation even if the system cannot fully separate submissions.
    """

    rubric: Rubric
    out: Path
    device: str = "auto"
    jobs: int = 1
    data: str = "auto"
    data_dir: Path | None = None
    data_note: str = ""
    weak_isolation: bool = False


class Grader:
    """Grades submissions one after the other. Several threads may use it.

    Parameters
    ----------
    work
        The folder for temporary files.
    beside
        A folder that all graders of a run on this machine share for taking turns; ``work`` by default.

    Raises
    ------
    UsageError, DataError, WeightsError
        The images for the accuracy check cannot be used. No device has been opened.
    DeviceError
        The device cannot be opened, or its kernels could change the clock.
    """

    def __init__(self, setting: Setting, work: Path, beside: Path | None = None) -> None:
        self._setting, self._work, self._beside = setting, work, beside or work
        self._local = threading.local()
        self._servers: list[ForkServer] = []
        self._lock = threading.Lock()
        self._reference_lock = threading.Lock()
        self._reference: float | None = None
        rubric = setting.rubric
        if shutil.which("readelf") is None:
            raise DeviceError(
                "readelf was not found, but grading needs it to analyse the calls of kernels; install "
                "binutils"
            )
        asked = any(variant.points.get("accuracy") for variant in rubric.variants)
        examination = (
            Examination(rubric.accuracy, setting.data, setting.data_dir, setting.data_note)
            if asked and rubric.accuracy
            else None
        )
        self._ground = Ground(rubric, examination, self._reference_ms)
        if any(variant.points.get("checked") for variant in rubric.variants):
            build_runtime(find_compiler(), ucontext=False, checked=True)  # once for all submissions
        self._apart = True
        try:
            self._device = self._look()
        except BaseException:
            self.close()
            raise

    @property
    def description(self) -> str:
        """The device in words."""
        return self._device.description

    def grade(self, one: Submission, variants: Sequence[str] | None = None) -> Grade:
        """Grade a submission, or some of its variants. Whatever goes wrong becomes part of its grade."""
        started, since = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
        made: list[Check] = []
        cheats: list[str] = []
        op_ms = None
        folder = Path(tempfile.mkdtemp(dir=self._work))
        try:
            for asked in self._setting.rubric.variants:
                if variants is not None and asked.name not in variants:
                    continue
                findings = self._variant(one, asked, folder / asked.name.replace("/", "-"))
                made += findings.checks
                cheats += [f"{asked.name}: {findings.cheat}"] if findings.cheat else []
                op_ms = findings.op_ms if asked.name == self._setting.rubric.ranking else op_ms
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        asked_log = self._setting.rubric.log
        if asked_log and variants is None:  # the second stage adds nothing here
            check = log.look(one, self._setting.rubric, asked_log)
            made.append(replace(check, message=_harmless(check.message)))
        made.append(Check(ISOLATION, PASSED, staff=self._isolation(), hidden=True))
        _refuse_full_disk(self._work)
        return Grade(
            submission=one.name,
            rubric=self._setting.rubric.name,
            device=self._device.description,
            checks=tuple(made),
            refused="; ".join(cheats),
            op_ms=None if cheats else op_ms,
            started=started,
            seconds=time.perf_counter() - since,
        )

    def _isolation(self) -> str:
        server = self._server()
        files = "other files do not exist" if server.hides_files else FILES_SHOW
        return f"{Isolation()}, {'namespaces' if server.apart else 'no namespaces'}, {files}"

    def _variant(self, one: Submission, asked: VariantRubric, folder: Path) -> Findings:
        """Run all checks of one variant of a submission."""
        copy = folder / asked.name
        try:
            source = one.variant(asked.name, self._setting.rubric)
            if source is None:
                status = FAILED if asked.required else SKIPPED
                findings = _one_check(asked, status, one.missing(asked.name, self._setting.rubric))
                return _as_submitted(findings, copy, folder)
            submitted.write(submitted.read(source), copy)
            with turn(self._beside / "turn.lock") as now, self._subject(copy, folder / "cache") as subject:
                findings = judge(self._ground, asked, subject, self._device.has_clock, now.alone)
        except (SubmissionError, VariantError) as error:
            findings = _one_check(asked, FAILED, str(error).removeprefix(FORBIDDEN))
            findings.cheat = str(error).removeprefix(FORBIDDEN) if FORBIDDEN in str(error) else ""
        return _as_submitted(findings, copy, folder)

    def _subject(self, source: Path, private: Path) -> Subject:
        return Subject(source, private, self._server(), self._device, self._setting.rubric.limits)

    def _server(self) -> ForkServer:
        """The fork server of this thread."""
        if not hasattr(self._local, "server"):
            home = Path(tempfile.mkdtemp(dir=self._work, prefix="home-"))
            self._local.server = ForkServer(home, self._apart)
            with self._lock:
                self._servers.append(self._local.server)
        server: ForkServer = self._local.server
        return server

    def _look(self) -> DeviceInfo:
        """Open the device and describe it, through the server that starts submissions if possible."""
        device = self._looked()
        if device.has_clock and device.reaches_host and not self._setting.weak_isolation:
            raise DeviceError(
                f"kernels on {device.description} can address all memory of the process that launches "
                "them, so they could change the measured times. Load the driver with `options nvidia-uvm "
                "uvm_disable_hmm=1`, grade on another machine, or add --weak-isolation if you trust every "
                "submission"
            )
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").replace("/", "-")
        gpu = partial(alone_with, self._beside / f"gpu-{visible}.lock")
        return replace(device, turn=gpu if device.has_clock else nullcontext)

    def _looked(self) -> DeviceInfo:
        asked = self._setting.device
        found = None
        with suppress(DeviceError):
            found = look(self._server(), asked)
        if found and (found.has_clock or asked == found.name):
            return found
        server = ForkServer(self._work, apart=False)  # namespaces can hide a GPU
        try:
            device = look(server, asked)
        finally:
            server.close()
        if device.has_clock:
            self.close()  # close the server above: submissions cannot use a GPU that it does not see
            self._apart = False
            self._servers, self._local = [], threading.local()
        return device

    def _reference_ms(self) -> float:
        """Measure the op time of the rubric's reference on this GPU, once."""
        asked = self._setting.rubric.performance
        assert asked is not None, "the caller looks"
        assert asked.reference is not None, "the caller looks"
        with self._reference_lock:
            if self._reference is None:
                variant = find(asked.reference)
                folder = Path(tempfile.mkdtemp(dir=self._work, prefix="reference-"))
                try:
                    with self._subject(variant.folder, folder / "cache") as subject:
                        self._reference, _ = checks.op_time(subject, asked, variant.precision)
                except SubmissionError as error:
                    raise MiniDnnError(f"the reference {variant.name} cannot be measured: {error}") from error
            return self._reference

    def close(self) -> None:
        """End all processes."""
        for server in self._servers:
            server.close()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _refuse_full_disk(folder: Path) -> None:
    """Raise an error if the disk is so full that submissions would fail through no fault of their own.

    Raises
    ------
    MiniDnnError
        There is hardly any space left.
    """
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        raise MiniDnnError(
            f"the disk with {folder} is full: {free >> 20} MB are free, but {LEAST_FREE_BYTES >> 20} are "
            "needed; free some space, or name another folder with --out"
        )


def _one_check(asked: VariantRubric, status: str, message: str) -> Findings:
    """The only check of a variant that is missing or cannot be read."""
    worth = sum(asked.points.values()) if asked.required else 0.0
    return Findings([Check(f"{asked.name}: submitted", status, 0.0, worth, message)])


def _harmless(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text[:MAX_TEXT])


def _as_submitted(findings: Findings, copy: Path, private: Path) -> Findings:
    """Clean messages: name files as the submission does, and remove addresses and control characters."""

    def shown(text: str) -> str:
        text = text.replace(f"{copy}/", "").replace(str(copy), "the variant")
        text = re.sub(rf"{re.escape(str(private))}[^\s:]*/", "", text)
        return _harmless(ADDRESS.sub("0x…", text))

    made = [replace(c, message=shown(c.message), staff=shown(c.staff)) for c in findings.checks]
    return Findings(made, shown(findings.cheat), findings.op_ms)
