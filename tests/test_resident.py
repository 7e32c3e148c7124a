"""LeNet with every layer on one device."""

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from clocked import Clocked
from PIL import Image
from resident_helpers import assert_right, compared, opened, pictures, small_network

from mini_dnn import conv2d
from mini_dnn.checking.schedules import SCHEDULES
from mini_dnn.cli import main
from mini_dnn.datasets import to_float
from mini_dnn.device.base import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.errors import ShapeError, VariantError
from mini_dnn.measuring.inference import STEPS, find_step
from mini_dnn.nn.layers import Linear
from mini_dnn.nn.models import lenet
from mini_dnn.nn.network import Network
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.running.resident import Resident
from mini_dnn.running.timing import Timing
from mini_dnn.variant import Launch, Variant, find


@pytest.fixture(scope="module")
def network() -> Network:
    return small_network()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_bytes", [False, True])
def test_agrees_with_float64(step: str, is_bytes: bool, network: Network, emulator: Device) -> None:
    images = pictures(37)  # not a multiple of any tile
    variant = find_step(step)
    with closing(opened(network, variant, emulator, LenetBatch(16, is_bytes))) as resident:
        probabilities = resident.predict(images if is_bytes else to_float(images))
    assert probabilities.shape == (37, 10)
    error = assert_right(network, images, probabilities, variant.precision)
    assert error < {"fp32": 1e-4, "fp16": 5e-3}[variant.precision]


def tensor_cores(few: bool, monkeypatch: pytest.MonkeyPatch, **defines: int) -> Variant:
    """The network on tensor cores, with one block per image, or with several images per block."""
    variant = find_step("tensor")
    if not few:
        monkeypatch.setitem(variant.plan.__globals__, "MAX_GRID", 2)  # type: ignore[union-attr]
    return replace(variant, defines=lambda s: {**variant.defines_for(s), **defines})


@pytest.mark.parametrize("defines", [{}, {"PTX_NO_WGMMA": 1}, {"PTX_NO_BULK": 1}], ids=str)
@pytest.mark.parametrize("few", [True, False])
def test_forms_of_the_tensor_cores(
    few: bool, defines: dict[str, int], network: Network, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forms with and without warpgroup products, and with and without bulk copies."""
    images = pictures(21)
    variant = tensor_cores(few, monkeypatch, **defines)
    assert variant.defines_for(LenetBatch(8))["FEW"] == few
    with closing(opened(network, variant, device, LenetBatch(8))) as resident:
        assert assert_right(network, images, resident.predict(to_float(images)), variant.precision) < 5e-3


@pytest.mark.exhaustive
@pytest.mark.parametrize("defines", [{}, {"PTX_NO_WGMMA": 1}], ids=str)
def test_checked_mode_finds_nothing_where_blocks_take_images_in_turn(
    defines: dict[str, int], network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = pictures(4)
    with closing(CheckedEmulator()) as device:
        for order in range(len(SCHEDULES)):
            device.set_schedule(order, seed=1)
            variant = tensor_cores(False, monkeypatch, **defines)
            with closing(opened(network, variant, device, LenetBatch(4))) as resident:
                assert_right(network, images, resident.predict(to_float(images)), variant.precision)


@pytest.mark.parametrize("step", ["whole", "tensor"])
def test_resizing_gives_pillows_pixels(step: str, network: Network, emulator: Device) -> None:
    """A single bit of a pixel would be noticed, because both ways continue with the same arithmetic."""
    rng = np.random.default_rng(3)
    noise = rng.integers(0, 256, (20, 1, 28, 28), dtype=np.uint8)
    edges = 255 * rng.integers(0, 2, (20, 1, 28, 28), dtype=np.uint8)
    small = np.concatenate([noise, edges])
    large = [Image.fromarray(image[0]).resize((86, 86), Image.Resampling.BILINEAR) for image in small]
    whole = find_step(step)
    resized = opened(network, whole, emulator, LenetBatch(40, True, 28)).predict(small)
    stored = opened(network, whole, emulator, LenetBatch(40, True)).predict(np.stack(large)[:, None])
    np.testing.assert_array_equal(resized, stored)


def test_weights_that_are_no_arrays_of_the_problem(network: Network, emulator: Device) -> None:
    weights = {name: p.value for name, p in network.parameters().items()}
    cases: list[tuple[Any, str]] = [
        (list(weights.values()), r"weights are a list; expected a dictionary of the arrays {'conv1\.weight'"),
        ({**weights, "fc2.bias": None}, r"needs the weights .*; found .*'fc2\.bias': None"),
        ({**weights, "fc2.bias": [[1], [1, 2]]}, r"fc2\.bias is not an array: its lists have different leng"),
        ({**weights, "fc2.bias": [0.5] * 10}, r"fc2\.bias is float64, which float32 cannot hold exactly"),
    ]
    for wrong, message in cases:
        with pytest.raises(ShapeError, match=message):
            Resident(find_step("whole"), LenetBatch(2), wrong, emulator)


def test_two_networks_at_once(network: Network, emulator: Device) -> None:
    """Each network has its own filters in constant memory."""
    other = lenet.build(np.random.default_rng(8))
    images = pictures(4)
    first, second = (opened(each, find_step("whole"), emulator, LenetBatch(4)) for each in (network, other))
    for resident, each in ((first, network), (second, other), (first, network)):
        assert_right(each, images, resident.predict(to_float(images)))


def test_a_wrong_probability_is_found(network: Network) -> None:
    images = pictures(5)
    right = network.forward(to_float(images))
    assert compared(network, images, right).ok
    for value in (right[3, 2] + 2e-4, np.nan):
        wrong = right.copy()
        wrong[3, 2] = value
        result = compared(network, images, wrong)
        assert (result.differing, result.first) == (1, (3, 2))


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((1, 1, 86, 86)),
        np.zeros((1, 1, 86, 85), np.float32),
        np.zeros((5, 1, 86, 86), np.float32),
        np.zeros((0, 1, 86, 86), np.float32),
    ],
)
def test_wrong_images(images: np.ndarray, network: Network, emulator: Device) -> None:
    resident = opened(network, find_step("whole"), emulator, LenetBatch(4))
    with pytest.raises(ShapeError, match=r"expected 1 to 4 entries of \(1, 86, 86\) float32 at a time"):
        list(resident.serve([images]))


def test_wrong_use(network: Network, emulator: Device) -> None:
    ones = np.ones((1, 1, 2, 2), np.float32)
    with pytest.raises(VariantError, match=r"networks/lenet/whole computes lenet, .* N,is_bytes,side; found"):
        conv2d(ones, ones, find_step("whole"), emulator)
    with pytest.raises(VariantError, match="resized by lenet/whole only"):
        opened(network, find_step("fused"), emulator, LenetBatch(4, True, 28))
    with pytest.raises(ShapeError, match="side 30"):
        LenetBatch(4, True, 30)
    another = Network({"fc": Linear(3, 2, np.random.default_rng(0))})
    with pytest.raises(ShapeError, match=r"needs the weights .*fc2\.bias.*; found .*fc\.weight"):
        opened(another, find_step("whole"), emulator, LenetBatch(4))


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--batch", "100", "--data", "synthetic", "--device", "emulator", "--resident", "whole"]
    assert main([*words, "--send", "uint8", "--check"]) == 0
    out = capsys.readouterr().out
    assert "LeNet  (100,1,86,86) uint8 -> (100,10)" in out
    assert "agrees with float64: max error" in out
    assert "agrees with 0." in out
    assert main(["--batch", "1", "--data", "synthetic", "--impl", "m1", "--send", "uint8"]) == 2
    assert "--send uint8 needs --resident" in capsys.readouterr().err
    assert main([*words, "--send", "uint8-28"]) == 2
    assert "drawn at 86×86" in capsys.readouterr().err


def test_many_launches_are_timed_as_a_graph() -> None:
    """As by `run`: otherwise the GPU would wait for Python."""
    variant = find("networks/resnet18/v2_layers")
    problem = variant.operation.parse("1,8,1,small,4-4-4-4,1-1-1-1,3,fp32")
    arrays = variant.operation.inputs(problem, 0)
    weights = {name: arrays[name] for name in problem.named("weight")}
    device = Clocked(quick=True)
    with closing(Resident(variant, problem, weights, device, use_graph=False, slots=1)) as resident:
        timed = resident.time(Timing(warm_up=0, repeats=1, max_repeats=1))
    assert device.graphs == 1
    launches = sum(isinstance(step, Launch) for step in variant.planned(problem, 227 * 1024).steps)
    assert timed.samples_ms == (launches,), "each launch takes a millisecond on this clock"
