"""A transformer's attention computed by variants: NumPy's classes, refused inputs, and the command line."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_dnn.cli import main
from mini_dnn.datasets import ImageSet
from mini_dnn.datasets.fashion_mnist import resize
from mini_dnn.datasets.synthetic import draw
from mini_dnn.device import Device
from mini_dnn.errors import CheckError, UsageError, VariantError
from mini_dnn.measuring.inference import Program
from mini_dnn.measuring.layerwise import (
    NUMPY_ATTENTION,
    ON_HOST,
    PADDED,
    Attentions,
    PaddedConvolutions,
    Products,
    compare,
)
from mini_dnn.measuring.measure import Measured, Setting
from mini_dnn.nn.models import resnet
from mini_dnn.nn.models.resnet import ResNetSizes
from mini_dnn.nn.network import Network
from mini_dnn.nn.numpy_attention import attention_forward
from mini_dnn.nn.weights import WeightsInfo, save
from mini_dnn.nn.zoo import MODELS
from mini_dnn.variant import find, names

IMAGES = 4


@pytest.fixture(scope="module")
def images() -> ImageSet:
    drawn, labels = draw(IMAGES, 3)
    return ImageSet("synthetic", "test", resize(drawn[:, 0], 28), labels, "drawn", "")


def network() -> Network:
    """An untrained network whose classes are well separated and whose attention is concentrated."""
    built = MODELS["vit"].make("synthetic", np.random.default_rng(5))
    for name, parameter in built.parameters().items():
        if name.endswith("qkv.weight"):
            parameter.value *= 2
        if name == "head.weight":
            parameter.value *= 10
    return built


def program(images: ImageSet) -> Program:
    info = WeightsInfo("synthetic", {}, 5, "")
    return Program(network(), info, Path("none.h5"), images, model=MODELS["vit"])


@pytest.mark.parametrize("name", names("attention"))
def test_attention_in_every_variant_gives_numpys_classes(
    name: str, images: ImageSet, quick_emulator: Device
) -> None:
    variant = find(name)
    if variant.needs_gpu:
        pytest.skip(variant.needs_gpu)
    own = program(images)
    expected = own.probabilities(IMAGES)
    attentions = Attentions(variant, Setting(quick_emulator, entries=1))
    found = own.probabilities(IMAGES, attentions)
    assert [layer.name for layer in attentions.layers] == [f"attention{i}.heads" for i in range(1, 5)]
    assert all(layer.comparison and layer.comparison.ok for layer in attentions.layers)
    assert f"the class of {IMAGES} of {IMAGES} images is NumPy's" in compare(
        found, expected, attentions.layers
    )
    assert np.abs(found - expected).max() > 0  # the result was not computed by NumPy


def test_the_best_attention_for_a_problem_is_asked_with_what_the_layers_have(images: ImageSet) -> None:
    assert str(program(images).attention(9)) == "9 x 3 heads of 50 tokens of 32, fp16, packed"


@pytest.mark.parametrize("name", ["cpu", "conv2d_padded/v1_shared", "conv2d_padded/v2_wmma"])
def test_convolutions_with_padding_give_numpys_classes(
    name: str, images: ImageSet, quick_emulator: Device
) -> None:
    sizes = ResNetSizes(28, 1, "small", (8, 8, 16, 16), (1, 1, 1, 1), 10)
    built = resnet.build(sizes, np.random.default_rng(5))
    own = Program(
        built, WeightsInfo("synthetic", {}, 5, ""), Path("none.h5"), images, model=MODELS["resnet18"]
    )
    expected = own.probabilities(2)
    variant = ON_HOST[PADDED] if name == "cpu" else find(name)
    convolutions = PaddedConvolutions(variant, Setting(None if name == "cpu" else quick_emulator, entries=1))
    found = own.probabilities(2, convolutions)
    assert [layer.name for layer in convolutions.layers] == [conv.name for conv in sizes.convolutions]
    assert all(layer.comparison and layer.comparison.ok for layer in convolutions.layers)
    assert "the class of 2 of 2 images is NumPy's" in compare(found, expected, convolutions.layers)
    kinds = {(layer.problem.dtype, layer.problem.layout) for layer in convolutions.layers}
    assert kinds == {("fp32", "nchw") if "v1" in name else ("fp32" if name == "cpu" else "fp16", "nhwc")}


def qkv() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((2, 5, 3, 2, 32)).astype(np.float32)


def test_types_and_layouts_that_a_variant_takes(quick_emulator: Device) -> None:
    attentions = Attentions(find("attention/v0"), Setting(quick_emulator))
    wanted = attention_forward(qkv(), 0.25)[0]

    def only(words: str) -> None:
        fields = words.split()
        attentions.variant = replace(
            attentions.variant,
            refuses=lambda p: "" if (p.dtype, p.layout) == tuple(fields) else f"no {p.dtype} {p.layout}",
        )

    for words, off in (("fp32 packed", 1e-5), ("fp32 contiguous", 1e-5), ("fp16 packed", 1e-2)):
        only(words)
        found = attentions(qkv(), 0.25, "a")
        problem = attentions.layers[-1].problem
        assert f"{problem.dtype} {problem.layout}" == words
        assert problem.scale == 0.25
        assert found.dtype == np.float32
        assert found.flags.c_contiguous
        np.testing.assert_allclose(found, wanted, atol=off)
    attentions(qkv(), 1 / np.sqrt(32), "a")
    assert attentions.layers[-1].problem.scale == 0  # 0 stands for this scale
    with pytest.raises(VariantError, match="uses attention in float16, whose range some numbers"):
        attentions(qkv() * 1e6, 0.25, "a")
    only("fp16 other")
    with pytest.raises(
        VariantError, match="attention/v0_naive does not support this attention: no fp32 packed"
    ):
        attentions(qkv(), 0.25, "a")


def test_probabilities_that_differ_are_found(images: ImageSet, quick_emulator: Device) -> None:
    expected = program(images).probabilities(IMAGES)
    layers: list[Measured] = []
    assert "bound 0.0001" in compare(expected + 5e-5, expected, layers)
    with pytest.raises(CheckError, match=r"differ by 2.00e-04 at most \(bound 0.0001\)"):
        compare(expected + 2e-4, expected, layers)
    halves = Attentions(find("attention/v6"), Setting(quick_emulator))
    halves(qkv(), 0.25, "a")
    assert "bound 0.02" in compare(expected + 2e-4, expected, halves.layers)
    with pytest.raises(CheckError, match="differ by nan"):
        compare(expected * np.nan, expected, layers)
    many = np.tile([[0.5, 0.5 + 1e-6]], (2000, 1))
    few = many.copy()
    few[:2] = few[:2, ::-1]
    assert "the class of 1,998 of 2,000 images" in compare(few, many, layers)
    few[2] = few[2, ::-1]
    with pytest.raises(CheckError, match="the class of 1,997 of 2,000 images"):
        compare(few, many, layers)


def test_linear_layers_of_tokens_in_a_matrix_product(images: ImageSet, quick_emulator: Device) -> None:
    own = program(replace(images, images=images.images[:1]))
    expected = own.probabilities(1)
    products = Products(find("gemm/v3"), Setting(quick_emulator))
    found = own.probabilities(1, Attentions(NUMPY_ATTENTION, Setting(None)), products)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert [layer.name for layer in products.layers[:2]] == ["patches.linear", "attention1.heads.qkv"]
    assert str(products.layers[1].problem) == "(50,96) @ (96,288) fp32 -> fp32, b transposed"
    assert len(products.layers) == 1 + 4 * 4 + 1


@pytest.fixture
def weights(images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The options for weights that fit the drawn images, of which there are few now."""
    monkeypatch.setattr("mini_dnn.datasets.load", lambda *_: images)
    file = tmp_path / "w.h5"
    save(file, network(), WeightsInfo("synthetic", {}, 5, ""))
    return f"--network vit --data synthetic --weights {file}"


def test_the_transformer_from_the_command_line(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    words = f"--batch {IMAGES} --device emulator --impl attention/v6 --check --json {file}".split()
    assert main([*weights.split(), *words]) == 0
    figures = json.loads(file.read_text())
    assert (figures["network"], figures["impl"], figures["device"]) == ("vit", "attention/v6", "emulator")
    assert [layer["name"] for layer in figures["layers"]] == [f"attention{i}.heads" for i in range(1, 5)]
    printed = capsys.readouterr().out
    assert f"Attention attention1.heads  {IMAGES} x 3 heads of 50 tokens of 32, fp16, packed" in printed
    assert printed.count("agrees with float64") == 4
    assert f"the class of {IMAGES} of {IMAGES} images is NumPy's" in printed


def test_the_transformer_without_a_device(weights: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*weights.split(), "--batch", "2", "--impl", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "variant   cpu: NumPy" in printed
    assert printed.count("Op Time: ") == 4


@pytest.mark.exhaustive
def test_the_best_attention_is_taken_where_none_is_named(
    weights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*weights.split(), "--batch", "1", "--device", "emulator"]) == 0
    assert "variant   attention/v" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--network vit --impl m3",
            "it computes conv2d, but the layers of the vision transformer are attention",
        ),
        ("--network vit --impl m3", "choose a variant from 'run.py list attention', or add --network lenet"),
        ("--impl attention/v2", "choose a variant from 'run.py list conv2d', or add --network vit"),
        ("--network vit --impl gemm/v3", "it computes gemm, but attention is needed here; 'run.py list"),
        ("--network vit --impl attention/v99", "no variant 'attention/v99'"),
        ("--network vit --resident whole", "no variant 'whole'"),
        ("--network vit --resident whole", "short names are layers, fused"),
        ("--network vit --resident attention/v2", "computes one attention and no whole network"),
        ("--network vit --resident networks/lenet/whole", "computes lenet: add --network lenet"),
        ("--resident networks/vit/fused", "computes vit: add --network vit"),
        ("--network vit --impl networks/vit/fused", "use --resident networks/vit/fused"),
        ("--impl networks/vit/fused", "use --resident networks/vit/fused and --network vit"),
        ("--network vit --resident fused --linear gemm/v0", "--linear needs --impl"),
        ("--network vit --impl cpu --device emulator", "cpu is NumPy and runs on the host"),
        ("--network vit --impl cpu --send uint8", "--send uint8 needs --resident"),
        ("--impl cpu --data cifar10", "LeNet does not support the data set 'cifar10'"),
    ],
)
def test_combinations_that_do_not_fit(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--batch", "5", *words.split()]) == 2
    assert message in capsys.readouterr().err


def test_data_for_which_no_weights_are_shipped(images: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.datasets.load", lambda *_: replace(images, name="cifar10"))
    with pytest.raises(UsageError, match=r"run\.py train --network vit --data cifar10', and name"):
        Program.load("cifar10", network="vit")
