"""Findings about unordered streams: which steps of a plan access the same element, how to order them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mini_dnn.checking.steps import step_place
from mini_dnn.device.emulator.checked_streams import StreamEmulator
from mini_dnn.device.emulator.stream_order import Clash, StreamOrder, Work
from mini_dnn.device.finding import Finding, Party, Target
from mini_dnn.variant import Planned
from mini_dnn.variant.plan import CopyIn, CopyOut, CopyToSymbol, Launch, Step, waits_in_vain

RUNNER = "the copy of the arrays before the first step"


@dataclass(frozen=True)
class _Given:
    """A step of the plan, as it was issued on a stream."""

    number: int  # starting at 1; 0 for a copy by the runner instead of a step
    step: Step | None
    words: str

    def __str__(self) -> str:
        """Its name in messages."""
        return f"step {self.number}, {self.words}" if self.number else self.words


def explain_clash(planned: Planned, clash: Clash, array: Target, order: StreamOrder) -> Finding:
    """A finding about two steps on different streams that access one element, where at least one writes."""
    first, second = (_given(planned, work, order) for work in (clash.first, clash.second))
    index = array.index(clash.offset)
    what = (
        f"{second} {_does(clash.second_writes)} {index} of {array}, which {first} "
        f"{_does(clash.first_writes)}: nothing orders stream {clash.second.stream} after stream "
        f"{clash.first.stream}"
    )
    own, other = (
        _party(planned, given, writes)
        for given, writes in ((second, clash.second_writes), (first, clash.first_writes))
    )
    kernel = clash.second.name if clash.second.kind == "launch" else ""
    if not kernel and clash.first.kind == "launch":
        kernel = clash.first.name
    return Finding("race", what, kernel, own, index, other, _cure(array, clash, first, second))


def explain_order(finding: Finding, planned: Planned, device: StreamEmulator) -> Finding:
    """A finding about missing data, if a later step of the plan copies them there, or away."""
    if device.order is None:
        return finding
    if finding.kind == "uninitialised" and finding.array and finding.own:
        name = finding.array.partition("[")[0]
        launch = next((w for w in reversed(device.order.works) if w and w.kind == "launch"), None)
        if launch:
            return _read_before_copy(finding, planned, _given(planned, launch, device.order), name)
    if finding.kind in ("unwritten", "wrong") and device.order.early:
        return _copied_before_written(finding, planned, _given(planned, device.order.early[0], device.order))
    return finding


def vain_wait(planned: Planned) -> Finding | None:
    """A finding about a wait for an event that no earlier step records."""
    for wait in (*waits_in_vain(planned.setup), *waits_in_vain(planned.steps)):
        what = f"stream {wait.stream} waits for the event '{wait.event}', which no step before it records"
        own = Party(step_place(planned.source, wait), (), ())
        cure = (
            f"put Record('{wait.event}', ...) after the steps that stream {wait.stream} has to wait for, and "
            "before this wait: a stream does not wait for an event that is recorded later"
        )
        return Finding("launch", what, own=own if own.place else None, cure=cure)
    return None


def _read_before_copy(finding: Finding, planned: Planned, launch: _Given, name: str) -> Finding:
    later = [
        (number, step)
        for number, step in enumerate(planned.steps, 1)
        if number > launch.number and isinstance(step, CopyIn) and step.images.buffer == name
    ]
    if not launch.step or not later:
        return finding
    number, copy = later[0]
    brought = _Given(number, copy, _words(copy))
    own, other = _party(planned, launch, False), _party(planned, brought, True)
    place = finding.own.place if finding.own else None
    notes = (*finding.notes, f"it is read at {place.file}:{place.line}: {place.code}" if place else "")
    what = f"{launch} reads {finding.array}, which {brought} copies to the GPU only afterwards"
    if copy.stream == launch.step.stream:
        cure = (
            f"put the copy of {name} before the launch that reads it: a stream runs in the order of the plan"
        )
        return replace(finding, what=what, own=own, other=other, cure=cure, notes=tuple(filter(None, notes)))
    cure = (
        f"put the copy before the launch, with Record('{name}_is_there', {copy.stream}) after it and "
        f"Wait('{name}_is_there', {launch.step.stream}) before the launch; or use one stream for both"
    )
    return Finding("race", what, finding.kernel, own, finding.array, other, cure, tuple(filter(None, notes)))


def _copied_before_written(finding: Finding, planned: Planned, copy: _Given) -> Finding:
    own = _party(planned, copy, False)
    note = f"{copy} runs before any launch has written these elements"
    cure = "put the copy to the host after the launches that write the data"
    return replace(finding, own=own, cure=cure, notes=(*finding.notes, note))


def _given(planned: Planned, work: Work, order: StreamOrder) -> _Given:
    """The step that issued a piece of work on a stream: work of one kind is in the order of the steps."""
    key = _key_of_work(work)
    before = [one for one in order.works if one and _key_of_work(one) == key]
    steps = [*planned.setup, *planned.steps]
    alike = [number for number, step in enumerate(steps) if _key_of_step(planned, step) == key]
    if not alike:
        return _Given(0, None, RUNNER)
    in_setup = sum(number < len(planned.setup) for number in alike)
    at = before.index(work)
    if at >= in_setup and len(alike) > in_setup:
        at = in_setup + (at - in_setup) % (len(alike) - in_setup)
    step = steps[alike[min(at, len(alike) - 1)]]
    number = alike[min(at, len(alike) - 1)] - len(planned.setup) + 1
    return _Given(max(number, 0), step, _words(step) + (" of setup" if number < 1 else ""))


def _key_of_work(work: Work) -> tuple[object, ...]:
    return work.kind, work.name, work.stream, work.part


def _key_of_step(planned: Planned, step: Step) -> tuple[object, ...]:
    match step:
        case Launch():
            return "launch", step.kernel, step.stream, (0, 0)
        case CopyToSymbol():
            return "copy", step.symbol, step.stream, (0, 0)
        case CopyIn(images) | CopyOut(images):
            array = planned.arrays[images.buffer]
            entry = array.nbytes // array.shape[0]
            kind = "copy_in" if isinstance(step, CopyIn) else "copy_out"
            return kind, images.buffer, step.stream, (images.first * entry, images.last * entry)
    return (type(step).__name__, step.stream)


def _words(step: Step | None) -> str:
    match step:
        case Launch():
            return f"the launch of {step.kernel} on stream {step.stream},"
        case CopyToSymbol():
            return f"the copy to {step.symbol} on stream {step.stream},"
        case CopyIn(images):
            part = f"{images.buffer}[{images.first}:{images.last}]"
            return f"the copy of {part} to the GPU on stream {step.stream},"
        case CopyOut(images):
            part = f"{images.buffer}[{images.first}:{images.last}]"
            return f"the copy of {part} to the host on stream {step.stream},"
    return RUNNER


def _does(writes: bool) -> str:
    return "writes" if writes else "reads"


def _party(planned: Planned, given: _Given, writes: bool) -> Party | None:
    place = step_place(planned.source, given.step) if given.step else None
    return Party(place, (), (), write=writes) if place else None


def _cure(array: Target, clash: Clash, first: _Given, second: _Given) -> str:
    if (
        array.memory == "global"
        and clash.first.kind == clash.second.kind == "launch"
        and not (clash.first_writes and not clash.second_writes)
    ):
        own = f", or give each stream its own {array.name} in scratch="
    else:
        own = ", or use one stream for both steps"
    event = f"{array.name}_is_done"
    behind = f"step {first.number}" if first.number else "the first"
    ahead = f"step {second.number}" if second.number else "the second"
    return (
        f"put Record('{event}', {clash.first.stream}) after {behind} and "
        f"Wait('{event}', {clash.second.stream}) before {ahead}{own}"
    )
