"""PyTorch as a peer on the CPU, if it is installed, and the clock of the default stream on a GPU."""

import pytest
from peers_common import DefaultStream
from peers_problems import Subject, layers, network
from test_peers import a_program

from mini_dnn.device import Device
from mini_dnn.running.timing import Timing, time_op


@pytest.fixture(scope="module")
def subjects() -> list[Subject]:
    return [*layers(2), network(a_program(), 2)]


@pytest.mark.gpu
def test_the_default_stream_has_a_clock(cuda: Device) -> None:
    clock = DefaultStream(cuda)
    timed = time_op(clock.flush_cache, clock, Timing(warm_up=1, repeats=6))  # type: ignore[arg-type]
    assert all(ms > 0.01 for ms in timed.samples_ms)  # a flush writes twice the L2 cache several times


def test_modules_agree_with_float64(subjects: list[Subject]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import peers_torch

    for case in peers_torch.eager_cases(subjects, "cpu"):
        if "cudnn_convolution_relu" in case.setting:
            continue
        with case.prepare() as prepared:
            prepared.op()
            assert case.check(prepared.result())["max_error"] > 0
    for subject in subjects:
        for order, memory in peers_torch.FORMATS.items():
            _, x = peers_torch.on_device(subject, peers_torch.Way("fp32", order, where="cpu"))
            assert x.stride() == torch.empty(x.shape, memory_format=memory).stride()


def test_the_order_that_is_best_without_it_is_compiled_first() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from peers_torch import orders

    row = {"kind": "library", "what": "conv1", "precision": "fp16", "order": "NHWC", "op_ms": 3.0}
    assert orders([], "conv1", "fp16") == ["NCHW", "NHWC"]
    assert orders([row], "conv1", "fp16") == ["NHWC", "NCHW"]
    assert orders([row, row | {"order": "NCHW", "op_ms": 2.0}], "conv1", "fp16") == ["NCHW", "NHWC"]
    assert orders([row | {"what": "conv2"}, row | {"precision": "fp32"}], "conv1", "fp16")[0] == "NCHW"
