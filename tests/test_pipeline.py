"""Threads copy batches of pictures while a network works on others."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from resident_helpers import opened, pictures, small_network
from waiting import PATIENCE_S

from mini_dnn.device import Device
from mini_dnn.measuring import pipeline
from mini_dnn.measuring.inference import find_step
from mini_dnn.measuring.pictures import same
from mini_dnn.measuring.pipeline import Pipeline, Spent
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.running.resident import SLOTS, Resident


@pytest.fixture(autouse=True)
def threads_do_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads copy even small batches."""
    monkeypatch.setattr(pipeline, "SMALL_BYTES", 0)


def network_on(device: Device) -> Resident:
    """LeNet for eight images of bytes at a time."""
    return opened(small_network(), find_step("whole"), device, LenetBatch(8, is_bytes=True))


def planes(pixels: np.ndarray, dtype: str) -> np.ndarray:
    """The bytes in the network's layout."""
    assert dtype == "uint8"
    return pixels.transpose(0, 3, 1, 2)


@pytest.mark.parametrize(("part_bytes", "small_bytes"), [(1 << 30, 0), (1, 0), (1, 1 << 30)])
def test_outputs_come_in_order(
    part_bytes: int, small_bytes: int, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of any size, copied by a helper thread, by one thread per core, or by this thread."""
    monkeypatch.setattr(pipeline, "PART_BYTES", part_bytes)
    monkeypatch.setattr(pipeline, "SMALL_BYTES", small_bytes)
    images, ends = pictures(40), [8, 9, 17, 20, 28, 36, 40]
    parts = np.split(images.transpose(0, 2, 3, 1), ends[:-1])
    spent, start = Spent(), time.perf_counter()
    with closing(network_on(device)) as resident:
        expected = resident.predict(images)
        with ThreadPoolExecutor(2) as pool:
            found = list(Pipeline(resident, planes, same, pool, iter(parts), spent))
    assert [len(part) for part in found] == np.diff([0, *ends]).tolist()
    np.testing.assert_array_equal(np.concatenate(found), expected)
    assert 0 < spent.network < spent.network + spent.copying < time.perf_counter() - start


def test_the_next_batch_is_copied_while_outputs_are_taken(device: Device) -> None:
    last = pipeline.LATER + SLOTS - 1  # the first outputs are returned after LATER more batches were taken
    count = last + 2
    images = pictures(8 * count)
    copied = [threading.Event() for _ in range(count)]
    numbers = iter(range(count))

    def formed(pixels: np.ndarray, dtype: str) -> np.ndarray:
        copied[next(numbers)].set()
        return planes(pixels, dtype)

    batches = iter(np.split(images.transpose(0, 2, 3, 1), count))
    with closing(network_on(device)) as resident, ThreadPoolExecutor(1) as pool:
        outputs = iter(Pipeline(resident, formed, same, pool, batches, Spent()))
        next(outputs)
        # All slots are full again, except for the slot of the last outputs
        assert copied[last].wait(PATIENCE_S)
        assert not copied[last + 1].is_set()  # there is no more room
        outputs.close()


@pytest.mark.parametrize("part", ["copy", "results"])
def test_what_a_thread_raises(part: str, device: Device) -> None:
    def fails(*args: object) -> np.ndarray:
        raise ValueError("no such form")

    batches = iter([pictures(8).transpose(0, 2, 3, 1)] * 3)
    works = (fails, same) if part == "copy" else (planes, fails)
    with closing(network_on(device)) as resident, ThreadPoolExecutor(2) as pool:
        outputs = iter(Pipeline(resident, *works, pool, batches, Spent()))
        with pytest.raises(ValueError, match="no such form"):
            next(outputs)


def test_memory_is_free_again_when_nobody_takes_the_outputs(device: Device) -> None:
    """The pipeline waits for copies that have begun, because the memory may be used again at once."""
    begun, running = threading.Event(), []

    def slow(pixels: np.ndarray, dtype: str) -> np.ndarray:
        running.append(None)
        begun.wait(0.1)
        running.pop()
        return planes(pixels, dtype)

    batches = iter([pictures(8).transpose(0, 2, 3, 1)] * 9)
    with closing(network_on(device)) as resident, ThreadPoolExecutor(2) as pool:
        outputs = iter(Pipeline(resident, slow, same, pool, batches, Spent()))
        next(outputs)
        outputs.close()
        assert not running
