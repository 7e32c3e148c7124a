"""Batches for LeNet on one device: in order, in pinned memory, with a graph and without."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from resident_helpers import assert_right, opened, pictures, small_network

from mini_dnn.datasets import to_float
from mini_dnn.device.base import Device
from mini_dnn.errors import ShapeError, UsageError
from mini_dnn.measuring.inference import STEPS, find_step
from mini_dnn.nn.network import Network
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.running.resident import SLOTS, Resident


@pytest.fixture(scope="module")
def network() -> Network:
    return small_network()


def test_batches_come_in_order_and_of_any_size(network: Network, emulator: Device) -> None:
    images = to_float(pictures(23))
    resident = opened(network, find_step("fused"), emulator, LenetBatch(8))
    sizes = [8, 1, 7, 3, 4]
    ends = np.cumsum(sizes)
    parts = list(resident.serve(images[end - size : end] for end, size in zip(ends, sizes, strict=True)))
    assert [len(part) for part in parts] == sizes
    np.testing.assert_array_equal(np.concatenate(parts), resident.predict(images))
    assert list(resident.serve([])) == []


def test_batches_that_come_to_pinned_memory(network: Network, device: Device) -> None:
    """Each array keeps its content, and a replay uses what was written since."""
    count = SLOTS + 1  # batches: the first array is used twice
    images = to_float(pictures(8 * count))
    with closing(opened(network, find_step("whole"), device, LenetBatch(8))) as resident:
        expected = resident.predict(images)
        starts, arrays = iter(range(0, len(images), 8)), []

        def fill(room: np.ndarray) -> int:
            arrays.append(room)
            start = next(starts, None)
            if start is None:
                return 0
            room[:] = images[start : start + 8]
            return 8

        np.testing.assert_array_equal(np.concatenate(list(resident.serve_in_place(fill))), expected)
        which = [next(i for i, first in enumerate(arrays) if first is room) for room in arrays]
        assert which == [*range(count - 1), 0, 1]
        again = iter([8, 3])  # the content: the last batch and the second one
        last, second = resident.serve_in_place(lambda room: next(again, 0))
        np.testing.assert_array_equal(last, expected[-8:])
        np.testing.assert_array_equal(second, expected[8:11])
        for count in (9, -1):
            with pytest.raises(ShapeError, match=f"fill returned {count}; expected 0 to 8"):
                next(resident.serve_in_place(lambda room, count=count: count))


def test_batches_that_others_write(network: Network, device: Device) -> None:
    """A batch starts while the previous one is being written; neither reaches the device too early."""
    images = to_float(pictures(8 * 6))
    with closing(opened(network, find_step("whole"), device, LenetBatch(8))) as resident:
        expected = resident.predict(images)
        starts, begun, calls = iter(range(0, len(images), 8)), [], []

        def fill(room: np.ndarray) -> int:
            start = next(starts, None)
            if start is None:
                return 0
            room[:] = 0
            begun.append((room, start))
            calls.append(f"begin {start // 8}")
            return 8

        def written(room: np.ndarray) -> None:
            given, start = begun.pop(0)
            assert room is given
            room[:] = images[start : start + 8]
            calls.append(f"written {start // 8}")

        np.testing.assert_array_equal(np.concatenate(list(resident.serve_in_place(fill, written))), expected)
    order = [word for i in range(5) for word in (f"begin {i + 1}", f"written {i}")]
    assert calls == ["begin 0", *order, "written 5"]


@pytest.mark.parametrize("step", ["whole", "tensor"])
def test_one_image_is_not_copied(
    step: str, network: Network, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels read it from host memory and write the probabilities there."""
    images = to_float(pictures(3))
    with closing(opened(network, find_step(step), device, LenetBatch(3))) as several:
        expected = several.predict(images)
    with closing(opened(network, find_step(step), device, LenetBatch(1), use_graph=False)) as one:

        def refuse(*args: object, **more: object) -> None:
            raise AssertionError("a copy")

        monkeypatch.setattr(device, "copy_in", refuse)
        monkeypatch.setattr(device, "copy_out", refuse)
        for image, probabilities in zip(images, expected, strict=True):
            np.testing.assert_array_equal(one.respond(image[None])[0], probabilities)


def test_a_file_is_read_to_pinned_memory(network: Network, device: Device, tmp_path: Path) -> None:
    """The example in networks/README.md."""
    images = pictures(7)
    images.tofile(tmp_path / "images")
    shape = LenetBatch(4, is_bytes=True)
    with closing(opened(network, find_step("whole"), device, shape)) as resident:
        with (tmp_path / "images").open("rb") as file:
            found = list(resident.serve_in_place(lambda room: file.readinto(room) // room[0].nbytes))
        assert [len(part) for part in found] == [4, 3]
        np.testing.assert_array_equal(np.concatenate(found), resident.predict(images))


@pytest.mark.parametrize("step", STEPS)
def test_with_a_graph_and_without(step: str, network: Network, device: Device) -> None:
    images = to_float(pictures(5))
    shape, answers = LenetBatch(2), []
    for use_graph in (True, False):
        with closing(opened(network, find_step(step), device, shape, use_graph)) as resident:
            one_by_one = [resident.respond(images[n : n + 1]) for n in range(5)]
            answers.append(np.concatenate(one_by_one))
            np.testing.assert_array_equal(resident.respond(images[3:]), answers[-1][3:])
            with pytest.raises(ShapeError, match="expected 1 to 2 entries"):
                resident.respond(images)
    np.testing.assert_array_equal(*answers)
    assert_right(network, pictures(5), answers[0], find_step(step).precision)


def test_batches_that_nobody_waits_for(network: Network, device: Device) -> None:
    """The device reads their images until they are done, so a later batch must not overwrite them."""
    images = to_float(pictures(4))
    with closing(opened(network, find_step("fused"), device, LenetBatch(2))) as resident:
        expected = resident.predict(images)
        served = resident.serve([images[2:], images[:2], images[:2]])
        np.testing.assert_array_equal(next(served), expected[2:])
        served.close()
        np.testing.assert_array_equal(resident.respond(images[:2]), expected[:2])


def test_one_slot_and_no_entries(network: Network, emulator: Device) -> None:
    images, weights = to_float(pictures(3)), {name: p.value for name, p in network.parameters().items()}
    variant = find_step("whole")
    with closing(Resident(variant, LenetBatch(2), weights, emulator, slots=1)) as resident:
        assert_right(network, pictures(3), resident.predict(images))
        assert resident.predict(images[:0]).shape == (0, 10)
    with pytest.raises(UsageError, match="slots is 0"):
        Resident(variant, LenetBatch(2), weights, emulator, slots=0)
