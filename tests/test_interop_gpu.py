"""Arrays of CuPy and PyTorch on a GPU, used in place."""

import threading
from typing import Any

import numpy as np
import pytest
from gpu_arrays import Cupy, Torch, arguments, drawn, in_thread, refused, runnable, same, small

import mini_dnn
from mini_dnn import conv2d, gemm, softmax
from mini_dnn.device import Device
from mini_dnn.errors import DeviceError, UsageError, VariantError
from mini_dnn.interop import release
from mini_dnn.interop.calls import CALLS
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.running.runner import run
from mini_dnn.variant import find, names

pytestmark = pytest.mark.gpu
SHAPE = ConvShape(16, 4, 40, 40, 16, 7, 7)


@pytest.fixture(params=[Cupy, Torch])
def library(request: pytest.FixtureRequest) -> Any:
    found = request.param()
    yield found
    release()


A, B = drawn(2, 65, 33), drawn(2, 33, 70, seed=1)
C = A @ B


def close(found: np.ndarray, expected: np.ndarray = C) -> bool:
    return found.dtype == expected.dtype and np.allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", names())
def test_every_variant_gives_what_it_gives_with_copies(name: str, library: Any, cuda: Device) -> None:
    """Two calls with different arrays; the second call prepares nothing."""
    variant = runnable(name, cuda)
    problem, operation = small(variant), variant.operation
    function = getattr(mini_dnn, operation.name)
    for seed in range(2):
        arrays = operation.inputs(problem, seed)
        expected = run(variant, problem, arrays, cuda).y
        given, named = arguments(operation, problem, arrays, library.put)
        found = function(*given, impl=name, **named)
        assert isinstance(found, library.type)
        assert same(library.get(found), expected)
    assert len(CALLS.ready) == 1


def test_results_go_where_the_caller_says(library: Any) -> None:
    a, b, out = library.put(A), library.put(B), library.empty(C.shape)
    for alpha in (1.0, 2.0):
        assert gemm(a, b, alpha=alpha, out=out) is out
        assert close(library.get(out), np.float32(alpha) * C)
    half = library.put(np.zeros(C.shape, np.float16))
    gemm(library.put(A.astype("f2")), library.put(B.astype("f2")), out=half)
    assert np.allclose(library.get(half), C, atol=0.1)


def test_arrays_that_may_be_left_out(library: Any) -> None:
    c0 = drawn(*C.shape, seed=2)
    found = gemm(library.put(A), library.put(B), c0=library.put(c0), alpha=2.0, beta=-0.5)
    assert close(library.get(found), 2 * C - c0 / 2)


def test_nobody_waits_and_the_callers_stream_is_used(library: Any) -> None:
    """The stream is busy at the time of the call, and the input is written after that."""
    b, late, a = library.put(B), library.put(A), library.put(A)
    nothing, stream, done = library.put(np.zeros_like(A)), library.stream(), []
    with library.within(stream):
        for _ in range(2):  # the first call compiles everything
            library.fill(a, nothing)
            stream.synchronize()
            library.spin()
            library.fill(a, late)
            c = gemm(a, b)
            done.append(library.is_done(stream))
            stream.synchronize()
            assert close(library.get(c))
    assert not done[1], "the call waited for the stream"


def test_nothing_is_allocated_but_the_result(library: Any) -> None:
    cupy = Cupy() if isinstance(library, Cupy) else None
    used = (
        cupy.library.get_default_memory_pool().used_bytes if cupy else library.library.cuda.memory_allocated
    )
    a, b, out = library.put(A), library.put(B), library.empty(C.shape)
    gemm(a, b, out=out)
    gemm(a, b)
    before = used()
    gemm(a, b, out=out)
    assert used() == before
    c = gemm(a, b)
    assert before < used() <= before + C.nbytes + 2048
    assert close(library.get(c))


@pytest.mark.parametrize("name", ["m2", "m3/constant_memory", "m3/streams", "m3/cublas"])
def test_streams_have_scratch_memory_and_variables_of_their_own(
    name: str, library: Any, cuda: Device
) -> None:
    """Calls on two streams at once, with separate inputs."""
    variant = find(name)
    problem = SHAPE if not variant.limit_for(SHAPE) else small(variant)
    given = [variant.operation.inputs(problem, seed) for seed in range(2)]
    expected = [run(variant, problem, arrays, cuda).y for arrays in given]
    streams = [library.stream() for _ in given]
    held = [[library.put(array) for array in arrays.values()] for arrays in given]
    found: list[list[Any]] = [[], []]
    for _ in range(20):
        for which, stream in enumerate(streams):
            with library.within(stream):
                found[which].append(conv2d(*held[which], impl=name))
    for stream in streams:
        stream.synchronize()
    for which in range(2):
        assert all(same(library.get(y), expected[which]) for y in found[which])


def test_threads_have_calls_of_their_own(library: Any, cuda: Device) -> None:
    """One of the threads uses the default stream."""
    variant = find("m2")
    given = [variant.operation.inputs(SHAPE, seed) for seed in range(3)]
    expected = [run(variant, SHAPE, arrays, cuda).y for arrays in given]
    start, raised = threading.Barrier(3), []

    def work(which: int) -> None:
        try:
            stream = library.stream()
            held = [library.put(array) for array in given[which].values()]
            start.wait()
            for i in range(20):
                if which:
                    with library.within(stream):
                        y = conv2d(*held, impl="m2")
                    stream.synchronize()
                else:
                    y = conv2d(*held, impl="m2")
                assert same(library.get(y), expected[which]), f"call {i} of thread {which}"
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not raised, raised


def test_a_thread_that_has_not_used_the_gpu(library: Any) -> None:
    a, b, out = library.put(A), library.put(B), library.empty(C.shape)
    in_thread(lambda: gemm(a, b, out=out))
    library.wait()
    assert close(library.get(out))


def test_streams_that_come_and_go(library: Any, cuda: Device) -> None:
    """A new stream may have the handle of a destroyed one, whose work still uses the scratch memory."""
    variant = find("m2")
    given = [variant.operation.inputs(SHAPE, seed) for seed in range(2)]
    expected = [run(variant, SHAPE, arrays, cuda).y for arrays in given]
    held = [[library.put(array) for array in arrays.values()] for arrays in given]
    found = []
    for i in range(10):
        with library.within(library.stream()):
            found.append(conv2d(*held[i % 2], impl="m2"))
    library.wait()
    assert all(same(library.get(y), expected[i % 2]) for i, y in enumerate(found))


def test_batches_are_cut_where_scratch_memory_is_small(library: Any, cuda: Device) -> None:
    variant = find("m2")
    arrays = variant.operation.inputs(SHAPE, 0)
    expected = run(variant, SHAPE, arrays, cuda).y
    scratch = variant.planned(SHAPE, cuda.max_shared_bytes).scratch_bytes
    held = [library.put(array) for array in arrays.values()]
    library.get(conv2d(*held, impl="m1"))  # opens the device for this thread
    device = CALLS.device(0)
    device.free_bytes = lambda: scratch - 1  # type: ignore[method-assign]
    try:
        y = conv2d(*held, impl="m2")
        (prepared,) = [r.prepared for r in CALLS.ready.values() if r.prepared.variant.name == variant.name]
        assert len(prepared._sizes()) > 1
    finally:
        del device.free_bytes
    assert same(library.get(y), expected)


def test_what_is_kept_is_given_back(library: Any) -> None:
    arrays = [library.put(array) for array in find("m2").operation.inputs(SHAPE, 0).values()]
    y = library.get(conv2d(*arrays, impl="m2"))
    (ready,) = CALLS.ready.values()
    scratch = list(ready.prepared._scratch.values())
    assert all(buffer.address for buffer in scratch)
    release()
    assert not any(buffer.address for buffer in scratch)
    assert np.array_equal(library.get(conv2d(*arrays, impl="m2")), y)


def test_refusals(library: Any, cuda: Device) -> None:
    a, b = library.put(A), library.put(B)
    turned = a.transpose(0, 2, 1) if isinstance(library, Cupy) else a.transpose(1, 2)
    with refused(r"a \(2, 33, 65\) is not contiguous in C order"):
        gemm(turned, b, layout="tn")
    with refused(r"a must be float32 .* found a \(2, 65, 33\) float16"):
        gemm(library.put(A.astype("f2")), b)
    with refused("b is numpy.ndarray in host memory: the arrays of one call must be of one library"):
        gemm(a, B)
    with refused("the arrays of one call must be of one library"):
        gemm(A, b)
    with refused("out= is an array"):
        gemm(a, b, out=library.empty((2, 65, 71)))
    square = library.put(drawn(1, 16, 16))
    with refused("out= overlaps a"):
        gemm(square, square, out=square)
    with refused("a begins 4 bytes after a multiple of 16"):
        gemm(library.put(drawn(257))[1:].reshape(1, 16, 16), square)
    with pytest.raises(UsageError, match="device is emulator"):
        gemm(a, b, device="emulator")
    with pytest.raises(VariantError, match="runs on the host, but the arrays are on a GPU"):
        conv2d(library.put(drawn(1, 1, 5, 5)), library.put(drawn(1, 1, 2, 2)), impl="cpu")
    assert close(library.get(gemm(a, b, device=cuda)))


def test_two_libraries_are_refused() -> None:
    cupy, torch = Cupy(), Torch()
    for a, b in ((cupy.put(A), torch.put(B)), (torch.put(A), cupy.put(B))):
        with refused("the arrays of one call must be of one library"):
            gemm(a, b)


def test_graphs_of_cupy() -> None:
    """A call can be captured after a first call.

    The graph repeats it with the current content of the arrays.
    """
    cupy = Cupy()
    a, b, out = cupy.put(A), cupy.put(B), cupy.empty(C.shape)
    stream = cupy.stream()
    with stream:
        stream.begin_capture()
        with pytest.raises(DeviceError, match="call it once on the stream, then capture it"):
            gemm(a, b, out=out)
        stream.end_capture()
        gemm(a, b, out=out)
        stream.begin_capture()
        gemm(a, b, out=out)
        graph = stream.end_capture()
        cupy.fill(a, 2 * a)
        cupy.fill(out, 0)
        graph.launch(stream)
    stream.synchronize()
    assert close(cupy.get(out), 2 * C)


def test_softmax_of_a_long_row(library: Any) -> None:
    x = drawn(3, 100_000)
    powers = np.exp(x - x.max(1, keepdims=True))
    assert close(library.get(softmax(library.put(x))), powers / powers.sum(1, keepdims=True))
