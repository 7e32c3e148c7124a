"""``run.py classify``: from image files to the names of classes."""

import csv
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from classify_samples import TINY
from classify_samples import folder as folder
from classify_samples import garments as garments
from classify_samples import weights as weights
from PIL import Image

from mini_dnn import datasets
from mini_dnn.cli import main
from mini_dnn.measuring.pictures import Classifier
from mini_dnn.nn.models import resnet
from mini_dnn.nn.weights import WeightsInfo, save
from mini_dnn.paths import ROOT
from mini_dnn.pictures.recipe import Recipe

RECIPE = {"resize": 24, "crop": 20}


def classes_of(pixels: np.ndarray) -> list[int]:
    """The classes that the shipped transformer assigns to images (N, 28, 28) uint8."""
    network = Classifier.load("vit").network
    return network.predict(datasets.to_float(pixels[:, None])).tolist()


def test_a_folder_with_broken_files(
    folder: Path, garments: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--network", "vit", "--impl", "cpu", "--top", "3", "--batch", "4"]
    files = ["--json", str(tmp_path / "out.json"), "--csv", str(tmp_path / "out.csv")]
    assert main(["classify", str(folder), *flags, *files]) == 1
    out, err = capsys.readouterr()
    for name, why in (
        ("3a.jpg", "it is empty"),
        ("3b.png", "truncated or damaged"),
        ("9z.png", "not a picture"),
    ):
        assert f"error: {folder / name}: " in err
        assert why in err
    assert "3 of 13 pictures could not be read" in err
    assert "10 of 13 pictures in" in out
    assert "\nlimit     " in out
    expected = [datasets.CLASSES[k] for k in classes_of(garments[:10])]
    lines = [line for line in out.splitlines() if line.startswith(str(folder))]
    assert [line.split("% ", 1)[1].split(",")[0] for line in lines] == expected

    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["classified"], found["failed"], found["network"]) == (10, 3, "vit")
    rows = found["pictures"]
    assert [Path(row["file"]).name for row in rows] == sorted(path.name for path in folder.iterdir())
    good = [row["classes"] for row in rows if "classes" in row]
    assert [classes[0]["name"] for classes in good] == expected
    assert all(1 >= a["probability"] >= b["probability"] > 0 for a, b, _ in good)
    assert sum("error" in row for row in rows) == 3

    table = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert [row["name"] for row in table if row["rank"] == "1"] == expected
    assert len(table) == 10 * 3 + 3
    assert [row["file"] for row in table if row["error"]] == [
        str(folder / name) for name in ("3a.jpg", "3b.png", "9z.png")
    ]


def test_the_shipped_residual_network_in_batches_of_any_size(
    folder: Path, garments: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    classifier = Classifier.load("resnet18")
    x = classifier.recipe.normalised(garments[:10, ..., None])
    expected = [str(k) for k in classifier.network.predict(x)]  # computed by the layers
    for more in (["--batch", "1", "--workers", "1"], ["--batch", "7", "--workers", "3"]):
        assert main(["classify", str(folder), "--impl", "cpu", "--csv", "-", "--top", "1", *more]) == 1
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert [row["class"] for row in rows if not row["error"]] == expected
        assert [row["file"] for row in rows] == sorted(str(path) for path in folder.iterdir())


def test_all_that_is_asked_for_is_json_on_standard_output(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["classify", f"{folder}/0.png", "--network", "vit", "--impl", "cpu", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    (row,) = json.loads(out)["pictures"]
    assert len(row["classes"]) == 5
    assert "1 of 1 pictures" in err


def standard_input(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_a_picture_from_standard_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    standard_input((folder / "0.png").read_bytes(), monkeypatch)
    assert main(["classify", "-", f"{folder}/0.png", "--network", "vit", "--impl", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first, second = (line for line in lines if line.startswith(("standard input: ", f"{folder}/0.png: ")))
    assert first.removeprefix("standard input") == second.removeprefix(f"{folder}/0.png")


def test_names_from_standard_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    standard_input(f"{folder}/1.png\n{folder}/0.png\n".encode(), monkeypatch)
    assert (
        main(["classify", "--list", "-", "--network", "vit", "--impl", "cpu", "--csv", "-", "--top", "1"])
        == 0
    )
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == [f"{folder}/1.png", f"{folder}/0.png"]


def test_finished_pixels(garments: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", garments)
    flags = ["--network", "vit", "--impl", "cpu", "--csv", "-", "--top", "1", "--batch", "5"]
    assert main(["classify", str(tmp_path / "x.npy"), *flags]) == 0
    out, err = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [int(row["class"]) for row in rows] == classes_of(garments)
    assert rows[7]["file"] == f"{tmp_path}/x.npy[7]"
    assert "limit     " in err
    assert "all workers decoded" not in err


def test_inverted(garments: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Photographs of garments on white, for a network that was trained on light garments on black."""
    Image.fromarray(255 - garments[0]).save(tmp_path / "dark.png")
    Image.fromarray(garments[0]).save(tmp_path / "light.png")
    flags = ["--network", "vit", "--impl", "cpu", "--top", "10"]

    def line(*words: str) -> str:
        assert main(["classify", *words, *flags]) == 0
        return next(text for text in capsys.readouterr().out.splitlines() if ".png: " in text)

    light = line(str(tmp_path / "light.png")).partition(": ")[2]
    assert line(str(tmp_path / "dark.png"), "--invert").partition(": ")[2] == light
    assert line(str(tmp_path / "dark.png"), "--no-invert").partition(": ")[2] != light


def test_a_residual_network_by_a_recipe(
    weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each step from a file to probabilities is computed here in another way than in the program."""
    (tmp_path / "recipe.json").write_text(json.dumps(RECIPE))
    x = np.random.default_rng(5).integers(0, 256, (24, 30, 3), np.uint8)
    Image.fromarray(x).save(tmp_path / "x.png")
    flags = ["--network", "resnet18", "--weights", str(weights), "--recipe", str(tmp_path / "recipe.json")]
    assert main(["classify", str(tmp_path / "x.png"), *flags, "--impl", "cpu", "--json", "-"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["pictures"]
    given = (x[2:22, 5:25] / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    network = resnet.build(TINY, np.random.default_rng(0), np.float64)
    (expected,) = network.forward(given.transpose(2, 0, 1)[None])
    found = {entry["class"]: entry["probability"] for entry in row["classes"]}
    assert list(found) == np.argsort(-expected)[:5].tolist()
    np.testing.assert_allclose(list(found.values()), np.sort(expected)[::-1][:5], rtol=1e-4, atol=1e-6)
    assert row["classes"][0]["name"] == f"class {row['classes'][0]['class']}"  # its name is unknown


def test_names_from_a_file(
    weights: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["classify", f"{folder}/0.png", "--weights", str(weights), "--impl", "cpu", "--top", "6"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "NOTE: the names of the classes are not known" in out
    assert f"network   {TINY.title}, 6 classes, cpu\n" in out
    file = tmp_path / "names"
    file.write_text("# a notice\n" + "\n".join("abcdef"))
    assert main([*words, "--classes", str(file)]) == 0
    out = capsys.readouterr().out
    assert "NOTE" not in out
    assert sorted(re.findall(r"% (\w+)", out.split("0.png: ")[1].split("\n")[0])) == list("abcdef")
    for text, says in (
        (b"a\nb\n", "has 2 names, and the network has 6 classes"),
        (b"\xff", "is not UTF-8 text"),
    ):
        file.write_bytes(text)
        assert main([*words, "--classes", str(file)]) == 2
        assert says in capsys.readouterr().err


def test_what_is_done_to_pictures_follows_the_weights(weights: Path, tmp_path: Path) -> None:
    assert Classifier.load("vit").recipe == Recipe(28, 28, (0.0,), (1.0,), background=0)
    assert Classifier.load("resnet18", weights).recipe == Recipe(23, 20)  # the recipe of ImageNet
    path = tmp_path / "coloured.h5"
    network = resnet.build(resnet.CIFAR10, np.random.default_rng(0))
    save(path, network, WeightsInfo("cifar10", {}, 0, "a test", description=resnet.CIFAR10.to_json()))
    found = Classifier.load("resnet18", path)
    assert found.recipe == Recipe(32, 32, (0.0,) * 3, (1.0,) * 3)
    assert found.classes[0] == "airplane"


def test_the_examples_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    drawing, stacking = re.findall(r"```python\n(.*?)```", (ROOT / "docs/classify.md").read_text(), re.DOTALL)
    exec(drawing, {})
    known = str(ROOT / "data/vit-synthetic.h5")
    assert main(["classify", "garments", "--network", "vit", "--weights", known, "--impl", "cpu"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("garments/")]
    right = sum(re.search(r"-(\w+)[ .]", row)[1] in row.partition("% ")[2].partition(",")[0] for row in rows)
    assert len(rows) == 10
    assert right >= 6  # chance would be 1
    Path("photos").mkdir()
    for i in range(2):
        Image.fromarray(np.full((30, 40, 3), 9 * i, np.uint8)).save(f"photos/{i}.jpg")
    exec(stacking, {})
    pixels = np.load("photos.npy")
    assert pixels.shape == (2, 3, 224, 224)
    assert (pixels == 9 * np.arange(2)[:, None, None, None]).all()
