"""Checks whether a device can run a variant at all, whatever the problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mini_dnn.device import Device
from mini_dnn.errors import DeviceError, UsageError
from mini_dnn.paths import program
from mini_dnn.variant import Planned, Variant, exercise
from mini_dnn.variant.planned import HOPPER, arch_needed


def check_runnable(variant: Variant | Planned, device: Device) -> None:
    """Check that a device can run a variant; with a plan, also what the plan calls.

    Raises
    ------
    DeviceError
        The device cannot run it. The message says what is needed.
    """
    if isinstance(variant, Variant) and variant.host is not None:
        return
    if variant.needs_gpu and not device.has_clock:
        raise DeviceError(
            f"{variant.name} needs a GPU: {variant.needs_gpu}. On the emulator, use another variant"
        )
    if needed := arch_needed(variant, device.arch):
        raise DeviceError(
            f"{variant.name} needs a GPU of {needed}; this one is sm_{device.arch}. Use another variant, or "
            "--device emulator"
        )


def divided(variants: Sequence[Variant], device: Device) -> tuple[list[Variant], list[str]]:
    """Return the variants that a device can run, and for each of the others what it needs.

    An exercise needs code in place of its blanks.
    """
    able: list[Variant] = []
    needs: list[str] = []
    for variant in variants:
        try:
            exercise.require_filled(variant.folder, program("hint", variant.name))
            check_runnable(variant, device)
            able.append(variant)
        except (DeviceError, UsageError) as error:
            needs.append(str(error))
    return able, needs


def runs_on(variant: Variant, device: Device, problem: Any) -> bool:
    """Whether a device can run a variant, and what its plan for a problem that it supports calls."""
    try:
        check_runnable(variant, device)
        if device.arch > HOPPER:  # for others, min_arch covers what is called
            check_runnable(variant.planned(problem, device.max_shared_bytes), device)
    except DeviceError:
        return False
    return True
