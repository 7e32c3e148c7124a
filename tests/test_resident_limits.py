"""Networks that stay on a small device, and on their own streams."""

from contextlib import closing
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
import pytest
from convolutions import planned
from resident_helpers import assert_right, opened, pictures, small_network, weights

from mini_dnn.datasets import to_float
from mini_dnn.device import Device
from mini_dnn.measuring.inference import STEPS, find_step
from mini_dnn.nn.network import Network
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.running.resident import SLOTS
from mini_dnn.running.runner import run
from mini_dnn.variant import Step


@pytest.fixture(scope="module")
def network() -> Network:
    return small_network()


def test_a_small_device_has_smaller_batches(
    network: Network, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All slots fit together, and the answers are those of large batches."""
    images, variant = to_float(pictures(20)), find_step("whole")
    with closing(opened(network, variant, device, LenetBatch(20))) as resident:
        expected = resident.predict(images)
    room = variant.planned(LenetBatch(3), device.max_shared_bytes).nbytes
    monkeypatch.setattr(device, "free_bytes", lambda: SLOTS * room)
    with closing(opened(network, variant, device, LenetBatch(20))) as resident:
        assert resident.problem == LenetBatch(3)
        np.testing.assert_array_equal(resident.predict(images), expected)


def test_a_variant_that_refuses_the_batch_has_smaller_ones(network: Network, device: Device) -> None:
    variant = replace(find_step("whole"), refuses=lambda s: "at most 3 images" if s.N > 3 else "")
    with closing(opened(network, variant, device, LenetBatch(20))) as resident:
        assert resident.problem == LenetBatch(3)


@pytest.mark.parametrize("step", STEPS)
def test_a_batch_that_does_not_fit_is_cut(
    step: str, network: Network, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also applies if nothing stays on the device. Images in bytes need a quarter of the memory."""
    images, variant = pictures(7), find_step(step)
    answers = {}
    for is_bytes in (False, True):
        problem = LenetBatch(7, is_bytes)
        arrays = {"images": images if is_bytes else to_float(images), **weights(network)}
        whole = run(variant, problem, arrays, device)
        room = variant.planned(problem.with_batch(4), device.max_shared_bytes).nbytes - 1
        with monkeypatch.context() as patch:
            patch.setattr(device, "free_bytes", lambda room=room: room)
            parts = run(variant, problem, arrays, device)
        assert (whole.steps, parts.steps) == (1, 3)
        np.testing.assert_array_equal(parts.y, whole.y)
        answers[is_bytes] = whole.y
    assert_right(network, images, answers[True], variant.precision)


def test_streams_of_slots_do_not_meet(
    network: Network, emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan with two streams, one of which is also used for its setup, after the copies of the weights."""
    whole, log = find_step("whole"), list[tuple[str, int]]()

    def plan(s: LenetBatch) -> list[Step]:
        first, second = planned(whole, s).steps
        return [first, replace(second, stream=1)]

    def setup(s: LenetBatch) -> list[Step]:
        return [replace(step, stream=1) for step in planned(whole, s).setup]

    def note(what: str) -> None:
        real = getattr(emulator, what)

        def noted(*args: Any) -> Any:
            given = signature(real).bind(*args).arguments
            log.append((what, given.get("stream", -1)))
            return real(*args)

        monkeypatch.setattr(emulator, what, noted)

    for what in ("launch", "copy_in", "copy", "synchronize"):
        note(what)
    two = replace(whole, plan=plan, setup=setup)
    with closing(opened(network, two, emulator, LenetBatch(1), use_graph=False)) as resident:
        opening, used = list(log), list[set[int]]()
        for slot in resident._slots:
            log.clear()
            slot.submit(1)
            used.append({stream for what, stream in log if what == "launch"})
    assert used == [{2 * slot, 2 * slot + 1} for slot in range(SLOTS)]
    for slot in range(SLOTS):
        copied, done = opening.index(("copy_in", 2 * slot)), opening.index(("copy", 2 * slot + 1))
        assert ("synchronize", -1) in opening[copied:done]
