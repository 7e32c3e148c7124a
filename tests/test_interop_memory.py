"""Memory of calls with arrays of other libraries: what is kept, until when, and what may not overlap."""

import threading
import weakref
from typing import Any

import numpy as np
import pytest
from gpu_arrays import drawn
from lent_arrays import CupyArray, Interfaced, Libraries, Packed, Tensor, values
from lent_arrays import libraries as libraries

from mini_dnn import conv2d, gemm, linear, ops
from mini_dnn.device import Device
from mini_dnn.errors import ShapeError
from mini_dnn.interop import calls
from mini_dnn.interop.calls import CALLS
from mini_dnn.interop.problem import problem_of

pytestmark = pytest.mark.usefixtures("libraries")


A, B = drawn(2, 17, 9), drawn(2, 9, 20, seed=1)


def test_each_stream_and_each_thread_has_calls_of_its_own(
    libraries: Libraries, quick_emulator: Device
) -> None:
    """No scratch memory may be shared: m2 stores its unrolled input there."""
    x, w = drawn(2, 2, 8, 7), drawn(3, 2, 3, 3)
    gpu_x, gpu_w = CupyArray(x), CupyArray(w)
    expected = conv2d(x, w, impl="m2", device=quick_emulator)
    found, kept, scratch = [], [], set()

    def call() -> None:
        found.append(conv2d(gpu_x, gpu_w, impl="m2"))
        kept.append(list(CALLS.ready.values()))
        scratch.update(b.address for ready in kept[-1] for b in ready.prepared._scratch.values())

    call()
    libraries.stream = 99
    call()
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert [len(calls) for calls in kept] == [1, 2, 1]
    calls_of_all = {id(ready.prepared) for calls in kept for ready in calls}
    assert (len(calls_of_all), len(scratch)) == (3, 2 * 3)
    assert all(np.array_equal(values(y), expected) for y in found)


def test_what_is_kept_can_be_released(quick_emulator: Device) -> None:
    before = quick_emulator.free_bytes()
    x, w = CupyArray(drawn(2, 2, 8, 7)), CupyArray(drawn(3, 2, 3, 3))
    first = values(conv2d(x, w, impl="m2")).copy()
    assert quick_emulator.free_bytes() < before
    calls.release()
    assert quick_emulator.free_bytes() == before
    assert np.array_equal(values(conv2d(x, w, impl="m2")), first)


def test_what_a_thread_has_kept_is_freed_when_it_ends_after_the_work(
    quick_emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of others may be in use until then."""
    before, events, kept = quick_emulator.free_bytes(), [], []
    real, wait = quick_emulator.foreign_stream, quick_emulator.synchronize

    def is_over() -> bool:
        events.append("its event is freed")
        return True

    def foreign_stream(handle: int) -> Any:
        stream = real(handle)
        monkeypatch.setattr(stream, "mark", lambda: is_over)
        monkeypatch.setattr(stream, "free", lambda: events.append("the stream's memory is freed"))
        return stream

    def synchronize() -> None:
        assert all(owner() is not None for owner in kept), "the GPU may still read it"
        events.append("the work is complete")
        wait()

    def call() -> None:
        x = Packed(drawn(2, 2, 8, 7))
        conv2d(x, Packed(drawn(3, 2, 3, 3)), impl="m2")
        assert quick_emulator.free_bytes() < before
        kept.extend(weakref.ref(owner) for owner in CALLS._held[0][1][0] if isinstance(owner, Packed))

    monkeypatch.setattr(quick_emulator, "foreign_stream", foreign_stream)
    monkeypatch.setattr(quick_emulator, "synchronize", synchronize)
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert events == [
        "the work is complete",
        "the stream's memory is freed",
        "the work is complete",
        "its event is freed",
    ]
    assert quick_emulator.free_bytes() == before
    assert [owner() for owner in kept] == [None, None]
    kept.clear()


def test_memory_of_others_is_kept_until_the_work_is_done(
    quick_emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = False
    real = quick_emulator.foreign_stream

    def foreign_stream(handle: int) -> Any:
        stream = real(handle)
        monkeypatch.setattr(stream, "mark", lambda: lambda: over)
        return stream

    monkeypatch.setattr(quick_emulator, "foreign_stream", foreign_stream)
    for _ in range(3):
        gemm(Packed(A), Packed(B))
    assert len(CALLS._held) == 3
    over = True
    gemm(Packed(A), Packed(B))
    assert len(CALLS._held) == 1


def test_arrays_larger_than_the_hosts_memory_have_a_problem() -> None:
    """Arrays on a GPU are described to operations by arrays in host memory, which is never allocated."""
    found = problem_of(ops.find("softmax"), ["x"], [((1 << 30, 1 << 14), "float32")], {})
    assert (found.problem.N, found.problem.L) == (1 << 30, 1 << 14)
    assert found.which == {"x": 0}


def test_results_that_overlap_what_is_read_are_refused() -> None:
    square, memory = drawn(1, 8, 8), np.empty(3 * 64, np.float32)
    a, b = (memory[i : i + 64].reshape(1, 8, 8) for i in (0, 128))
    gemm(CupyArray(a), CupyArray(b), out=CupyArray(memory[64:128].reshape(1, 8, 8)))
    for start in (4, 60, 68, 124):
        with pytest.raises(ShapeError, match=f"out= overlaps {'a' if start < 64 else 'b'}, which is read"):
            gemm(CupyArray(a), CupyArray(b), out=CupyArray(memory[start : start + 64].reshape(1, 8, 8)))
    with pytest.raises(ShapeError, match="out= overlaps a"):
        gemm(CupyArray(square), CupyArray(b), out=CupyArray(square))


@pytest.mark.parametrize("kind", [CupyArray, Tensor, Interfaced, np.asarray])
def test_results_that_overlap_each_other_are_refused(kind: Any) -> None:
    given = [kind(a) for a in (drawn(1, 8, 64, dtype="f2"), drawn(64, 64, dtype="f2"), drawn(64))]
    memory = np.empty(2048, np.uint8)
    y = memory[:1024].view("f2").reshape(1, 8, 64)
    more: dict[str, Any] = {"moments": True} | ({"device": "emulator"} if kind is np.asarray else {})
    after, within = (memory[at : at + 64].view("f4").reshape(1, 8, 1, 2) for at in (1024, 1008))
    linear(*given, out=(kind(y), kind(after)), **more)
    np.testing.assert_allclose(after[..., 0, 0], y.astype("f4").mean(2), atol=0.01)
    with pytest.raises(ShapeError, match=r"the arrays of out= overlap each other; pass one array for each"):
        linear(*given, out=(kind(y), kind(within)), **more)
