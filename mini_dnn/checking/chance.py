"""Results that depend on undefined values: those of uninitialised variables, and of absent lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mini_dnn.checking.judge import Example
from mini_dnn.checking.schedules import SCHEDULES
from mini_dnn.device.cures import CURES
from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.device.emulator.unset import unset_variables
from mini_dnn.device.finding import Finding, Party, Place
from mini_dnn.errors import DeviceError, LaunchError
from mini_dnn.running.runner import run_plans
from mini_dnn.variant import Planned


def by_chance(
    device: CheckedEmulator, part: Callable[[int], Planned], example: Example, is_wrong: bool
) -> Finding | None:
    """A variable of a thread on which results depend, although it is not initialised.

    If the compiler sees such a variable, or if results are wrong, everything is run again with zeros in such
    variables. The processor reports most others where they are used (``runtime/checked/unset.cpp``).

    Parameters
    ----------
    part
        Returns the plan for this many entries of the batch.
    """
    problem, arrays = example.problem, example.arrays
    planned = part(problem.batch)
    unset = unset_variables(device.compile(planned.source, planned.defines).path)
    places = ((one.name, Place.at(planned.source, one.file, one.line)) for one in unset)
    own = [(name, place) for name, place in places if place]
    if not own and not is_wrong:
        return None
    try:
        first = run_plans(part, problem, arrays, device).outputs
        with device.zeros():
            second = run_plans(part, problem, arrays, device).outputs
        same = example.are_same(first, second)
    except KernelError:
        same = False  # one of the two runs failed, for example because an undefined value is an index
    except (DeviceError, LaunchError):
        return None  # nothing else may be compiled here
    return None if same else _finding(own)


def by_absent_lanes(
    device: CheckedEmulator, part: Callable[[int], Planned], example: Example
) -> Finding | None:
    """A shuffle from an absent lane, if results depend on its value, which differs between the orders."""
    for which, noted in enumerate(list(device.undefined)):
        device.vary_undefined(which)
        outputs = []
        try:
            for order in range(len(SCHEDULES)):
                device.set_schedule(order, 0)
                outputs.append(run_plans(part, example.problem, example.arrays, device).outputs)
        except LaunchError:
            return noted
        finally:
            device.vary_undefined(-1)
            device.set_schedule(0, 0)
        if not all(example.are_same(outputs[0], one) for one in outputs[1:]):
            return noted
    return None


def _finding(own: Sequence[tuple[str, Place]]) -> Finding:
    if not own:
        what = "the results depend on uninitialised variables of a thread"
        return Finding("uninitialised", what, cure=CURES["unset"])
    (name, at), *others = own
    what = f"{name} is used before every path has set it: the results depend on its value"
    more = tuple(f"the same may hold for {one} at {place.file}:{place.line}" for one, place in others)
    return Finding("uninitialised", what, own=Party(at, (), ()), array=name, cure=CURES["unset"], notes=more)
